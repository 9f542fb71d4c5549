"""Resources that the conditions of our own webhooks do not name are said where people look."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import msgspec
import orjson
import pytest

from allocator.catalog.vocabularies import VOCABULARIES, VOLCANO, Vocabulary, configure_vocabulary
from allocator.controllers.match_conditions import (
    CHECKED,
    ConditionedWebhooks,
    MatchConditionsController,
    unnamed_resources,
)
from kube.client import CallOptions
from kube.errors import NotFoundError
from kube.events import Event
from manifests.generator.policies import policies
from manifests.generator.registrations import registrations
from tests.builders.pods import MEMORY, NUMBER
from tests.fakes.api_client import FakeApiClient

MUTATING, VALIDATING = registrations()
RENAMED = configure_vocabulary(
    VOLCANO, names={MEMORY: "example.com/mem", NUMBER: "volcano.sh/vgpu-count"}
)


@dataclass(slots=True)
class Cluster(FakeApiClient):
    """An API server with our two configurations, or without."""

    stored: Mapping[str, Any]  # by place
    vocabularies: Sequence[Vocabulary] = VOCABULARIES
    events: list[Event] = field(default_factory=list)

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        place = path.removeprefix("/apis/admissionregistration.k8s.io/v1/")
        if place not in self.stored:
            raise NotFoundError(404, "NotFound", path)
        return orjson.dumps(self.stored[place])

    def swept(self) -> list[Event]:
        controller = MatchConditionsController(
            self, vocabularies=lambda: self.vocabularies, record=self.events.append
        )
        asyncio.run(controller.sweep())
        return self.events


def generated() -> dict[str, Any]:
    named = {each["metadata"]["name"]: each for each in policies()[::2]}
    return dict(zip(CHECKED, (MUTATING, VALIDATING), strict=False)) | {
        place: named[name]
        for place in CHECKED
        if (name := place.rpartition("/")[2]) != "vgpu-admission"
    }


def test_what_is_installed_names_what_is_usual() -> None:
    """Nobody is warned of an installation as it comes, nor of one under another name."""
    assert Cluster(generated()).swept() == []
    assert Cluster({}, vocabularies=(RENAMED,)).swept() == []


def test_a_new_name_outside_of_the_prefixes_is_said() -> None:
    """On each configuration, with what to write; a name below the old prefix is matched."""
    events = Cluster(generated(), vocabularies=(RENAMED,)).swept()

    assert [event.regarding.kind for event in events] == list(CHECKED.values())
    mutating, _, hidden, unlabelled = events
    assert "conditions of hidden.vgpu-admission.io do not name example.com/mem" in hidden.note
    assert "conditions of unlabelled.vgpu-admission.io do not" in unlabelled.note
    assert mutating.reason == "VgpuResourceNotMatched"
    assert "pods.vgpu-admission.io" in mutating.note
    assert "do not name example.com/mem: pods" in mutating.note
    assert "Add r == 'example.com/mem' || before r.startsWith" in mutating.note
    assert "vgpu-count" not in mutating.note
    assert "bindings.vgpu-admission.io" not in mutating.note  # it sees every bind


def test_the_remedy_ends_the_warning() -> None:
    """As it was written into the conditions by hand."""
    text = orjson.dumps(generated()).decode()
    mended = text.replace("r.startsWith(", "r == 'example.com/mem' || r.startsWith(")

    assert text != mended
    assert Cluster(orjson.loads(mended), vocabularies=(RENAMED,)).swept() == []


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "true",
        "request.operation == 'CREATE'",
        "r.startsWith(",
        "r == ''",
        "r == 'x' || r.startsWith('')",
        "'" * 5000,
        "startsWith('" * 500,
        "\u0000",
        'r.startsWith("volcano.sh/vgpu-")',
    ],
)
def test_a_condition_that_names_no_resource_says_nothing(expression: str) -> None:
    """A site's own condition may be right in ways that cannot be read off."""
    webhook = {"name": "a", "matchConditions": [{"name": "own", "expression": expression}]}
    read = msgspec.convert({"webhooks": [webhook, {"name": "all"}]}, ConditionedWebhooks)

    assert unnamed_resources(read, ["example.com/mem"]) == {}


def test_of_many_names_few_are_shown() -> None:
    """An Event holds a thousand characters."""
    names = {name: f"{'a' * 250}{i}/{'b' * 60}" for i, name in enumerate(VOLCANO.resources)}

    for event in Cluster(
        generated(), vocabularies=(configure_vocabulary(VOLCANO, names=names),)
    ).swept():
        assert len(event.note) < 1000
