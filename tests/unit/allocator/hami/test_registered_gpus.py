"""The register for HAMi's scheduler shows what it cannot count itself as taken."""

import json
from dataclasses import replace
from typing import Any

import pytest

from allocator.hami.node_marks import HamiMarks
from allocator.hami.registered_gpus import (
    hami_register_of,
    has_foreign_register,
    register_digest,
)
from allocator.ledger.ledger import Ledger
from allocator.model.request import Mode, Stage
from allocator.model.units import MiB
from tests.builders.gpunodes import entry, held, ledger, several
from tests.builders.model import A100_40, T4, gpu, mig_grant, node, nodes_of, soft_grant

NODE = nodes_of(2, T4)
FIRST = "GPU-n0-0"


def shown(found: Ledger, *counted: str) -> list[dict[str, Any]]:
    devices: list[dict[str, Any]] = json.loads(hami_register_of(found, counted))
    return devices


def test_pods_that_hami_counts_take_nothing_off() -> None:
    """Their lists say it already."""
    found = ledger(NODE, [entry("a", soft_grant(4000, 30, gpu=FIRST))])

    assert [(d["devmem"], d["count"], d["devcore"]) for d in shown(found, "a")] == [
        (15360, 10, 100),
        (15360, 10, 100),
    ]


def test_pods_that_hami_cannot_see_are_taken_off() -> None:
    """Memory, cores and a share each."""
    found = ledger(NODE, [entry("a", soft_grant(4000, 30, gpu=FIRST))])

    assert [(d["devmem"], d["count"], d["devcore"]) for d in shown(found)] == [
        (11360, 9, 70),
        (15360, 10, 100),
    ]


def test_what_runs_in_turn_is_taken_off_once() -> None:
    """An init container and the app after it need the larger of both."""
    grant = soft_grant(4000, 30, gpu=FIRST)
    found = ledger(NODE, [several("a", held(Stage.INIT, grant), held(Stage.APP, grant))])

    assert shown(found)[0]["devmem"] == 11360


def test_foreign_memory_is_taken_off() -> None:
    """What runs outside of any pod counts."""
    busy = replace(NODE, gpus=tuple(replace(g, foreign=MiB(360)) for g in NODE.gpus))

    assert [d["devmem"] for d in shown(ledger(busy))] == [15000, 15000]


def test_a_gpu_with_nothing_left_is_not_healthy() -> None:
    """HAMi reads 0 as a missing key, and a whole GPU of another leaves nothing."""
    found = ledger(NODE, [entry("a", soft_grant(15360, 100, gpu=FIRST))])

    full, free = shown(found)
    assert (full["health"], full["devmem"], full["devcore"]) == (False, 1, 0)
    assert free["health"]


def test_a_closed_node_stays_listed() -> None:
    """Its GPUs are not healthy, so HAMi gives none of them out, and keeps what it has counted."""
    found = replace(ledger(NODE), inventory="")

    assert [d["health"] for d in shown(found)] == [False, False]


def test_gpus_in_mode_mig_are_left_out() -> None:
    """HAMi would reserve instances that our agent never makes."""
    both = node(
        "n0", gpu(A100_40, mode=Mode.MIG, grants=[mig_grant("1g.5gb", 0)]), gpu(T4, index=1)
    )

    assert [d["id"] for d in shown(ledger(both))] == ["GPU-n0-1"]
    assert hami_register_of(ledger(node("n0", gpu(A100_40, mode=Mode.MIG))), ()) == ""


def test_a_register_of_ours_is_told_from_anothers() -> None:
    """By the digest beside it; without a register there is nobody."""
    text = hami_register_of(ledger(NODE), ())

    assert not has_foreign_register(HamiMarks())
    assert not has_foreign_register(HamiMarks(digest=register_digest(text)))
    assert not has_foreign_register(HamiMarks(register=text, digest=register_digest(text)))
    assert has_foreign_register(HamiMarks(register=text))
    assert has_foreign_register(HamiMarks(register=f"{text} ", digest=register_digest(text)))
    assert has_foreign_register(HamiMarks(register="\ud800", digest="x"))


def test_what_runs_without_an_entry_is_taken_off() -> None:
    """HAMi would give it out once more."""
    found = ledger(NODE)
    found = replace(found, unpromised=(entry("x", soft_grant(4000, 30, gpu=FIRST)),))

    assert [(d["devmem"], d["count"], d["devcore"]) for d in shown(found)] == [
        (11360, 9, 70),
        (15360, 10, 100),
    ]


@pytest.mark.parametrize(("memory", "cores"), [(1000, 100), (15360, 0)])
def test_a_gpu_without_one_of_the_two_is_not_healthy(memory: int, cores: int) -> None:
    """A whole GPU is nobody else's, and no memory means all of it to HAMi."""
    found = ledger(NODE, [entry("a", soft_grant(memory, cores, gpu=FIRST))])

    assert [d["health"] for d in shown(found)] == [False, True]


def test_a_gpu_that_fails_is_not_healthy() -> None:
    """HAMi gives out the others."""
    broken = replace(NODE, gpus=(replace(NODE.gpus[0], healthy=False), NODE.gpus[1]))

    assert [d["health"] for d in shown(ledger(broken))] == [False, True]


def test_no_more_shares_are_taken_off_than_there_are() -> None:
    """A negative number would spoil the register."""
    entries = [entry(f"p{i}", soft_grant(10, gpu=FIRST)) for i in range(11)]

    assert shown(ledger(NODE, entries))[0]["count"] == 0


def test_gpus_in_mode_mps_are_left_out() -> None:
    """HAMi's pods would get no daemon there."""
    both = node("n0", gpu(T4, mode=Mode.MPS), gpu(T4, index=1))

    assert [d["id"] for d in shown(ledger(both))] == ["GPU-n0-1"]
