"""Patches reach the pod we intend, from every pod we may receive."""

import copy
from collections.abc import Mapping
from itertools import product
from typing import Any

import jsonpatch
import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.review.json_patch import ContainerIntent, Intent, operations, pointer_token
from webhook.review.pod_schema import Pod

Json = dict[str, Any]

INTENT = Intent(
    scheduler="vgpu-scheduler",
    annotations={"volcano.sh/vgpu-mode": "mig", "vgpu-admission.io/a~b": "x"},
    annotations_removed=("stale.io/gone",),
    volumes=({"name": "lib", "hostPath": {"path": "/lib"}},),
    containers=(
        ContainerIntent(
            kind="containers",
            index=0,
            env=({"name": "A", "value": "1"}, {"name": "B", "value": "2"}),
            mounts=({"name": "lib", "mountPath": "/lib"},),
            resources={"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3k"},
            resources_removed=("volcano.sh/vgpu-memory-percentage",),
        ),
        ContainerIntent(kind="initContainers", index=0, env=({"name": "A", "value": "1"},)),
    ),
)


def intended(pod: Json, intent: Intent) -> Json:
    """Carry out *intent* the plain way, as a reference for the operations."""
    goal = copy.deepcopy(pod)
    metadata, spec = goal["metadata"], goal["spec"]
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key not in intent.annotations_removed
    } | dict(intent.annotations)
    if annotations or metadata.get("annotations") is not None:
        metadata["annotations"] = annotations
    if intent.volumes:
        spec["volumes"] = [*(spec.get("volumes") or ()), *intent.volumes]
    if intent.scheduler is not None:
        spec["schedulerName"] = intent.scheduler
    for change in intent.containers:
        container = spec[change.kind][change.index]
        for name, entries in (("env", change.env), ("volumeMounts", change.mounts)):
            if entries:
                container[name] = [*(container.get(name) or ()), *entries]
        if change.resources or change.resources_removed:
            container["resources"] = resources(container.get("resources"), change)
    return goal


def resources(present: Json | None, change: ContainerIntent) -> Json:
    goal = dict(present or {})
    sides = ["limits", *(["requests"] if goal.get("requests") is not None else [])]
    for side in sides:
        kept = {
            name: amount
            for name, amount in (goal.get(side) or {}).items()
            if name not in change.resources_removed
        }
        goal[side] = kept | dict(change.resources)
    return goal


def applied(pod: Json, intent: Intent) -> Json:
    """Let an independent library apply our operations to exactly what was received."""
    ops = orjson.loads(orjson.dumps(operations(msgspec.convert(pod, Pod), intent)))
    result: Json = jsonpatch.apply_patch(copy.deepcopy(pod), ops)
    return result


ABSENT = object()


def some(mapping: Mapping[str, object]) -> Json:
    return {key: copy.deepcopy(value) for key, value in mapping.items() if value is not ABSENT}


LISTS: tuple[object, ...] = (ABSENT, None, [], [{"name": "old", "mountPath": "/old", "value": "x"}])
PERCENT = "volcano.sh/vgpu-memory-percentage"
AMOUNTS: tuple[object, ...] = (
    ABSENT,
    None,
    {"limits": {PERCENT: "50"}},
    {"limits": {PERCENT: "50"}, "requests": {PERCENT: "50"}},
    {"limits": {PERCENT: "50"}, "requests": None},
    {"requests": {PERCENT: "50"}},
)


@pytest.mark.parametrize("annotations", [ABSENT, None, {}, {"stale.io/gone": "1", "kept": "2"}])
@pytest.mark.parametrize("volumes", LISTS)
def test_every_combination_of_missing_parents(annotations: object, volumes: object) -> None:
    """A patch applies whatever the API server left out, and gives the intended pod."""
    for env, mounts, amounts in product(LISTS, LISTS, AMOUNTS):
        container = some({"name": "c", "env": env, "volumeMounts": mounts, "resources": amounts})
        pod = {
            "metadata": some({"annotations": annotations}),
            "spec": some({"containers": [container], "initContainers": [{"name": "i"}]})
            | some({"volumes": volumes}),
        }

        assert applied(pod, INTENT) == intended(pod, INTENT)


KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(present=st.dictionaries(KEYS, KEYS, max_size=4), wanted=st.dictionaries(KEYS, KEYS))
@settings(max_examples=200)
def test_keys_are_escaped_whatever_they_hold(
    present: dict[str, str], wanted: dict[str, str]
) -> None:
    """A tenant's key can never address another field."""
    pod = {"metadata": {"annotations": present}, "spec": {"containers": []}}
    intent = Intent(annotations=wanted, annotations_removed=tuple(present)[:1])

    assert (
        applied(pod, intent)["metadata"]["annotations"]
        == intended(pod, intent)["metadata"]["annotations"]
    )


def test_a_pod_that_is_as_intended_needs_no_operation() -> None:
    """No change asked for, no operation sent."""
    pod = {"metadata": {"annotations": {"a": "1"}}, "spec": {"containers": [{"name": "c"}]}}

    assert operations(msgspec.convert(pod, Pod), Intent(annotations={"a": "1"})) == []


def test_tokens_are_escaped_in_the_order_the_rfc_asks_for() -> None:
    """A tilde is escaped before a slash, so that neither escape is escaped again."""
    assert pointer_token("a~1/b") == "a~01~1b"
