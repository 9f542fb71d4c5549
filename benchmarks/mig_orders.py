"""How many arrival orders a policy places completely on one empty GPU.

Every multiset of instances that fits an A100 is offered in each of its distinct orders, to a
policy that has seen nothing yet. Nothing leaves, so a bad first place is never mended.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from allocator.model.board import Profile
from benchmarks.baselines import hami
from benchmarks.baselines.greedy import Greedy
from benchmarks.baselines.scores import capacity_loss, lowest_start, reach
from benchmarks.baselines.volcano import StickyGroup
from benchmarks.mig import A100, Ours, Policy
from benchmarks.report import Bar, conclude, parser, table

Order = tuple[Profile, ...]
Contender = Callable[[], Policy]

DOUBLE_MEMORY: Final = "1g.10gb"
LIMITS: Final = MappingProxyType({"a100_orders": 99, "a100_rev2_orders": 393})


@dataclass(frozen=True, slots=True)
class Score:
    """Orders placed in full, and multisets of which every order was."""

    orders: int
    sets: int


def main(arguments: Sequence[str]) -> int:
    """Print both tables and judge ours; return the exit code."""
    options = parser("Count the arrival orders that fit completely on one empty A100.").parse_args(
        arguments
    )
    file: Path | None = options.json
    offers = {"a100_orders": A100.plain, "a100_rev2_orders": _with_double_memory()}
    figures = {name: scores(profiles) for name, profiles in offers.items()}
    for name, by_policy in figures.items():
        print(_render(name, offers[name], by_policy))
    bars = [
        Bar(name=name, value=figures[name]["ours"].orders, limit=limit)
        for name, limit in LIMITS.items()
    ]
    plain = {
        name: {policy: score.orders for policy, score in by_policy.items()}
        for name, by_policy in figures.items()
    }
    return conclude(bars, plain, file)


def _with_double_memory() -> tuple[Profile, ...]:
    return tuple(p for p in A100.profiles if p in A100.plain or p.name == DOUBLE_MEMORY)


def contenders(profiles: tuple[Profile, ...]) -> Mapping[str, Contender]:
    """Return every policy by name, each to be made afresh for each order."""
    alike = {profile.name: 1 for profile in profiles}
    ranks = {
        "lowest start": lowest_start,
        "HAMi 2.10": hami.release_2_10,
        "HAMi #2855": hami.regions(A100),
        "pure reach": reach(profiles),
        "pure capacity loss": capacity_loss(profiles, alike),
    }
    return {
        "ours": lambda: Ours(A100, profiles),
        "sticky group": lambda: StickyGroup(A100),
        **{name: _always(Greedy(rank)) for name, rank in ranks.items()},
    }


def _always(policy: Policy) -> Contender:
    return lambda: policy


def scores(profiles: tuple[Profile, ...]) -> Mapping[str, Score]:
    """Return what every contender scores when *profiles* are given out."""
    offered = tuple(orders(profiles))
    return {name: score(make, offered) for name, make in contenders(profiles).items()}


def orders(profiles: Sequence[Profile]) -> Iterator[Order]:
    """Yield every sequence of *profiles* for which an empty board has room."""
    return _extend((), frozenset({0}), profiles)


def _extend(order: Order, masks: frozenset[int], profiles: Sequence[Profile]) -> Iterator[Order]:
    for profile in profiles:
        spots = [profile.mask(start) for start in profile.starts]
        after = frozenset(mask | spot for mask in masks for spot in spots if not mask & spot)
        if after:
            yield (*order, profile)
            yield from _extend((*order, profile), after, profiles)


def score(make: Contender, offered: Sequence[Order]) -> Score:
    """Offer each order to a fresh policy on one empty GPU."""
    missed = Counter(_multiset(order) for order in offered if not places_all(make(), order))
    sets = {_multiset(order) for order in offered}
    return Score(len(offered) - missed.total(), len(sets) - len(missed))


def places_all(policy: Policy, order: Order) -> bool:
    """Say whether *policy* finds room for all of *order*."""
    mask = 0
    for profile in order:
        choice = policy([mask], profile)
        if choice is None:
            return False
        mask |= choice.slots
    return True


def _multiset(order: Order) -> tuple[str, ...]:
    return tuple(sorted(profile.name for profile in order))


def best_order_count(profiles: Sequence[Profile]) -> int:
    """Return how many orders the best policy without foresight can place."""

    @cache
    def best(mask: int) -> int:
        free = (
            [best(mask | p.mask(s)) for s in p.starts if not p.mask(s) & mask] for p in profiles
        )
        return sum(1 + max(values) for values in free if values)

    return best(0)


def _render(name: str, profiles: tuple[Profile, ...], by_policy: Mapping[str, Score]) -> str:
    offered = tuple(orders(profiles))
    sets = len({_multiset(order) for order in offered})
    header = (name, f"of {len(offered)} orders", f"of {sets} sets in every order")
    rows = [(policy, score.orders, score.sets) for policy, score in by_policy.items()]
    return (
        table(header, [*rows, ("upper bound of any policy", best_order_count(profiles), "")]) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
