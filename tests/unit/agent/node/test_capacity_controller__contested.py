"""Capacity that somebody else keeps changing: ours stands soon after each time, without a race."""

import asyncio
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Unpack

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.driver.driver import Device
from agent.node.capacity_controller import (
    INTERVAL,
    LONGEST_REWRITE_PAUSE,
    STABLE_AFTER,
    CapacityController,
)
from agent.node.node_informer import NodeInformer, decode_gpu_node, own_node
from agent.node.status import Hardware
from allocator.model.units import MiB
from kube.client import CallOptions, Client
from kube.config import Access
from tests.fakes.api_client import FakeApiClient
from tests.fakes.kube_clock import FakeClock

MEMORY = "volcano.sh/vgpu-memory"
GPU = Device(
    uuid="GPU-0",
    index=0,
    minor=0,
    pci="0000:00:00.0",
    model="Tesla T4",
    memory=MiB(15360),
    ampere_or_older=True,
)


class ContestedNode(FakeApiClient):
    """A Node whose capacity two write: the keeper, and whoever calls :meth:`undo`."""

    def __init__(self) -> None:
        self.time = FakeClock()
        self.body: dict[str, Any] = {
            "metadata": {"name": "n", "labels": {"vgpu-admission.io/agent": "1"}},
            "status": {"capacity": {}},
        }
        self.writes: list[float] = []
        self.informer = NodeInformer(Client(Access(url="http://localhost")), "n", "system")
        for pulse in self.informer.watch_health.values():
            pulse.synced = True
        raw = json.dumps({"metadata": {"name": "n"}, "spec": {"entries": []}}).encode()
        self.informer.learn(decode_gpu_node(raw))
        self._deliver_node()
        hardware = Hardware(devices=(GPU,))
        self.controller = CapacityController(
            self, self.informer, lambda: hardware, version="1", clock=self.time.clock()
        )

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        if path.endswith("/status"):
            self.writes.append(self.time.now)
            for part, changed in changes["status"].items():
                self.body["status"].setdefault(part, {}).update(changed)
        else:
            self.body["metadata"] |= changes["metadata"]
        self._deliver_node()
        return b"{}"

    def undo(self) -> None:
        """Write 0, as kubelet does."""
        self.body["status"]["capacity"][MEMORY] = "0"
        self._deliver_node()

    def _deliver_node(self) -> None:
        self.informer.node = own_node(json.dumps(self.body).encode())

    @property
    def has_our_capacity(self) -> bool:
        return bool(self.body["status"]["capacity"].get(MEMORY) == "15360")

    def advance(self, seconds: int, every: int | None = None) -> None:
        """Let time pass, in which the keeper looks each second and the other acts *every* few."""

        async def play() -> None:  # in one event loop: a loop for each second takes far longer
            for second in range(seconds):
                if every is not None and second % every == 0:
                    self.undo()
                await self.controller.sweep()
                self.time.now += INTERVAL

        asyncio.run(play())


def test_what_kubelet_undoes_every_ten_seconds_is_back_at_once_each_time() -> None:
    """It never stands aside for longer than a look takes, for the five minutes that this lasts."""
    contest = ContestedNode()
    contest.advance(1)
    for _ in range(30):
        contest.undo()
        contest.advance(10)
        assert contest.has_our_capacity

    assert len(contest.writes) == 31


@settings(max_examples=40)
@given(every=st.integers(1, 9), lasting=st.integers(30, 300))
def test_whoever_is_faster_is_not_raced(every: int, lasting: int) -> None:
    """Writes thin out to one in five to ten seconds; once the other stops, ours stands again."""
    contest = ContestedNode()
    contest.advance(lasting, every)

    late = [at for at in contest.writes if at > contest.writes[0] + 4 * LONGEST_REWRITE_PAUSE]
    assert all(b - a >= LONGEST_REWRITE_PAUSE / 2 for a, b in pairwise(late))
    assert len(contest.writes) <= 6 + lasting / (LONGEST_REWRITE_PAUSE / 2)
    contest.advance(int(LONGEST_REWRITE_PAUSE) + 1)
    assert contest.has_our_capacity


def test_patience_ends_with_the_quarrel() -> None:
    """What stood for a while and is undone then is back at once, and again."""
    contest = ContestedNode()
    contest.advance(60, every=1)
    contest.advance(int(LONGEST_REWRITE_PAUSE + STABLE_AFTER) + 1)
    for _ in range(2):
        contest.undo()
        contest.advance(1)
        assert contest.has_our_capacity
