"""Where a group goes: the closest domain that has room for all of it.

Room is counted in whole GPUs that are idle. Pods of other groups that still wait, and whose group
has begun in a domain, have room there reserved: whoever would take it waits. What is reserved is
derived from the pods that are there, never stored.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from allocator.groups.tree import Domain, Tier, Tree

MOST_GPUS_OF_NODE: Final = 64  # a group of more never fits one node


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNeed:
    """What of a group is placed, and what waits."""

    gpus: int  # of each of its pods
    waiting: int  # pods without a node
    placed: Mapping[str, int] = field(default_factory=dict)  # pods by node


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room that a group which has begun needs in its domain."""

    domain: Domain
    gpus: int  # of each pod
    pods: int


@dataclass(frozen=True, slots=True)
class GroupDomain:
    """Where a group may go: ``nodes`` take a pod of it without taking what is reserved."""

    domain: Domain
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """Why a group goes nowhere now, in numbers."""

    text: str


Idle = Callable[[str], int]  # the idle GPUs of a node by name, 0 where it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What a decision about a group rests on."""

    tree: Tree
    idle: Idle
    reservations: Sequence[Reservation] = ()  # of other groups

    def choose(
        self, need: GroupNeed, usable: Idle, *, among: Container[str] | None = None
    ) -> GroupDomain | GroupWaits:
        """Return where the group of *need* goes; *usable* counts the GPUs that suit its pods.

        The closest domain wins, then the one with the least room that is enough, then the first by
        name. Pods of the group that have a node keep the others near them. A scheduler may know
        nodes *among* which it has to be; it looks at a sample of many.
        """
        tier: Tier | None = None
        for domain in self._fitting(need, usable):
            if tier is not None and domain.tier != tier:
                break
            tier = domain.tier
            if among is None or any(name in among for name in domain.nodes):
                nodes = self._open_nodes(domain, need, usable)
                if nodes:
                    return GroupDomain(domain, nodes)
        return self._waits(need, usable)

    def takes(
        self, name: str, need: GroupNeed, usable: Idle, *, any_tier: bool = False
    ) -> GroupDomain | GroupWaits | None:
        """Say whether node *name* may take a pod of the group.

        A dragonfly around the node does if it has the room, and a switchbox if no dragonfly has it.
        With *any_tier* it does anyway, for schedulers that choose tiers themselves. ``None`` where
        only other nodes are in such a domain.
        """
        fitting = self._fitting(need, usable)
        best = next(fitting, None)
        if best is None:
            return self._waits(need, usable)
        widest = Tier.SWITCHBOX if any_tier else max(best.tier, Tier.DRAGONFLY)
        close = takewhile(lambda domain: domain.tier <= widest, fitting)
        for domain in (best, *close):
            if name in domain.nodes:
                nodes = self._open_nodes(domain, need, usable)
                if name in nodes:
                    return GroupDomain(domain, nodes)
        return None

    def spares(self, name: str, gpus: int) -> bool:
        """Say whether a pod of no group may take *gpus* idle GPUs of node *name*."""
        around = self._around((name,))
        return not around or self._leaves(around, {name: gpus})

    def _fitting(self, need: GroupNeed, usable: Idle) -> Iterator[Domain]:
        """Yield the domains with room for all that waits, the best first."""
        near = self._near(need, [*self._nodes_as_domains(need), *self._domains(need)])
        roomy = [
            (domain.tier, room, domain.name, domain)
            for domain in near
            if (room := self._slots(domain, need.gpus, usable)) >= need.waiting
        ]
        roomy.sort(key=lambda one: one[:3])
        for _, _, _, domain in roomy:
            if self._room(domain, need.gpus, usable) >= need.waiting:
                yield domain

    def _near(self, need: GroupNeed, domains: Sequence[Domain]) -> Sequence[Domain]:
        """Return those of *domains* that hold as many of the placed pods as any does."""
        if not need.placed:
            return domains
        held = [sum(need.placed.get(name, 0) for name in one.nodes) for one in domains]
        most = max(held, default=0)
        return [one for one, count in zip(domains, held, strict=True) if count == most]

    def _domains(self, need: GroupNeed) -> Sequence[Domain]:
        """Return the domains around placed pods, all where there are none in any."""
        around = {
            (one.tier, one.name): one
            for name in need.placed
            for one in self.tree.around.get(name, ())
        }
        return [one for _, one in sorted(around.items())] or self.tree.domains

    def _nodes_as_domains(self, need: GroupNeed) -> Iterator[Domain]:
        total = need.gpus * (need.waiting + sum(need.placed.values()))
        if total > MOST_GPUS_OF_NODE:
            return
        for name in need.placed or self.tree.around:
            if name in self.tree.around:
                yield Domain(name=name, tier=Tier.NODE, nodes=(name,))

    def _slots(self, domain: Domain, gpus: int, usable: Idle) -> int:
        """Return how many pods *domain* has room for, beside what is reserved in all of it."""
        slots = sum(usable(name) // gpus for name in domain.nodes)
        if not self.reservations:
            return slots
        nodes = set(domain.nodes)
        reserved = sum(
            one.pods * one.gpus for one in self.reservations if nodes.issuperset(one.domain.nodes)
        )
        return slots - reserved // gpus

    def _room(self, domain: Domain, gpus: int, usable: Idle) -> int:
        """Return how many pods *domain* has room for beside all that is reserved."""
        around = self._around(domain.nodes)
        if not around:
            return sum(usable(name) // gpus for name in domain.nodes)
        left, _ = self._after_reservations(around, {}, last=frozenset(domain.nodes))
        return sum(min(usable(name), left[name]) // gpus for name in domain.nodes)

    def _open_nodes(self, domain: Domain, need: GroupNeed, usable: Idle) -> frozenset[str]:
        """Return the nodes of *domain* with room for one pod that leaves room for all the others.

        Room for the rest of the group counts like that of others.
        """
        with_room = [name for name in domain.nodes if usable(name) >= need.gpus]
        around = self._around(domain.nodes)
        if not around:
            return frozenset(with_room)
        around.append(Reservation(domain, need.gpus, need.waiting - 1))
        # Nodes of one dragonfly with as many idle GPUs are alike, so few are really tried.
        spared: dict[tuple[str, int], bool] = {}
        for name in with_room:
            kind = self.tree.around[name][0].name, self.idle(name)
            if kind not in spared:
                spared[kind] = self._leaves(around, {name: need.gpus})
        return frozenset(
            name for name in with_room if spared[self.tree.around[name][0].name, self.idle(name)]
        )

    def _around(self, names: Sequence[str]) -> list[Reservation]:
        """Return the reservations that want some of the nodes *names*, and those beside them.

        A group of a switchbox needs other nodes where the dragonflies in it are reserved.
        """
        touching = self._touching(names)
        if not touching:
            return []
        widest = max((one.domain.nodes for one in touching), key=len)
        return touching if len(widest) <= len(names) else self._touching(widest)

    def _touching(self, names: Sequence[str]) -> list[Reservation]:
        nodes = set(names)
        return [one for one in self.reservations if not nodes.isdisjoint(one.domain.nodes)]

    def _leaves(self, around: Sequence[Reservation], taken: Mapping[str, int]) -> bool:
        """Say whether *around* find as much room without what is *taken* of nodes as with it."""
        _, before = self._after_reservations(around, {})
        _, after = self._after_reservations(around, taken)
        return after >= before

    def _after_reservations(
        self,
        around: Sequence[Reservation],
        taken: Mapping[str, int],
        *,
        last: frozenset[str] = frozenset(),
    ) -> tuple[dict[str, int], int]:
        """Return the idle GPUs that *around* leave by node, and how many of their pods fit.

        The smallest domains choose first. Pods take the fullest nodes that do, and those that are
        not in *last* rather than those that are.
        """
        names = {name for one in around for name in one.domain.nodes} | last
        left = {name: max(0, self.idle(name) - taken.get(name, 0)) for name in names}
        fitting = 0
        for one in sorted(around, key=lambda one: (len(one.domain.nodes), -one.gpus)):
            pods = one.pods
            for name in sorted(one.domain.nodes, key=lambda name: (name in last, left[name])):
                here = min(pods, left[name] // one.gpus)
                left[name] -= here * one.gpus
                pods -= here
            fitting += one.pods - pods
        return left, fitting

    def _waits(self, need: GroupNeed, usable: Idle) -> GroupWaits:
        """Say how much room the group needs, and how much the roomiest domain has."""
        near = self._near(need, self._domains(need))
        rooms = [(self._room(one, need.gpus, usable), one) for one in near]
        if not rooms:
            return GroupWaits("no node of its cluster is in a dragonfly or switchbox")
        room, domain = max(rooms, key=lambda one: (one[0], one[1].tier, one[1].name))
        placed = sum(need.placed.values())
        gpus = f"{need.waiting * need.gpus} GPUs for {need.waiting} pods of its group"
        begun = f", {placed} of which run already," if placed else ""
        return GroupWaits(
            f"needs {gpus}{begun} in one dragonfly or switchbox; "
            f"the most free and not reserved is {room * need.gpus}, in {domain}"
        )
