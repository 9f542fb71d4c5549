"""The nodes of the demo: what their agents would record, by the code with which agents record it.

Nothing runs on the GPUs of the story, so what a driver and kubelet would tell is played: that a
container gets its devices, that its process is seen, and how much memory it holds.
"""

from collections.abc import Iterable, Iterator

from agent.deviceplugin.container_edits import (
    ContainerEdits,
    hami_core_edits,
    mig_edits,
    mode_of,
    unenforced_edits,
)
from agent.driver.driver import Process
from agent.monitor.violation import LocalPod, LocatedProcess, ObservedUse, violations
from agent.node.cgroup import PodCgroup
from agent.serve.node_records import NodeRecords
from agent.share import Owner, ReadyInstance, Share
from allocator.audit.record import Component
from allocator.audit.record_source import RecordSource
from allocator.audit.record_writer import RecordSink, RecordWriter
from allocator.catalog.keys import DECISION_KEY
from allocator.model.allocation import Entry, Grant
from allocator.model.request import Mode
from allocator.model.units import MiB
from demo.cluster import DemoCluster
from demo.timeline import Timeline

_LIBRARY = "/usr/local/vgpu/library"
_REGION = "/usr/local/vgpu/regions/slot-0000"


class DemoNodes:
    """The agents of all nodes."""

    def __init__(
        self, cluster: DemoCluster, sink: RecordSink, timeline: Timeline, *, version: str
    ) -> None:
        """Record to *sink* what happens on the nodes of *cluster*."""
        self._cluster = cluster
        self._records = {
            name: NodeRecords(
                name,
                RecordWriter(
                    sink=sink,
                    source=RecordSource(
                        Component.AGENT,
                        instance=f"vgpu-agent-{name}",
                        version=version,
                        entropy=number,
                    ),
                    now=timeline.now,
                ),
                digest_of=self._digest_of,
                clock=timeline.clock,
            )
            for number, name in enumerate(cluster.nodes, start=2)  # 1 is the webhook
        }

    def _digest_of(self, uid: str) -> str:
        """Return the digest that admission stamped on pod *uid*; empty where it is gone."""
        for pod in self._cluster.pods.values():
            if pod["metadata"]["uid"] == uid:
                return str(pod["metadata"].get("annotations", {}).get(DECISION_KEY, ""))
        return ""

    def allocate(self, node: str, entry: Entry) -> None:
        """Hand the containers of *entry* their devices."""
        records = self._records[node]
        for number, share in enumerate(_shares(entry)):
            edits = self._edits(node, share)
            records.write_allocation(f"{entry.uid}-{number}", share, edits)

    async def see_started(self, node: str, entry: Entry) -> None:
        """See the processes of the containers of *entry*."""
        self._records[node].write_started(self._observed(node, entry, {}))

    def observe(self, node: str, entry: Entry, memory: int) -> None:
        """See each process of *entry* hold *memory* MiB; what that violates is recorded."""
        held = {share.owner.container: memory for share in _shares(entry)}
        for violation in violations(self._observed(node, entry, held)):
            self._records[node].write_violation(violation)

    def report_health(self, node: str, gpu: str, why: str) -> None:
        """Record *why* a GPU left service; empty if it is back."""
        self._records[node].write_health(gpu, why)

    def _edits(self, node: str, share: Share) -> ContainerEdits:
        match mode_of(share):
            case Mode.MIG:
                ready = [
                    ReadyInstance(uuid=self._instance(node, grant), memory=grant.memory, nodes=())
                    for grant in share.grants
                ]
                return mig_edits(share, ready)
            case Mode.HAMI_CORE:
                return hami_core_edits(share, library=_LIBRARY, region=_REGION)
            case Mode.MEMORY_ONLY:
                return unenforced_edits(share)
            case mode:
                raise ValueError(f"the demo has no node in mode {mode}")

    def _instance(self, node: str, grant: Grant) -> str:
        """Return the UUID of the MIG instance of *grant*; empty where there is none."""
        for one in self._cluster.gpu_nodes[node]["status"]["instances"]:
            place = grant.placed and (grant.placed.profile.name, grant.placed.start)
            if one["gpu"] == grant.gpu and (one["profile"], one["start"]) == place:
                return str(one["uuid"])
        return ""

    def _observed(self, node: str, entry: Entry, held: dict[str, int]) -> ObservedUse:
        """Return what an agent sees of *entry*: one process of each container on each GPU."""
        shares = tuple(_shares(entry))
        pod = LocalPod(
            uid=entry.uid,
            namespace=entry.namespace,
            name=entry.pod,
            containers={_runtime_id(share): share.owner.container for share in shares},
        )
        return ObservedUse(
            processes=tuple(self._processes(node, shares, held)), shares=shares, pods={pod.uid: pod}
        )

    def _processes(
        self, node: str, shares: Iterable[Share], held: dict[str, int]
    ) -> Iterator[LocatedProcess]:
        for share in shares:
            for number, grant in enumerate(share.grants):
                process = Process(
                    pid=20_000 + number,
                    gpu=grant.gpu,
                    memory=MiB(held.get(share.owner.container, grant.memory // 2)),
                    instance=self._instance(node, grant) or None,
                )
                cgroup = PodCgroup(uid=share.owner.uid, container=_runtime_id(share))
                yield LocatedProcess(process, cgroup)


def _shares(entry: Entry) -> Iterator[Share]:
    for number, container in enumerate(entry.containers):
        owner = Owner(
            uid=entry.uid,
            namespace=entry.namespace,
            pod=entry.pod,
            containers=(container.name,),
        )
        yield Share(owner=owner, grants=container.grants, key=f"c{number}", stage=container.stage)


def _runtime_id(share: Share) -> str:
    return f"{share.owner.uid}-{share.owner.container}"
