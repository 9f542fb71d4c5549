"""Pods that are alike are decided once, and each as it would be by itself."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.catalog.vocabularies import HAMI, LostVocabulary
from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import Settings
from allocator.mig.geometry import Geometries
from allocator.model.demand import Demand
from allocator.model.gpu import Snapshot
from allocator.model.request import Mode
from tests.builders.model import A100_40, T4, nodes_of, snapshot
from tests.builders.pods import MEMORY, MODE, NUMBER, Json, container, pod, received
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.outcome import Refused, Rewritten
from webhook.replicas.decided_pod import KEPT_END, DecidedPod
from webhook.replicas.kept_parts import ENTRY
from webhook.replicas.recent_decisions import (
    LARGEST_REVIEW,
    MOST_BYTES,
    RecentDecisions,
    patched_pod,
    without_drawn,
)
from webhook.review.pod_schema import Pod

MIXED = snapshot(nodes_of(2, T4), nodes_of(8, A100_40, mode=Mode.MIG, name="n1"))
ONE = AdmissionContext(settings=Settings(), snapshot=MIXED, host_paths=True)
OWNER = {"kind": "ReplicaSet", "name": "r", "uid": "u-1", "controller": True}
MOUNTED_AT = "/var/run/secrets/kubernetes.io/serviceaccount"
SIZE = 8192


def replica(drawn: str = "abcde", /, **metadata: object) -> Json:
    """Return a pod of a controller as a hook receives it; its token's volume has a drawn name."""
    name = f"kube-api-access-{drawn}"
    mount = {"name": name, "mountPath": MOUNTED_AT, "readOnly": True}
    main = container(limits={NUMBER: 1, MEMORY: 3000}, volumeMounts=[mount])
    first = container("first", volumeMounts=[mount])
    made = received(pod(main, init=[first], volumes=[{"name": name}, {"name": "data"}]))
    del made["metadata"]["name"]
    made["metadata"] |= {"generateName": "r-", "ownerReferences": [OWNER], **metadata}
    return made


def read(made: Json) -> Pod:
    return msgspec.json.decode(orjson.dumps(made), type=Pod)


def owned(number: int) -> Pod:
    """Return a pod of an owner of its own."""
    return read(replica(ownerReferences=[{**OWNER, "uid": f"u-{number}"}]))


def check(*steps: tuple[Json, AdmissionContext]) -> list[DecidedPod]:
    """Return what is decided, which is what each is decided by itself."""
    recent, made = RecentDecisions(), list[DecidedPod]()
    for written, context in steps:
        one = read(written)
        made.append(recent.decide(one, context, SIZE))
        alone = patched_pod(one, decide(one, context))
        assert (made[-1].outcome, made[-1].patch) == (alone.outcome, alone.patch)
    return made


def test_replicas_are_decided_once() -> None:
    """Whatever name the API server drew for the volume of their token."""
    first, *others = check(*[(replica(f"abcd{n}"), ONE) for n in range(6)])

    assert isinstance(first.outcome, Rewritten)
    assert all(one is first for one in others)


def test_a_change_of_the_fleet_that_decides_nothing_decides_nothing() -> None:
    """Nodes come and go, and GPUs are taken, many times a second."""
    again = snapshot(nodes_of(2, T4), nodes_of(8, A100_40, mode=Mode.MIG, name="n2"))
    assert again.offers is not MIXED.offers

    *_, before, after = check(*[(replica(), ONE)] * 3, (replica(), replace(ONE, snapshot=again)))

    assert after is before


def changed(path: str, value: object) -> Callable[[], Json]:
    """Return a maker of a replica with another *value* at *path*."""

    def make() -> Json:
        made: Any = replica()
        *parents, last = path.split(".")
        place: Any = made
        for name in parents:
            place = place[int(name)] if name.isdigit() else place[name]
        place[last] = value
        return copy.deepcopy(made)

    return make


HOST = [
    {"name": "kube-api-access-abcde", "hostPath": {"path": "/usr/local/vgpu"}},
    {"name": "data"},
]
TWO = [{"name": "kube-api-access-abcde"}, {"name": "kube-api-access-fghij"}]
PREFIX = {"name": "kube-api-access-", "mountPath": "/x"}
UNLIKE: dict[str, Callable[[], Json]] = {
    "annotation": changed("metadata.annotations", {"a": "b"}),
    "mode": changed("metadata.annotations", {MODE: "hami-core"}),
    "label": changed("metadata.labels", {"a": "b"}),
    "name": changed("metadata.name", "r-1"),
    "prefix": changed("metadata.generateName", "s-"),
    "namespace": changed("metadata.namespace", "team-b"),
    "owner": changed("metadata.ownerReferences", [{**OWNER, "kind": "Job"}]),
    "more-owners": changed("metadata.ownerReferences", [OWNER, {**OWNER, "uid": "u-2"}]),
    "no-owner": changed("metadata.ownerReferences", []),
    "amount": changed("spec.containers.0.resources.limits", {NUMBER: "1", MEMORY: "4000"}),
    "nothing": changed("spec.containers.0.resources", None),
    "variable": changed("spec.containers.0.env", [{"name": "A", "value": "b"}]),
    "forged-variable": changed(
        "spec.containers.0.env", [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    ),
    "variables-from": changed("spec.containers.0.envFrom", [{"configMapRef": {"name": "c"}}]),
    "privileged": changed("spec.containers.0.securityContext", {"privileged": True}),
    "command": changed("spec.containers.0.command", ["env", "-i"]),
    "container": changed("spec.containers.0.name", "kube-api-access-abcde"),
    "mount": changed("spec.containers.0.volumeMounts", [{"name": "data", "mountPath": "/a"}]),
    "mount-of-the-prefix": changed("spec.containers.0.volumeMounts", [PREFIX]),
    "mount-over-ours": changed(
        "spec.containers.0.volumeMounts",
        [{"name": "kube-api-access-abcde", "mountPath": "/etc/ld.so.preload"}],
    ),
    "path-of-the-node": changed("spec.volumes", HOST),
    "two-tokens": changed("spec.volumes", TWO),
    "no-volume": changed("spec.volumes", None),
    "init": changed("spec.initContainers", None),
    "scheduler": changed("spec.schedulerName", "volcano"),
    "node": changed("spec.nodeName", "n1"),
    "claims": changed("spec.resourceClaims", [{"name": "c"}]),
}


@pytest.mark.parametrize("unlike", UNLIKE.values(), ids=UNLIKE)
def test_a_pod_that_differs_in_one_thing_is_decided_by_itself(unlike: Callable[[], Json]) -> None:
    """Whichever came first, and however often each comes."""
    one, other = (replica(), ONE), (unlike(), ONE)
    check(one, one, one, other, one, other, other, other, one)
    check(other, other, other, one, one, other)


EMPTY = Snapshot(version="1")
CONTEXTS: dict[str, dict[str, Any]] = {
    "settings": {"settings": Settings(host_root="/opt/vgpu")},
    "snapshot": {"snapshot": EMPTY},
    "vocabularies": {"vocabularies": ()},
    "lost": {"lost": (LostVocabulary(HAMI, "nvidia.com/gpumem", "resourceMemoryName"),)},
    "host_paths": {"host_paths": False},
    "namespace": {"namespace": NamespacePolicy(min_isolation="mig")},
    "high_priority": {"high_priority": True},
    "geometries": {"geometries": Geometries()},
    "extender": {"extender": True},
}
DECIDING: dict[str, Snapshot] = {
    "offers": dataclasses.replace(MIXED, offers=EMPTY.offers),
    "mixed": dataclasses.replace(MIXED, mixed=True),
    "complete": dataclasses.replace(MIXED, complete=False),
}
WITHOUT_EFFECT: dict[str, Snapshot] = {
    "version": dataclasses.replace(MIXED, version="another"),
    "nodes": dataclasses.replace(MIXED, nodes={}),
    "demand": dataclasses.replace(MIXED, demand=Demand()),
}


def test_all_that_surrounds_a_pod_is_known_here() -> None:
    """A decision may rest on each field, so each needs a case of its own."""
    assert set(CONTEXTS) == set(AdmissionContext.__struct_fields__)
    assert {*DECIDING, *WITHOUT_EFFECT} == {one.name for one in dataclasses.fields(Snapshot)}


@pytest.mark.parametrize("fleet", DECIDING.values(), ids=DECIDING)
def test_another_fleet_leads_to_another_decision(fleet: Snapshot) -> None:
    """Which kinds of GPU there are, and whether that is sure."""
    one, other = (replica(), ONE), (replica(), replace(ONE, snapshot=fleet))
    made = check(one, one, one, other)

    assert made[3] is not made[2]


@pytest.mark.parametrize("fleet", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_what_decides_nothing_about_a_new_pod_changes_nothing(fleet: Snapshot) -> None:
    """Nodes change many times a second."""
    one, other = (replica(), ONE), (replica(), replace(ONE, snapshot=fleet))
    made = check(one, one, other)

    assert made[2] is made[1]


@pytest.mark.parametrize("change", CONTEXTS.values(), ids=CONTEXTS)
def test_other_surroundings_lead_to_another_decision(change: dict[str, Any]) -> None:
    """As soon as they are there, and again when they are gone."""
    one, other = (replica(), ONE), (replica(), replace(ONE, **change))
    made = check(one, one, one, other, other, one)

    assert made[2] is made[1]
    assert made[3] is not made[2]
    assert made[5] is not made[4]


@given(
    st.lists(st.tuples(st.sampled_from([replica, *UNLIKE.values()]), st.integers(0, 3)), max_size=9)
)
def test_in_whatever_order_pods_come_each_is_decided_as_by_itself(
    steps: list[tuple[Callable[[], Json], int]],
) -> None:
    """Several contexts take turns too."""
    contexts = [ONE, *(replace(ONE, **change) for change in list(CONTEXTS.values())[:3])]
    check(*[(make(), contexts[at]) for make, at in steps if contexts[at].vocabularies])


def test_refusals_are_decided_each() -> None:
    """What refuses a pod may be mended at any moment."""
    written = replica(annotations={MODE: "other"})
    made = check(*[(written, ONE)] * 4)

    assert isinstance(made[0].outcome, Refused)
    assert made[3] is not made[2]


def test_a_large_pod_is_decided_by_itself() -> None:
    """It would take the place of many."""
    recent, one = RecentDecisions(), read(replica())
    made = [recent.decide(one, ONE, LARGEST_REVIEW + 1) for _ in range(3)]

    assert made[2] is not made[1]
    assert recent.size == 0


def test_what_is_kept_is_bounded() -> None:
    """However many controllers a tenant has."""
    recent = RecentDecisions()
    pods = [owned(number) for number in range(500)]
    for one in pods * 2:
        recent.decide(one, ONE, LARGEST_REVIEW - 1)

    assert MOST_BYTES * 0.9 < recent.size <= MOST_BYTES


def test_pods_that_are_alone_take_the_place_of_no_workload() -> None:
    """A workload that is seen again stays, however many pods of other owners come."""
    recent, workload = RecentDecisions(), owned(0)
    alone = [owned(number) for number in range(1, 400)]

    def decided_after(others: list[Pod]) -> DecidedPod:
        for one in others:
            recent.decide(one, ONE, SIZE)
        return recent.decide(workload, ONE, SIZE)

    first = decided_after([])
    again = decided_after(alone[:200])
    assert again is not first
    assert decided_after(alone[200:]) is again


def test_what_records_share_counts_before_it_is_there() -> None:
    """It is made after the decision was kept."""
    recent, one = RecentDecisions(), read(replica())
    for _ in range(2):
        recent.decide(one, ONE, SIZE)

    assert recent.size == ENTRY + 6 * SIZE + KEPT_END


@pytest.mark.parametrize(
    "make",
    [
        UNLIKE["two-tokens"],
        UNLIKE["mount-of-the-prefix"],
        UNLIKE["no-volume"],
        changed("spec.volumes", [{"name": "kube-api-access-abcdef"}]),
        changed("spec.volumes", [{"name": "kube-api-access-"}]),
        changed("spec.volumes", [{"name": "kube-api-access-abcde"}] * 2),
    ],
)
def test_a_pod_whose_token_is_not_sure_stays_as_it_is(make: Callable[[], Json]) -> None:
    """Two volumes must never become one, nor a mount name another volume."""
    one = read(make())

    assert without_drawn(one) is one
