"""Records of settings: each content once, with who changed it, also one that was rejected."""

import asyncio
from collections.abc import Mapping

import orjson
import pytest

from allocator.cluster.configmaps import (
    DEVICE_CONFIG_NAME,
    NO_SETTINGS,
    NODE_CONFIG_NAME,
    SETTINGS_NAME,
    settings_in,
)
from allocator.cluster.objects import ConfigMap, decode_config_map
from tests.builders.pods import Json
from tests.harness.records import KeptRecords, writer
from webhook.records.settings_controller import SettingsRecordController

EVENING, MORNING = "2026-05-03T20:00:00Z", "2026-05-04T08:00:00Z"


def changed(manager: str, at: str, *fields: str) -> Json:
    return {"manager": manager, "time": at, "fieldsV1": {field: {} for field in fields}}


def config_map(name: str, key: str, text: str, *, managers: list[Json] | None = None) -> ConfigMap:
    """Return a ConfigMap as the API server sends it."""
    metadata = {"name": name, "managedFields": managers}
    return decode_config_map(orjson.dumps({"metadata": metadata, "data": {key: text}}))


def recorded(
    *pictures: Mapping[str, ConfigMap] | None, kept: KeptRecords | None = None
) -> KeptRecords:
    """Return what a leader records that sees these *pictures* one after another."""
    records = KeptRecords() if kept is None else kept
    seen = list(pictures)
    controller = SettingsRecordController(
        config_maps=lambda: seen.pop(0), write_record=writer(records).write
    )

    async def sweeps() -> None:
        for _ in pictures:
            await controller.sweep()

    asyncio.run(sweeps())
    return records


def settings(text: str, at: str = MORNING) -> dict[str, ConfigMap]:
    managers = [
        changed("installer", EVENING, "f:data"),
        changed("kubectl-edit", at, "f:data"),
        changed("labeller", "2026-06-01T00:00:00Z", "f:metadata"),
    ]
    return {SETTINGS_NAME: config_map(SETTINGS_NAME, "settings.yaml", text, managers=managers)}


def test_a_record_names_text_and_author() -> None:
    """By the digest that decisions carry."""
    text = "fleet: closed\n"
    (record,) = recorded(settings(text))
    loaded = settings_in({"settings.yaml": text})

    assert loaded is not None
    assert record["content_digest"] == loaded[1]
    assert (record["text"], record["author"]) == (text, "kubectl-edit")
    assert (record["changed_at"], record["accepted"]) == (MORNING, True)


def test_what_stays_is_recorded_once() -> None:
    """Also where a watch lists it again, and in a store that knows it from another leader."""
    kept = recorded(None, settings("fleet: open"), settings("fleet: open"))
    again = recorded(settings("fleet: open"))

    assert len(kept) == 1
    assert [record["id"] for record in again] == [record["id"] for record in kept]


def test_a_content_that_returns_is_a_change() -> None:
    """Whoever reads the history sees when it was taken back."""
    kept = recorded(
        settings("fleet: open", EVENING),
        settings("fleet: closed"),
        settings("fleet: open", "2026-05-04T09:00:00Z"),
    )

    assert len({record["id"] for record in kept}) == 3
    assert kept[0]["content_digest"] == kept[2]["content_digest"]


def test_rejected_settings_are_recorded_with_the_reason() -> None:
    """The previous ones stay in force, and somebody wants to know why."""
    (record,) = recorded(settings("fleet: ajar"))

    assert record["accepted"] is False
    assert "ajar" in record["problems"][0]


def test_settings_with_a_nul_are_recorded_without_it() -> None:
    """No store keeps one, and who wrote what was rejected must be known."""
    (record,) = recorded(settings("fleet: open\0"))

    assert (record["accepted"], record["text"]) == (False, "fleet: open\ufffd")


def test_an_installation_without_settings_has_the_defaults() -> None:
    """Decisions name them, so that they can be made again."""
    (record,) = recorded({}, {})

    assert (record["content_digest"], record["text"]) == (NO_SETTINGS, "")


@pytest.mark.parametrize(
    ("name", "key", "text", "accepted"),
    [
        pytest.param(DEVICE_CONFIG_NAME, "device-config.yaml", "nvidia: {}", True, id="device"),
        pytest.param(DEVICE_CONFIG_NAME, "device-config.yaml", "[", False, id="bad-device"),
        pytest.param(
            NODE_CONFIG_NAME, "config.json", '{"nodeconfig": [{"name": "n0"}]}', True, id="nodes"
        ),
        pytest.param(NODE_CONFIG_NAME, "config.json", "[", False, id="bad-nodes"),
    ],
)
def test_device_configurations_are_recorded_too(
    name: str, key: str, text: str, *, accepted: bool
) -> None:
    """They say what resources are called, and how GPUs may be cut."""
    kept = recorded({name: config_map(name, key, text)})
    (record,) = [one for one in kept if one["configmap"] == name]

    assert record["accepted"] is accepted
    assert ("problems" in record) is not accepted
    assert "author" not in record


def test_whatever_stands_in_managed_fields_is_survived() -> None:
    """An author is then unknown."""
    metadata = {"name": SETTINGS_NAME, "managedFields": [{"manager": 7, "fieldsV1": []}]}
    found = decode_config_map(orjson.dumps({"metadata": metadata, "data": {}}))

    assert (found.author, found.changed_at) == ("", "")
