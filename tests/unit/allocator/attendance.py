"""Attendants of pods that wait, with what they are told and what they do."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

from allocator.controllers.unschedulable import UnschedulableController
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import Index, IndexBuilder
from allocator.extender.pod import SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.model.gpu import Node
from allocator.model.request import PodRequest
from allocator.placement.choose import PlacementPolicy
from allocator.scheduling.unschedulable import LEAST_SAMPLE, UnschedulablePod
from kube.client import CallOptions
from kube.errors import KubeError
from kube.events import Event
from tests.builders.model import T4, ask, gpu, node, pod, soft_grant
from tests.fakes.api_client import FakeApiClient
from tests.fakes.kube_clock import FakeClock
from tests.harness.records import KeptRecords, writer

CIRCUMSTANCES = FilterContext(policy=PlacementPolicy())
SAMPLE = [f"other-{i}" for i in range(LEAST_SAMPLE)]
ROOMY = node("roomy", gpu(T4))
FULL_GRANT = soft_grant(15000)
FULL = node("full", gpu(T4, grants=[FULL_GRANT]))


def index_of(*nodes: Node) -> Index:
    indexer = IndexBuilder()
    for found in nodes:
        indexer.put(found)
    return indexer.index(version="1", complete=True)


@dataclass(slots=True)
class Scene(FakeApiClient):
    """One attendant, what it wrote and what it told."""

    index: Index = field(default_factory=lambda: index_of(ROOMY, FULL))
    error: KubeError | None = None
    hints: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    records: KeptRecords = field(default_factory=KeptRecords)
    time: FakeClock = field(default_factory=FakeClock)
    attendant: UnschedulableController = field(init=False)

    def __post_init__(self) -> None:
        self.attendant = UnschedulableController(
            self,
            self,
            index=lambda: self.index,
            context_of=lambda _: CIRCUMSTANCES,
            write_record=writer(self.records).write,
            clock=self.time.clock(),
        )

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        self.hints.append((path, changes))
        if self.error is not None:
            raise self.error
        return b"{}"

    def record(self, event: Event, /) -> None:
        self.events.append(event)

    def look_after(self, *names: str, request: PodRequest | None = None, uid: str = "u") -> None:
        wanted = PodClaim(uid=uid, request=request or pod(ask(3000)))
        found = SchedulingPod(uid=uid, namespace="team-a", name="p", claim=wanted)
        obstacles = filter_nodes(self.index, found, names, context=CIRCUMSTANCES).failures
        asyncio.run(self.attendant.handle(UnschedulablePod(found, names, obstacles)))

    @property
    def nodes(self) -> list[str]:
        return [changes["status"]["nominatedNodeName"] for _, changes in self.hints]

    @property
    def notes(self) -> list[str]:
        return [event.note for event in self.events]


def waiting_pod(uid: str = "u") -> SchedulingPod:
    wanted = PodClaim(uid=uid, request=pod(ask(9000)))
    return SchedulingPod(uid=uid, namespace="team-a", name="p", claim=wanted)
