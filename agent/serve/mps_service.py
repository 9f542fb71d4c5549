"""Wiring of mode mps: which GPUs are to be in it, and who hears of trouble."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Never

from agent.driver.driver_thread import DriverThread
from agent.driver.static_partitioning import static_refusal
from agent.monitor.violation import LocalPod
from agent.mps.daemon import Daemons, shared_memory_size
from agent.mps.daemon_client import DaemonClient, DaemonOptions
from agent.mps.gpu_controller import MpsServices
from agent.mps.journal_files import MpsJournal
from agent.mps.mps_controller import MpsController, Partitioning, grants_by_gpu
from agent.mps.partitions.book_files import PartitionBook
from agent.mps.partitions.table import Holder
from agent.mps.simulated.simulated_files import SimulatedDaemons
from agent.mps.trouble import MpsTrouble, MpsTroubleKind
from agent.node.node_informer import NodeInformer
from agent.node.status import Hardware, static_partitioning, wants_mps
from agent.serve.device_plugin import Paths
from agent.serve.options import AgentOptions, DriverKind
from allocator.config.device_config import NodeConfig
from allocator.model.allocation import Entry
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import MiB

JOURNAL: Final = "mps.json"
BOOK: Final = "mps-partitions.json"
DRIVER_FOLDER: Final = "proc/driver/nvidia"  # exists while the kernel module is loaded
_LEAST_MEMORY: Final = MiB(1024)  # of a node whose memory cannot be read
NO_CDI: Final = "the container runtime reads no CDI documents, by which a client gets its daemon"


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsParts:
    """What mode mps works with."""

    informer: NodeInformer
    worker: DriverThread
    hardware: Callable[[], Hardware | None]
    # pods by uid, as Events name them
    pods: Callable[[], Mapping[str, LocalPod]]
    # an Event on a pod, or on the Node: GPU and sentence
    report: Callable[[LocalPod | None, str, str], None]
    count: Callable[[MpsTroubleKind], None]
    changed: Callable[[], None]
    is_loaded: Callable[[], bool] = lambda: True  # whether the node's kernel has a driver


class MpsService:
    """Keeps the node's GPUs in mode mps as configuration and ledger say."""

    def __init__(
        self,
        parts: MpsParts,
        daemons: Daemons,
        *,
        journal: MpsJournal,
        book: PartitionBook,
        root: str,
    ) -> None:
        """Touch nothing yet; *root* is ``hostRoot`` on the node."""
        self._parts = parts
        self.daemons = daemons
        self.leaving = False  # no GPU is to be in the mode any more
        services = MpsServices(
            worker=parts.worker,
            daemons=daemons,
            journal=journal,
            book=book,
            is_loaded=parts.is_loaded,
            report=self._report,
        )
        self.controller = MpsController(services, host_root=root, changed=parts.changed)

    async def run(self) -> Never:
        """Follow the GPUs in or near the mode."""
        await self.controller.run()

    async def withdraw(self, *, in_use: bool) -> bool:
        """Take GPUs out of the mode where nobody has an entry; say whether all are out.

        *in_use* says that pods with our files still run. Without a GPUNode that names their
        entries, no GPU is taken from them.
        """
        self.leaving = True
        if self._parts.informer.gpu_node is None and not in_use:
            self.controller.set_desired((), {}, uninstalling=True)
        self.follow()
        await self.controller.settle()
        return self.controller.is_idle

    def follow(self) -> None:
        """Take in what is configured and promised now."""
        informer, hardware = self._parts.informer, self._parts.hardware()
        stored = informer.gpu_node
        if stored is None or not informer.synced or (hardware is None and not self.leaving):
            return
        wanted = None if self.leaving else informer.node_config
        devices = () if hardware is None else hardware.devices
        grants = grants_by_gpu(
            grant
            for entry in stored.ledger.entries
            for container in entry.containers
            for grant in container.grants
        )
        configured = {each.uuid for each in devices if wants_mps(each, wanted)}
        gpus = {gpu.uuid: gpu for gpu in stored.ledger.node.gpus}
        partitioning = Partitioning(
            static=static_gpus(hardware, wanted, gpus),
            holders=holders_by_gpu(stored.ledger.entries),
        )
        self.controller.set_desired(configured, grants, partitioning, uninstalling=self.leaving)

    def _report(self, gpu: str, trouble: MpsTrouble) -> None:
        """Tell the Node's owner, and every pod that has an entry on the GPU."""
        parts, pods = self._parts, self._parts.pods()
        parts.count(trouble.kind)
        parts.report(None, gpu, trouble.note)
        stored = parts.informer.gpu_node
        for entry in () if stored is None else stored.ledger.entries:
            grants = (grant for each in entry.containers for grant in each.grants)
            hurt = any(grant.gpu == gpu and grant.mode is Mode.MPS for grant in grants)
            if hurt and (pod := pods.get(entry.uid)) is not None:
                parts.report(pod, gpu, trouble.note)


def static_gpus(
    hardware: Hardware | None, wanted: NodeConfig | None, gpus: Mapping[str, Gpu]
) -> dict[str, str]:
    """Return the GPUs that are partitioned statically, with why they cannot be, by UUID.

    *gpus* are those of the ledger. Where the driver does not list them, they are what they were.
    """
    if hardware is None:
        return {gpu.uuid: "" for gpu in gpus.values() if gpu.chunks}
    return {
        device.uuid: static_refusal(hardware.cuda, device.capability)
        for device in hardware.devices
        if static_partitioning(device, wanted, gpus.get(device.uuid))[0]
    }


def holders_by_gpu(entries: Iterable[Entry]) -> dict[str, frozenset[str]]:
    """Return the keys of the containers with a grant in mode mps, by the UUID of their GPU."""
    holders: dict[str, set[str]] = {}
    for entry in entries:
        for container in entry.containers:
            for grant in container.grants:
                if grant.mode is Mode.MPS:
                    key = str(Holder(entry.uid, container.name))
                    holders.setdefault(grant.gpu, set()).add(key)
    return {gpu: frozenset(keys) for gpu, keys in holders.items()}


def mps_service(parts: MpsParts, options: AgentOptions, paths: Paths, *, boot: str) -> MpsService:
    """Return the service of the node that *options* and *paths* describe; raises OSError."""
    journal = MpsJournal(paths.state / JOURNAL, boot=boot)
    book = PartitionBook(paths.state / BOOK, boot=boot)
    host_root = str(options.host_root)
    if options.driver is DriverKind.SIMULATED:
        return MpsService(
            parts, SimulatedDaemons(paths.host_root), journal=journal, book=book, root=host_root
        )
    memory = shared_memory_size(total_memory(options.root), gpus=_gpus(options.root))
    daemon_options = DaemonOptions(
        host_root=host_root, launcher=options.mps_launcher, shared_memory=memory
    )
    daemons = DaemonClient(paths.host_root, daemon_options, proc=options.root / "proc")
    parts = replace(parts, is_loaded=(options.root / DRIVER_FOLDER).exists)
    return MpsService(parts, daemons, journal=journal, book=book, root=host_root)


def _gpus(root: Path) -> int:
    """Return how many GPUs the driver has, before it can be asked."""
    try:
        return len(list((root / DRIVER_FOLDER / "gpus").iterdir()))
    except OSError:
        return 1


def total_memory(root: Path) -> MiB:
    """Return the node's memory by ``/proc/meminfo`` below *root*."""
    try:
        first = (root / "proc/meminfo").read_text(encoding="ascii").split("\n", 1)[0].split()
        return MiB(int(first[1]) // 1024) if first[0] == "MemTotal:" else _LEAST_MEMORY
    except (OSError, ValueError, IndexError):
        return _LEAST_MEMORY
