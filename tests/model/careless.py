"""Implementations that get one thing wrong: each must be caught by the invariant that it breaks."""

from collections.abc import Mapping
from dataclasses import replace

from allocator.core.ledger import Ledger
from allocator.core.podfacts import Seen
from allocator.core.upkeep import Machine
from allocator.shell.reconciler import Pods
from allocator.shell.upkeep import Upkeep
from webhook.core.binding import Wish, conflict
from webhook.core.mutate import Surroundings
from webhook.core.served import Outcome
from webhook.shell.binding import Binder
from webhook.shell.desks import Desks
from webhook.shell.late import LateCommits


class Undead(Pods):
    """Takes no pod for one that has ended."""

    def know(self, pods: Mapping[str, Seen]) -> None:
        super().know({uid: replace(pod, over=False) for uid, pod in pods.items()})


class Trusting(LateCommits):
    """Looks at no pod that was told nothing, as if nobody could be bound past the hook."""

    def _unpromised(self) -> list[tuple[Seen, str]]:
        return [place for place in super()._unpromised() if place[0].told]


class Unmoved(Upkeep):
    """Does not see that a node was booted."""

    def _due(self, machines: Mapping[str, Machine], ledgers: Mapping[str, Ledger]) -> list[str]:
        return super()._due({n: replace(m, boot="") for n, m in machines.items()}, ledgers)


class _Hurried(Desks):
    async def ledger(self, node: str) -> Ledger | None:
        return self.ledgers(node) or await super().ledger(node)


class Rash(Binder):
    """Refuses on what a cache says of a ledger."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._desks = _Hurried(
            calls=self.calls,
            ledgers=self.ledgers,
            stands=self.stands,
            clock=self.clock,
            patience=self.patience,
        )


class Moody(Binder):
    """Refuses about every second time."""

    async def promise(self, wish: Wish, around: Surroundings) -> Outcome:
        if self.clock.random() < 0.5:
            return conflict("not now")
        return await super().promise(wish, around)
