"""Contests: whether gangs wait for what another one holds, judged by the code that commits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from allocator.core.choose import Terms, fitting, in_mode
from allocator.core.commitment import Wanted
from allocator.core.gangs import Gang
from allocator.core.index import Index
from allocator.core.podfacts import Seen
from allocator.model.gpu import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """All that is held, and what is wanted beside it.

    ``wanted`` returns what a pod that waits asks for, ``None`` where that is not known. ``terms``
    are those of a namespace.
    """

    index: Index
    wanted: Callable[[Seen], Wanted | None]
    terms: Callable[[str], Terms]

    def helps(self, younger: Gang, older: Sequence[Gang]) -> bool:
        """Say whether a pod that one of *older* waits for finds room once *younger* lets go.

        Only where *younger* has something, and only if the pod has no room there already.
        """
        there = list(self._opened(younger))
        return any(
            self._fits(after, wanted, terms) and not self._fits(before, wanted, terms)
            for wanted, terms in self._waiting(older)
            for before, after in there
        )

    def _opened(self, gang: Gang) -> Iterator[tuple[Node, Node]]:
        """Yield each node that takes pods and has some of *gang*, with them and without."""
        holding = gang.members.holding
        for name in sorted({pod.node for pod in holding}):
            site = self.index.sites.get(name)
            after = self.index.node(name, without=[pod.uid for pod in holding])
            if site is not None and after is not None and not site.closed:
                yield site.node, after

    def _waiting(self, gangs: Sequence[Gang]) -> list[tuple[Wanted, Terms]]:
        """Return what is waited for, once where members are alike, as they mostly are."""
        found: list[tuple[Wanted, Terms]] = []
        known = []
        for gang in gangs:
            for pod in gang.members.waiting:
                wanted = self.wanted(pod)
                if wanted is None:
                    continue
                alike = wanted.request, wanted.mode, pod.namespace
                if alike not in known:
                    known.append(alike)
                    found.append((wanted, self.terms(pod.namespace)))
        return found

    def _fits(self, node: Node, wanted: Wanted, terms: Terms) -> bool:
        request = in_mode(wanted.request, wanted.mode)
        demand = self.index.snapshot.demand
        return fitting(node, request, terms=terms, demand=demand) is not None
