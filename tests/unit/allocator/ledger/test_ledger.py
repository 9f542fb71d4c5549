"""A patch of the ledger adds or removes one promise, on the version it was decided on."""

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import jsonpatch
import pytest

from allocator.ledger.commit import Operation, commit_all, remove_entries, with_entry
from allocator.ledger.ledger import Ledger, describes_node, node_for, parse_ledger
from allocator.model.allocation import Entry
from allocator.model.request import Mode
from tests.builders.gpunodes import NOON, Json, entry, gpu_node, patched
from tests.builders.model import gpu, mig_grant, node, soft_grant

SLICE = mig_grant("1g.5gb", 0, gpu="GPU-n0-0")
OTHER = mig_grant("1g.5gb", 6, gpu="GPU-n0-0")
NODE = node("n0", gpu(mode=Mode.MIG))
STORED = gpu_node(NODE, (entry("a", SLICE),))


def commit(ledger: Ledger, promise: Entry) -> tuple[Operation, ...]:
    return commit_all(ledger, (promise,))


def uids(stored: Json) -> list[str]:
    return [one["pod"]["uid"] for one in stored["spec"]["entries"]]


def test_a_promise_is_appended() -> None:
    """A new pod's entry is read back as it was decided, beside those that were there."""
    after = parse_ledger(patched(STORED, commit(parse_ledger(STORED), entry("b", OTHER))))

    assert after.entries == (entry("a", SLICE), entry("b", OTHER))
    assert after.generation == 8


def test_a_first_promise_makes_the_list() -> None:
    """A GPUNode whose spec is empty takes an entry too."""
    stored = {**STORED, "spec": {}}

    assert uids(patched(stored, commit(parse_ledger(stored), entry("b", OTHER)))) == ["b"]


def test_a_pod_has_one_entry() -> None:
    """Committing again replaces what the pod had, and renews its time."""
    later = NOON + timedelta(minutes=1)
    again = entry("a", OTHER, since=later)

    after = parse_ledger(patched(STORED, commit(parse_ledger(STORED), again)))

    assert after.entries == (again,)


def test_doubled_entries_become_one() -> None:
    """Where a pod stands twice in the list, its first place is kept and the others go."""
    twice = gpu_node(NODE, (entry("a", SLICE), entry("c", OTHER), entry("a", OTHER)))

    after = patched(twice, commit(parse_ledger(twice), entry("a", SLICE)))

    assert uids(after) == ["a", "c"]


def test_fields_of_a_newer_replica_stay() -> None:
    """What this version does not know survives its writes: in the object and in entries."""
    newer = copy.deepcopy(STORED)
    newer["spec"]["budget"] = 3
    newer["spec"]["entries"][0]["priority"] = 9

    after = patched(newer, commit_all(parse_ledger(newer), (entry("a", OTHER), entry("b", SLICE))))

    assert after["spec"]["budget"] == 3
    assert after["spec"]["entries"][0]["priority"] == 9


def moved(change: Callable[[Json], None]) -> Json:
    document = copy.deepcopy(STORED)
    change(document)
    return document


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: s["metadata"].update(generation=8), id="generation"),
        pytest.param(lambda s: s["metadata"].update(uid="made-anew"), id="uid"),
        pytest.param(lambda s: s["status"].update(inventory="sha256:other"), id="inventory"),
        pytest.param(lambda s: s["status"].pop("inventory"), id="no-inventory"),
    ],
)
def test_a_commit_fails_on_another_version(change: Callable[[Json], None]) -> None:
    """Nothing is promised on promises or GPUs that are not those that were looked at."""
    ops = commit(parse_ledger(STORED), entry("b", OTHER))

    with pytest.raises(jsonpatch.JsonPatchException):
        patched(moved(change), ops)


def test_an_agents_write_does_not_disturb_a_commit() -> None:
    """What an agent reports beside the inventory changes neither generation nor digest."""
    reported = moved(lambda s: s["status"].update(held=["a"], observedGeneration=7))
    reported["metadata"]["resourceVersion"] = "101"

    assert uids(patched(reported, commit(parse_ledger(STORED), entry("b", OTHER)))) == ["a", "b"]


def test_a_promise_that_may_be_held_by_now_is_not_exchanged() -> None:
    """A pod's own entry may be renewed over an agent's write, and changed only where none came."""
    reported = moved(lambda s: s["metadata"].update(resourceVersion="101"))
    renewed = entry("a", SLICE, since=NOON + timedelta(minutes=1))

    assert uids(patched(reported, commit(parse_ledger(STORED), renewed))) == ["a"]
    with pytest.raises(jsonpatch.JsonPatchException):
        patched(reported, commit(parse_ledger(STORED), entry("a", OTHER)))


def test_a_removal_fails_where_anything_moved() -> None:
    """An entry goes only from the very version that was read."""
    ops = remove_entries(parse_ledger(STORED), "a")
    moved_on = moved(lambda s: s["metadata"].update(resourceVersion="101"))

    assert uids(patched(STORED, ops)) == []
    with pytest.raises(jsonpatch.JsonPatchException):
        patched(moved_on, ops)


def test_nothing_is_removed_of_a_stranger() -> None:
    """A pod without entry needs no patch."""
    assert remove_entries(parse_ledger(STORED), "z") == ()


def test_an_own_promise_counts_as_free() -> None:
    """A pod that comes again finds the room that it holds already, and no other pod does."""
    node_ledger = parse_ledger(STORED)

    assert node_for(node_ledger, "a").gpus[0].grants == ()
    assert node_for(node_ledger, "b").gpus[0].grants == (SLICE,)


def test_a_promise_about_to_be_made_is_seen() -> None:
    """Of two pods in one patch the second sees what the first one gets."""
    node_ledger = with_entry(parse_ledger(STORED), entry("b", OTHER))

    assert node_for(node_ledger, "c").gpus[0].grants == (SLICE, OTHER)


def test_several_pods_share_a_patch() -> None:
    """Entries of different pods are committed together."""
    entries = (entry("a", SLICE, since=NOON), entry("b", OTHER), entry("c", OTHER))

    assert uids(patched(STORED, commit_all(parse_ledger(STORED), entries))) == ["a", "b", "c"]


def test_an_unreadable_entry_keeps_its_place() -> None:
    """A damaged neighbour is neither moved nor dropped."""
    damaged = copy.deepcopy(STORED)
    damaged["spec"]["entries"].insert(0, {"pod": "?"})

    after = patched(damaged, commit(parse_ledger(damaged), entry("a", OTHER)))

    assert after["spec"]["entries"][0] == {"pod": "?"}
    assert uids({"spec": {"entries": after["spec"]["entries"][1:]}}) == ["a"]


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        pytest.param(moved(lambda s: s.pop("status")), "not reported its GPUs", id="no-status"),
        pytest.param(
            moved(lambda s: s["status"].pop("inventory")),
            "starting, stopping or being replaced",
            id="no-inventory",
        ),
        pytest.param(
            moved(lambda s: s["status"].update(gpus=[])), "not reported its GPUs", id="no-gpus"
        ),
        pytest.param(
            moved(lambda s: s["metadata"].update(deletionTimestamp="2026-11-21T12:00:00Z")),
            "being deleted",
            id="deleting",
        ),
    ],
)
def test_a_closed_ledger_says_why(stored: Json, why: str) -> None:
    """Without inventory, or on its way out, a GPUNode takes no promise."""
    assert why in parse_ledger(stored).closed


def test_an_open_ledger_is_not_closed() -> None:
    """A node with GPUs and a digest of them takes promises, whatever their mode."""
    soft = node("n0", replace(gpu(), grants=(soft_grant(1000),)))

    assert parse_ledger(gpu_node(soft)).closed == ""


def test_what_is_in_use_without_an_entry_is_in_the_way() -> None:
    """The agent found it: others are placed beside it, its own pod on it, and it stays legible."""
    stored = gpu_node(NODE, unpromised=gpu_node(NODE, (entry("a", SLICE),))["spec"]["entries"])

    node_ledger = parse_ledger(stored)

    assert node_ledger.unpromised == (entry("a", SLICE),)
    assert node_for(node_ledger, "b").gpus[0].taken_slots == 0b1
    assert node_for(node_ledger, "a").gpus[0].taken_slots == 0
    assert node_for(with_entry(node_ledger, entry("a", SLICE)), "b").gpus[0].taken_slots == 0b1


def test_an_entry_takes_the_place_of_what_was_unpromised() -> None:
    """An agent that is behind does not make its pod count twice."""
    unpromised = gpu_node(NODE, (entry("a", SLICE),))["spec"]["entries"]

    node_ledger = parse_ledger(gpu_node(NODE, (entry("a", SLICE),), unpromised=unpromised))

    assert (node_ledger.unpromised, len(node_ledger.node.gpus[0].grants)) == ((), 1)


@pytest.mark.parametrize(
    ("node_uid", "boot", "same"),
    [
        pytest.param("u", "boot-1", True, id="as-it-was"),
        pytest.param("v", "boot-1", False, id="joined-anew"),
        pytest.param("u", "boot-2", False, id="rebooted"),
        pytest.param("", "", True, id="unknown"),
    ],
)
def test_a_status_belongs_to_one_life_of_a_node(node_uid: str, boot: str, *, same: bool) -> None:
    """What either side does not say is not compared."""
    assert (
        describes_node(parse_ledger(gpu_node(NODE, nodeUID="u")), node_uid=node_uid, boot=boot)
        is same
    )
    assert describes_node(parse_ledger(gpu_node(NODE)), node_uid="any", boot="")
