"""Two owners of a node are told on the Node, once they have lasted."""

import asyncio

from allocator.hami.ownership_controller import OwnershipController
from kube.events import Event
from tests.fakes.kube_clock import FakeClock

NODE = ("n0", "uid-n0")


class Site:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.warnings: dict[tuple[str, str], str] = {}
        self.events: list[Event] = []
        self.controller = OwnershipController(
            lambda: self.warnings, record=self.events.append, clock=self.clock.clock()
        )

    def sweep(self, *, after: float = 0) -> list[str]:
        """Sweep, and return what is told about nodes from then on."""
        self.clock.now += after
        self.events.clear()
        asyncio.run(self.controller.sweep())
        return [f"{event.regarding.name}: {event.note}" for event in self.events]


def test_what_lasts_is_told() -> None:
    """After half a minute, with each sweep, which the recorder counts as one Event."""
    site = Site()
    site.warnings[NODE] = "two"

    assert site.sweep() == []
    assert site.sweep(after=29) == []
    assert site.sweep(after=1) == ["n0: two"]
    assert site.events[0].reason == "VgpuTwoOwners"
    assert site.events[0].regarding.uid == "uid-n0"
    assert site.sweep(after=10) == ["n0: two"]


def test_what_passes_is_not_told() -> None:
    """A move from one to the other begins anew."""
    site = Site()
    site.warnings[NODE] = "two"
    site.sweep()
    site.warnings.clear()
    site.sweep(after=20)
    site.warnings[NODE] = "two"

    assert site.sweep(after=20) == []
    assert site.sweep(after=29) == []
    assert site.sweep(after=1) == ["n0: two"]
