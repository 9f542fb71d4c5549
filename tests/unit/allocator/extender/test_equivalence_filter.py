"""Judges are remembered: pods of a burst ask alike, and what was said of a standing holds."""

from dataclasses import replace

import pytest

from allocator.config.settings import Prefer
from allocator.extender.equivalence_filter import MOST_FILTERS, MOST_REUSES, ClassFilterCache
from allocator.extender.index import IndexBuilder
from allocator.extender.reasons import NO_INVENTORY
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.choose import PlacementPolicy
from tests.builders.model import A100_40, ask, gpu, mig_grant, node, pod

POLICY = PlacementPolicy()
REQUEST = pod(ask(4000))


def test_who_asks_alike_has_the_same_judge() -> None:
    """Whatever was asked in between."""
    judges = ClassFilterCache()
    first = judges.filter_for(REQUEST, POLICY, NOTHING_LEARNED)

    judges.filter_for(pod(ask(5000)), POLICY, NOTHING_LEARNED)

    assert judges.filter_for(pod(ask(4000)), PlacementPolicy(), NOTHING_LEARNED) is first


@pytest.mark.parametrize(
    ("policy", "demand", "unknown"),
    [
        pytest.param(replace(POLICY, prefer=Prefer.ISOLATION), NOTHING_LEARNED, None, id="policy"),
        pytest.param(POLICY, Demand(), None, id="demand"),
        pytest.param(POLICY, NOTHING_LEARNED, NO_INVENTORY, id="unknown"),
    ],
)
def test_what_else_a_judgement_rests_on_has_its_own(
    policy: PlacementPolicy, demand: Demand, unknown: object
) -> None:
    """Nothing that was said under another policy is repeated."""
    judges = ClassFilterCache()
    first = judges.filter_for(REQUEST, POLICY, NOTHING_LEARNED)

    assert judges.filter_for(REQUEST, policy, demand, unknown=unknown) is not first  # type: ignore[arg-type]


def test_only_so_many_are_remembered_for_so_long() -> None:
    """They hold on to what they have judged."""
    judges = ClassFilterCache()
    first = judges.filter_for(REQUEST, POLICY, NOTHING_LEARNED)
    for _ in range(MOST_REUSES):
        assert judges.filter_for(REQUEST, POLICY, NOTHING_LEARNED) is first
    second = judges.filter_for(REQUEST, POLICY, NOTHING_LEARNED)
    assert second is not first

    for memory in range(MOST_FILTERS):
        judges.filter_for(pod(ask(1000 + memory)), POLICY, NOTHING_LEARNED)
    assert judges.filter_for(REQUEST, POLICY, NOTHING_LEARNED) is not second


def test_a_search_given_up_is_not_repeated_to_the_next() -> None:
    """Each question may search anew; what was not looked at is no answer."""
    judges = ClassFilterCache()
    both = pod(ask(18000, name="a"), ask(18000, name="b"))
    first = judges.filter_for(both, POLICY, NOTHING_LEARNED)
    indexer = IndexBuilder()
    for number in range(64):  # no two alike, and one instance for both
        cut = gpu(A100_40, mode=Mode.MIG, grants=[mig_grant("1g.5gb", 0)])
        odd = replace(cut, memory=MiB(cut.memory - number))
        indexer.put(node(f"n-{number}", odd))
    for standing in indexer.index(version="1", complete=True).node_classes.values():
        first.failure_reason(standing)

    assert first.gave_up_search
    assert judges.filter_for(both, POLICY, NOTHING_LEARNED) is not first
