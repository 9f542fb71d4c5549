"""A node that stays closed is said on its Node and in its status, and no writer is fought."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from allocator.controllers.closed_nodes import LASTING_SECONDS, ClosedNodesController
from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import NodeIdentity
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import ConflictError
from kube.events import Event
from tests.builders.gpunodes import ledger
from tests.builders.model import T4, nodes_of
from tests.fakes.api_client import FakeApiClient

OPEN = ledger(nodes_of(1, T4), nodeUID="u", driver="570.1")
SILENT = replace(OPEN, inventory="")
MACHINE = NodeIdentity(name="n0", uid="u", boot="boot-1", agent=True)
STEP = 10.0


@dataclass(slots=True)
class Cluster(FakeApiClient):
    """One node, and what is written about it."""

    stored: Ledger | None = SILENT
    machine: NodeIdentity | None = MACHINE
    refuses: bool = False
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    writes: list[Mapping[str, Any]] = field(default_factory=list)

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        return {} if self.machine is None else {"n0": self.machine}

    def ledgers(self) -> Mapping[str, Ledger] | None:
        return None if self.stored is None else {"n0": self.stored}

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        assert path.endswith("/gpunodes/n0/status")
        self.writes.append(changes)
        if self.refuses:
            raise ConflictError(409, "Conflict", "it moved")
        return b"{}"

    def controller(self) -> ClosedNodesController:
        clock = Clock(monotonic=lambda: self.now, random=lambda: 0)
        return ClosedNodesController(
            self,
            self,
            upstream=lambda: False,
            slot=lambda: "acme.com/gpu",
            record=self.events.append,
            clock=clock,
        )

    def sweep(self, controller: ClosedNodesController, times: int = 1) -> None:
        for _ in range(times):
            asyncio.run(controller.sweep())
            self.now += STEP


def test_what_lasts_is_said_on_the_node_and_written() -> None:
    """With the Node's uid, and on the version that was seen."""
    cluster = Cluster()
    controller = cluster.controller()

    cluster.sweep(controller, int(LASTING_SECONDS / STEP))
    assert (cluster.events, cluster.writes) == ([], [])
    cluster.sweep(controller)

    (event,) = cluster.events
    assert (event.reason, event.regarding.kind, event.regarding.uid) == (
        "VgpuNodeClosed",
        "Node",
        "u",
    )
    assert event.note.endswith("its agent is starting, stopping or being replaced")
    status = {"closed": "its agent is starting, stopping or being replaced"}
    assert cluster.writes == [{"metadata": {"resourceVersion": "100"}, "status": status}]


def test_a_node_whose_agent_was_killed_and_never_returns() -> None:
    """Its ledger is open; kubelet says by itself that no device plugin serves."""
    gone = replace(MACHINE, withdrawn=frozenset({"acme.com/gpu"}))
    cluster = Cluster(stored=OPEN, machine=gone)
    cluster.sweep(cluster.controller(), 5)

    assert "kubelet has no acme.com/gpu to give" in cluster.events[0].note
    assert cluster.writes == []


def test_a_writer_that_drops_the_reason_is_not_fought() -> None:
    """An agent of an earlier release writes the whole status without it."""
    cluster = Cluster()
    cluster.sweep(cluster.controller(), 60)

    assert len(cluster.writes) == 1


def test_a_write_that_failed_is_tried_again() -> None:
    """Nobody has seen the reason yet."""
    cluster = Cluster(refuses=True)
    cluster.sweep(cluster.controller(), 6)

    assert len(cluster.writes) == 3


def test_a_node_that_opens_starts_anew() -> None:
    """Short spells, a reboot each, are no Event."""
    cluster = Cluster()
    controller = cluster.controller()
    for _ in range(5):
        cluster.stored = SILENT
        cluster.sweep(controller, 2)
        cluster.stored = OPEN
        cluster.sweep(controller)

    assert (cluster.events, cluster.writes) == ([], [])


def test_a_reason_that_its_agent_gave_is_not_written() -> None:
    """It stands there already; the Event repeats it."""
    cluster = Cluster(stored=replace(SILENT, stated="the driver hangs"))
    cluster.sweep(cluster.controller(), 5)

    assert cluster.writes == []
    assert cluster.events[0].note.endswith(": the driver hangs")


def test_a_status_of_another_boot_names_both() -> None:
    """Its inventory is the gpunode controller's to remove, which says the same."""
    cluster = Cluster(stored=OPEN, machine=replace(MACHINE, boot="boot-2"))
    cluster.sweep(cluster.controller(), 5)

    assert cluster.writes == []
    assert '"boot-1"' in cluster.events[0].note
    assert '"boot-2"' in cluster.events[0].note


def test_nothing_is_said_of_what_is_not_known() -> None:
    """Neither while caches fill, nor of a Node that is gone."""
    for cluster in (Cluster(stored=None), Cluster(machine=None)):
        cluster.sweep(cluster.controller(), 5)

        assert (cluster.events, cluster.writes) == ([], [])
