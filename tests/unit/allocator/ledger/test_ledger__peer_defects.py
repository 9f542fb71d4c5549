"""Defects of peers in keeping account, by their numbers, that must not be ours."""

import copy
from collections.abc import Mapping
from dataclasses import replace

import pytest

from allocator.ledger.assign import NoFit, PodClaim, assign
from allocator.ledger.commit import remove_entries, with_entry
from allocator.ledger.ledger import parse_ledger
from allocator.ledger.lifecycle import NodeIdentity
from allocator.ledger.reclaim import UNBOUND_AGE, ReclaimEvidence, is_reclaimable
from allocator.model.allocation import Assignment, ContainerGrants, Entry
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.choose import PlacementPolicy
from allocator.placement.fit import headroom
from tests.builders.gpunodes import NOON, entry, gpu_node, ledger, patched
from tests.builders.model import A100_40, T4, ask, gpu, mig_grant, nodes_of, pod, soft_grant

CUT = nodes_of(1, A100_40, mode=Mode.MIG)
SOFT = nodes_of(1, T4)


def wanted(uid: str, memory: int, **more: object) -> PodClaim:
    return replace(PodClaim(uid=uid, request=pod(ask(memory))), **more)  # type: ignore[arg-type]  # fields


def test_v1_a_place_is_taken_in_the_step_that_returns_it() -> None:
    """Seven pods that bind in one cycle get seven places, the eighth none."""
    node_ledger, places = ledger(CUT), set[int]()
    for number in range(7):
        uid = f"p{number}"
        got = assign(node_ledger, wanted(uid, 3000, gpus=("GPU-n0-0",)), policy=PlacementPolicy())
        assert isinstance(got, Assignment)
        (grant,) = got.containers[0].grants
        assert grant.placed is not None
        places.add(grant.placed.start)
        node_ledger = with_entry(node_ledger, entry(uid, grant))

    assert places == set(range(7))
    assert isinstance(assign(node_ledger, wanted("p7", 3000), policy=PlacementPolicy()), NoFit)


def test_v5_both_containers_on_one_gpu_are_counted_and_freed() -> None:
    """After a restart as before, and the pod goes as one."""
    both = Entry(
        namespace="team-a",
        pod="p",
        uid="p",
        since=NOON,
        containers=tuple(
            ContainerGrants(name=name, grants=(soft_grant(6000, gpu="GPU-n0-0"),))
            for name in ("a", "b")
        ),
    )
    node_ledger = ledger(SOFT, (both,))

    assert node_ledger.node.gpus[0].memory_promised == 12000
    assert isinstance(assign(node_ledger, wanted("next", 4000), policy=PlacementPolicy()), NoFit)

    left = patched(gpu_node(SOFT, (both,)), remove_entries(node_ledger, "p"))
    assert left["spec"]["entries"] == []


@pytest.mark.parametrize("node", [CUT, SOFT], ids=["mig", "soft"])
def test_v6_what_fails_in_part_leaves_nothing(node: Node) -> None:
    """A pod that asks for two GPUs where there is one changes no account, however deep."""
    node_ledger = ledger(node)
    before = copy.deepcopy(
        node_ledger
    )  # to read it anew would be to be given the same parts of a cache

    refused = assign(
        node_ledger, PodClaim(uid="p", request=pod(ask(3000, count=2))), policy=PlacementPolicy()
    )

    assert isinstance(refused, NoFit)
    assert node_ledger == before


def test_g1_more_in_use_than_there_is_leaves_nothing_free() -> None:
    """Free memory went below nothing and came out as more than any GPU has."""
    full = replace(gpu(T4, grants=[soft_grant(15000)]), foreign=MiB(10_000), uuid="GPU-n0-0")
    node = replace(SOFT, gpus=(full,))
    node_ledger = ledger(node, (entry("a", soft_grant(15000, gpu="GPU-n0-0")),))

    assert headroom(full).memory < 0
    assert isinstance(assign(node_ledger, wanted("p", 1), policy=PlacementPolicy()), NoFit)


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"held": ["gone"]}, id="held"),
        pytest.param({"observedGeneration": 6}, id="not-looked-at-since"),
        pytest.param({"held": ["gone"], "observedGeneration": 6}, id="both"),
    ],
)
def test_k2_a_promise_in_use_is_never_given_again(status: Mapping[str, object]) -> None:
    """A pod that is over keeps its place until the agent says otherwise, however late that is."""
    held = entry("gone", mig_grant("7g.40gb", 0, gpu="GPU-n0-0"))
    machine = NodeIdentity(name="n0", uid="", boot="boot-1")
    late = ReclaimEvidence(pod=None, node=machine, now=NOON + 100 * UNBOUND_AGE, agent_serves=True)
    in_use, let_go = ledger(CUT, (held,), **status), ledger(CUT, (held,), held=[])

    assert not is_reclaimable(in_use, held, late)
    assert isinstance(assign(in_use, wanted("p", 3000), policy=PlacementPolicy()), NoFit)

    assert is_reclaimable(let_go, held, late)
    assert isinstance(assign(let_go, wanted("p", 3000), policy=PlacementPolicy()), NoFit)
    left = parse_ledger(patched(gpu_node(CUT, (held,)), remove_entries(let_go, "gone")))
    assert isinstance(assign(left, wanted("p", 3000), policy=PlacementPolicy()), Assignment)


def test_d2_two_gpus_are_two() -> None:
    """A request for two of a kind became one."""
    two = nodes_of(2, A100_40, mode=Mode.MIG)

    got = assign(
        ledger(two), PodClaim(uid="p", request=pod(ask(3000, count=2))), policy=PlacementPolicy()
    )

    assert isinstance(got, Assignment)
    assert {grant.gpu for grant in got.containers[0].grants} == {"GPU-n0-0", "GPU-n0-1"}
