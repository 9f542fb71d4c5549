"""A node that has room again is told to schedulers, for as long as some pod waits."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.core.ledger import Ledger
from allocator.core.podfacts import Seen
from allocator.shell.reconciler import Pods
from allocator.shell.waking import FREED_KEY, Waker
from kube.errors import UnreachableError
from tests.builders import nodes_of, soft_grant
from tests.gpunodes import entry, ledger
from tests.pods import NUMBER

SHARE = soft_grant(100, gpu="GPU-n0-0")
ONE = ledger(nodes_of(1), (entry("a", SHARE),))
TWO = ledger(nodes_of(1), (entry("a", SHARE), entry("b", SHARE)))
WAITING = Seen(uid="w", node="", deleting=False, over=False, extended=(NUMBER,))


@dataclass(slots=True)
class Api:
    woken: list[object] = field(default_factory=list)
    down: bool = False

    async def merge_patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        self.woken.append((path, changes))
        if self.down:
            raise UnreachableError("down", sent=True)
        return b"{}"


def woken(pictures: Sequence[Ledger | None], pod: Seen = WAITING, *, down: bool = False) -> int:
    """Return how often somebody was woken while the ledger of a node became one after another."""
    api, pods, now = Api(down=down), Pods(), list(pictures)
    pods.know({pod.uid: pod})
    waker = Waker(
        api,
        pods,
        ledgers=lambda: None if now[0] is None else {"n0": now[0]},
        vocabularies=lambda: VOCABULARIES,
    )

    async def all_of_them() -> None:
        while now:
            await waker.sweep()
            now.pop(0)

    asyncio.run(all_of_them())
    assert all(FREED_KEY in str(change) for change in api.woken)
    return len(api.woken)


@pytest.mark.parametrize(
    ("pictures", "times"),
    [
        pytest.param([TWO, ONE], 1, id="a-promise-went"),
        pytest.param([ONE, TWO], 0, id="a-promise-came"),
        pytest.param([replace(ONE, inventory="sha256:other"), ONE], 1, id="other-inventory"),
        pytest.param([replace(ONE, inventory=""), ONE], 1, id="accounted-for"),
        pytest.param([ONE, replace(ONE, inventory="")], 0, id="shut"),
        pytest.param([ONE, replace(ONE, resource_version="101")], 0, id="nothing-that-counts"),
        pytest.param([ONE], 0, id="first-picture"),
        pytest.param([TWO, None, ONE], 1, id="blind-in-between"),
    ],
)
def test_room_is_told(pictures: Sequence[Ledger | None], times: int) -> None:
    """Only more room, or other GPUs, is worth another try."""
    assert woken(pictures) == times


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(replace(WAITING, node="n1"), id="bound"),
        pytest.param(replace(WAITING, extended=("nvidia.com/gpu",)), id="asks-others"),
        pytest.param(replace(WAITING, deleting=True), id="on-its-way-out"),
    ],
)
def test_nobody_is_woken_for_nobody(pod: Seen) -> None:
    """Where no pod waits for a vGPU, no write is made."""
    assert woken([TWO, ONE], pod) == 0


def test_a_failed_call_ends_nothing() -> None:
    """The next room is told again."""
    assert woken([TWO, ONE, TWO, ONE], down=True) == 2
