"""Pods as a scheduler sends them: what admission left to decide is still to be decided."""

from datetime import UTC, datetime

import orjson
import pytest

from allocator.catalog.keys import GROUP_SIZE_KEY
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.config.settings import DEFAULTS
from allocator.extender.pod import SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.model.request import Mode
from allocator.request.pod_fields import decode_watched
from tests.builders.model import A30, T4, node, nodes_of, snapshot
from tests.builders.pods import MEMORY, MODE, NUMBER, Json, admitted, container, pod, received
from webhook.admission.context import AdmissionContext
from webhook.binding.scheduler_pod import member_of, unbound_pod, watched_pod
from webhook.review.pod_schema import Metadata, OwnerReference

AROUND = AdmissionContext(
    settings=DEFAULTS,
    snapshot=snapshot(
        nodes_of(1, T4, name="soft"), nodes_of(1, A30, mode=Mode.MIG, name="hard"), node("none")
    ),
    host_paths=True,
)


def asked(written: Json) -> PodClaim:
    found = unbound_pod(orjson.dumps(admitted(received(written), AROUND)), VOCABULARIES)
    assert isinstance(found.claim, PodClaim)
    return found.claim


def as_watched(found: Json) -> SchedulingPod:
    """Return the pod that a watch sends."""
    raw = orjson.dumps(found)
    return watched_pod(decode_watched(raw), lambda: raw, VOCABULARIES)


def test_a_named_mode_is_final() -> None:
    """It is the user's word."""
    wanted = asked(pod(annotations={MODE: "mig"}))

    assert (wanted.mode, wanted.request.named_mode) == (Mode.MIG, Mode.MIG)


def test_the_best_mode_may_be_revised() -> None:
    """What admission found best stands on the pod, and names no mode."""
    wanted = asked(pod())

    assert (wanted.mode, wanted.request.named_mode) == (None, None)


@pytest.mark.parametrize(
    ("nominated", "node_name", "read"),
    [
        pytest.param("a", "", True, id="nominee"),
        pytest.param("", "", False, id="waits"),
        pytest.param("a", "a", False, id="bound"),
    ],
)
def test_only_nominees_of_a_watch_are_read(nominated: str, node_name: str, *, read: bool) -> None:
    """Of all other pods no more is kept than who they are and how they rank."""
    found = received(pod(container(limits={NUMBER: 1, MEMORY: 3000})))
    found["metadata"] |= {"uid": "u", "creationTimestamp": "2026-11-21T12:00:00Z"}
    found["spec"] |= {"priority": 7} | ({"nodeName": node_name} if node_name else {})
    found["status"] = {"phase": "Pending", "nominatedNodeName": nominated}

    seen = as_watched(found)

    assert (seen.uid, seen.priority, seen.created) == ("u", 7, "2026-11-21T12:00:00Z")
    assert (seen.node, seen.nominated) == (node_name, nominated)
    assert (seen.claim is not None) is read


@pytest.mark.parametrize(
    ("hint", "hinted"),
    [pytest.param("a", True, id="ours"), pytest.param("b", False, id="the-schedulers")],
)
def test_our_own_hints_are_known(hint: str, *, hinted: bool) -> None:
    """Whoever was nominated by a scheduler since waits for room there."""
    found = received(pod(container(limits={NUMBER: 1, MEMORY: 3000})))
    found["metadata"] |= {"uid": "u", "annotations": {"vgpu-admission.io/hint": hint}}
    found["status"] = {"nominatedNodeName": "a"}

    assert as_watched(found).hinted is hinted


@pytest.mark.parametrize(
    ("written", "leaves"),
    [
        pytest.param(None, None, id="stays"),
        pytest.param("2026-11-21T12:00:30Z", datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC), id="z"),
        pytest.param("11500-01-01T00:00:00Z", None, id="five-digits"),
        pytest.param("2026-11-21", None, id="no-time"),
    ],
)
def test_when_a_deleted_pod_leaves(written: str | None, leaves: datetime | None) -> None:
    """A grace is a tenant's word, and may be longer than there are years to write; it is read."""
    found = received(pod()) | {"metadata": {"uid": "u", "deletionTimestamp": written}}

    seen = as_watched(found)

    assert (seen.deleting, seen.deadline) == (written is not None, leaves)


def test_a_pod_says_little_and_is_read_all_the_same() -> None:
    """Fields that may be missing or null are those of a pod like any other."""
    written = received(pod(container()))
    written["metadata"] |= {"uid": "u", "name": "p", "creationTimestamp": None}
    written["spec"]["priority"] = None

    found = unbound_pod(orjson.dumps(written), VOCABULARIES)

    assert (found.claim, found.member) == (None, None)
    assert (found.priority, found.created, found.deleting) == (0, "", False)


def test_a_pod_that_waits_is_a_member_of_its_job() -> None:
    """By itself, because no watch may have told of it yet."""
    owner = {"kind": "Job", "name": "train", "uid": "owner-1", "controller": True}
    written = admitted(received(pod(annotations={GROUP_SIZE_KEY: "16"})), AROUND)
    written["metadata"] |= {"uid": "u", "name": "p", "ownerReferences": [owner]}

    found = unbound_pod(orjson.dumps(written), VOCABULARIES)

    assert found.member is not None
    assert (found.member.uid, found.member.name, found.member.size) == ("u", "p", 16)
    assert found.member.job.endswith("/owner owner-1")
    del written["metadata"]["ownerReferences"]
    assert unbound_pod(orjson.dumps(written), VOCABULARIES).member is None


def test_a_pod_of_a_template_has_no_name_yet() -> None:
    """As it comes to admission."""
    owner = OwnerReference(kind="Job", name="train", uid="owner-1", controller=True)
    found = member_of(Metadata(owner_references=(owner,)), namespace="team-a")

    assert found is not None
    assert (found.uid, found.name, found.size) == ("", "", 0)
