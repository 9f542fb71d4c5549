"""A node that has room again is told to schedulers, for as long as some pod waits."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Unpack

import pytest

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.pods import Pods
from allocator.controllers.requeue import FREED_KEY, RequeueController
from allocator.ledger.ledger import Ledger
from allocator.request.pod_summary import PodSummary
from kube.client import CallOptions
from kube.errors import KubeError, NotFoundError, UnreachableError
from tests.builders.gpunodes import entry, ledger
from tests.builders.model import nodes_of, soft_grant
from tests.builders.pods import NUMBER
from tests.builders.summaries import replace_pods
from tests.fakes.api_client import FakeApiClient
from tests.fakes.kube_clock import FakeClock

SHARE = soft_grant(100, gpu="GPU-n0-0")
ONE = ledger(nodes_of(1), (entry("a", SHARE),))
TWO = ledger(nodes_of(1), (entry("a", SHARE), entry("b", SHARE)))
WAITING = PodSummary(uid="w", node="", deleting=False, over=False, extended=(NUMBER,))


Picture = Ledger | None


@dataclass(slots=True)
class Api(FakeApiClient):
    woken: list[tuple[str, str]] = field(default_factory=list)
    down: KubeError | None = None

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **_: Unpack[CallOptions]
    ) -> bytes:
        self.woken.append((path, str(changes)))
        if self.down is not None:
            raise self.down
        return b"{}"


@dataclass(slots=True)
class World:
    """One node whose ledger becomes one after another, and a leader of some term."""

    api: Api = field(default_factory=Api)
    pod: PodSummary = WAITING
    term: int = 1
    now: Picture = None
    time: FakeClock = field(default_factory=FakeClock)
    waker: RequeueController = field(init=False)

    def __post_init__(self) -> None:
        pods = Pods()
        replace_pods(pods, {self.pod.uid: self.pod})
        self.waker = RequeueController(
            self.api,
            pods,
            ledgers=lambda: None if self.now is None else {"n0": self.now},
            vocabularies=lambda: VOCABULARIES,
            clock=self.time.clock(),
        )

    def woken(self, *pictures: Picture) -> int:
        """Return how often somebody was woken while the ledger became one after another."""
        before = len(self.api.woken)
        for self.now in pictures:
            asyncio.run(self.waker.sweep(self.term))
        assert all(FREED_KEY in change for _, change in self.api.woken)
        return len(self.api.woken) - before


def woken(pictures: Sequence[Picture], pod: PodSummary = WAITING) -> int:
    """Return the same for who has led for long, and saw the node shut at first."""
    return World(pod=pod).woken(replace(ONE, inventory="", entries=()), *pictures)


@pytest.mark.parametrize(
    ("pictures", "times"),
    [
        pytest.param([TWO, ONE], 2, id="a-promise-went"),
        pytest.param([ONE, TWO], 1, id="a-promise-came"),
        pytest.param([replace(ONE, inventory="sha256:other"), ONE], 2, id="other-inventory"),
        pytest.param([replace(ONE, inventory=""), ONE], 1, id="accounted-for"),
        pytest.param([ONE, replace(ONE, boot="later")], 2, id="accounted-for-after-a-reboot"),
        pytest.param([ONE, replace(ONE, node_uid="other")], 2, id="accounted-for-as-another-node"),
        pytest.param([ONE, replace(ONE, inventory="")], 1, id="shut"),
        pytest.param([ONE, replace(ONE, resource_version="101")], 1, id="nothing-that-counts"),
        pytest.param([TWO, None, ONE], 2, id="blind-in-between"),
        pytest.param([ONE, replace(TWO, generation=ONE.generation + 1)], 1, id="seen-to-come"),
        pytest.param([ONE, replace(ONE, generation=ONE.generation + 2)], 2, id="came-and-went"),
        pytest.param([ONE, replace(ONE, uid="another")], 2, id="lost-and-made-anew"),
        pytest.param([ONE, replace(ONE, entries=(entry("a", soft_grant(50)),))], 2, id="exchanged"),
    ],
)
def test_room_is_told(pictures: Sequence[Picture], times: int) -> None:
    """Only more room, or other GPUs, is worth another try; a node that opens is the first such."""
    assert woken(pictures) == times


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(replace(WAITING, node="n1"), id="bound"),
        pytest.param(replace(WAITING, extended=("nvidia.com/gpu",)), id="asks-others"),
        pytest.param(replace(WAITING, deleting=True), id="on-its-way-out"),
    ],
)
def test_nobody_is_woken_for_nobody(pod: PodSummary) -> None:
    """Where no pod waits for a vGPU, no write is made."""
    assert woken([TWO, ONE], pod) == 0


@pytest.mark.parametrize(
    ("first", "times"),
    [
        pytest.param(ONE, 1, id="open"),
        pytest.param(replace(ONE, inventory=""), 0, id="shut"),
    ],
)
def test_a_new_leader_wakes_once(first: Ledger, times: int) -> None:
    """What became free before it looked, nobody else has told; it need not be told again."""
    world = World()

    assert world.woken(first, first) == times


def test_each_term_has_a_value_of_its_own() -> None:
    """A leader that comes back changes the annotation, although the ledger stayed the same."""
    world = World()
    world.woken(ONE)
    world.term = 2

    assert world.woken(ONE) == 1
    assert len(set(world.api.woken)) == 2


def test_what_could_not_be_told_is_told_later() -> None:
    """A call that fails loses nobody's turn: it is made again, after a while, until it passes."""
    world = World()
    world.woken(TWO)
    world.api.down = UnreachableError("down", sent=True)
    assert world.woken(ONE, ONE) == 1
    world.api.down = None

    assert world.woken(ONE) == 0
    world.time.now += 60
    assert world.woken(ONE, ONE) == 1


def test_a_node_that_has_left_is_not_told_for_ever() -> None:
    """Nobody comes back to a Node that is not there."""
    world = World()
    world.woken(TWO)
    world.api.down = NotFoundError(404, "NotFound", "n0")
    assert world.woken(ONE) == 1
    world.time.now += 60

    assert world.woken(ONE) == 0


@dataclass(slots=True)
class Wide(FakeApiClient):
    """Many open nodes at the beginning of a term, of which some are gone; who was woken."""

    gone: int
    woken: list[str] = field(default_factory=list)
    pods: Pods = field(default_factory=Pods)
    time: FakeClock = field(default_factory=FakeClock)

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **_: Unpack[CallOptions]
    ) -> bytes:
        name = path.rpartition("/")[2]
        assert FREED_KEY in str(changes)
        if int(name[1:]) < self.gone:
            raise NotFoundError(404, "NotFound", name)
        self.woken.append(name)
        return b"{}"

    def sweeps(self, number: int) -> None:
        ledgers = {f"n{i:02}": replace(ONE, name=f"n{i:02}") for i in range(20)}
        waker = RequeueController(
            self,
            self.pods,
            ledgers=lambda: ledgers,
            vocabularies=lambda: VOCABULARIES,
            clock=self.time.clock(),
        )
        for turn in range(number):
            if turn == number // 2:
                replace_pods(self.pods, {WAITING.uid: WAITING})
            asyncio.run(waker.sweep(1))


@pytest.mark.parametrize("gone", [0, 1, 19])
def test_one_node_that_is_there_wakes_everybody(gone: int) -> None:
    """A GPUNode outlives its Node; the leader may have gone with the first of them."""
    wide = Wide(gone=gone)
    replace_pods(wide.pods, {WAITING.uid: WAITING})

    wide.sweeps(6)

    assert wide.woken == [f"n{gone:02}"]


def test_nobody_is_forgotten_before_pods_are_known() -> None:
    """A new leader's watches begin one after another."""
    wide = Wide(gone=0)

    wide.sweeps(4)

    assert wide.woken == ["n00"]


def test_each_node_with_more_room_is_told_also_after_a_quiet_beginning() -> None:
    """Where nobody waited when the term began, none of the nodes stands for the others later."""
    wide = Wide(gone=0)
    ledgers = {name: replace(TWO, name=name) for name in ("n00", "n01")}
    waker = RequeueController(
        wide,
        wide.pods,
        ledgers=lambda: ledgers,
        vocabularies=lambda: VOCABULARIES,
        clock=wide.time.clock(),
    )
    replace_pods(wide.pods, {})
    asyncio.run(waker.sweep(1))
    replace_pods(wide.pods, {WAITING.uid: WAITING})
    ledgers = {name: replace(ONE, name=name) for name in ledgers}

    asyncio.run(waker.sweep(1))

    assert wide.woken == ["n00", "n01"]
