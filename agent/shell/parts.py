"""Parts: everything that the agent is made of, as it belongs together."""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from agent.core.driver import Device, Driver
from agent.core.health import HealthPolicy
from agent.core.status import rounded_memory
from agent.shell.announcements import REPORTER, NodeEvents
from agent.shell.capabilities import Capabilities, NoFiles
from agent.shell.capacity import CapacityController
from agent.shell.drivers import DriverKind, boot_of, real, simulated_driver
from agent.shell.holders import OpenFiles
from agent.shell.inspection import Inspector
from agent.shell.instances import InstancesController
from agent.shell.journal import Journal
from agent.shell.libraries import install_from, install_simulated
from agent.shell.library import Absent, Installed, sweep
from agent.shell.metrics import AgentMetrics
from agent.shell.miggpu import MigServices
from agent.shell.monitor import Monitor, MonitorServices
from agent.shell.node import NodeInformer
from agent.shell.options import AgentOptions
from agent.shell.processes import Processes
from agent.shell.regions import RegionFiles
from agent.shell.service import Paths
from agent.shell.status import StatusController, StatusFacts
from agent.shell.survey import HardwareInformer, HardwareListeners
from agent.shell.view import Evictor, MonitorView
from agent.shell.worker import DriverThread
from allocator.model.request import Mode
from allocator.model.units import NO_MEMORY
from kube.client import Client, version
from kube.clock import SYSTEM
from kube.events import Recorder, Reference

STATE_DIRECTORY: Final = "var/lib/vgpu-admission"
CDI_DIRECTORY: Final = "var/run/cdi"

log = structlog.get_logger(__name__)


class AgentParts:
    """The parts of one agent; none of them does anything by itself."""

    def __init__(self, options: AgentOptions, client: Client) -> None:
        """Open what is the node's; raises OSError, FleetError or JournalInUseError."""
        root = options.root
        self._options = options
        self.boot = boot_of(root)
        state = root / STATE_DIRECTORY
        state.mkdir(parents=True, exist_ok=True)
        self.paths = Paths(root=root, kubelet=options.kubelet, state=state)
        self.around = NodeInformer(client, options.node, options.namespace)
        self.events = Recorder(client, controller=REPORTER, instance=options.node)
        self.announcements = NodeEvents(self._node, self.events.record)
        self.worker = DriverThread(self._driver())
        self.processes = Processes(root)
        told = HardwareListeners(self.around.notify, self.announcements.health)
        self.survey = HardwareInformer(self.worker, told, policy=HealthPolicy(xids=options.xids))
        self.journal = Journal(state / "mig.journal", boot=self.boot)
        for damage in self.journal.damage:
            log.warning("damaged line in the MIG journal", what=damage)
        self.metrics = AgentMetrics(
            version=self.version,
            figures=lambda: self.monitor.figures,
            hung=lambda: 0.0 if (hung := self.worker.hung_call) is None else hung.seconds,
            old=lambda: self.around.settings.plugin_metrics,
        )
        self.instances = InstancesController(self._tools(), changed=self.survey.renew)
        self.survey.instances = self.instances
        facts = StatusFacts(self.boot, lambda: self.survey.hardware, self.alive)
        self.writer = StatusController(client, self.around, facts)
        self.keeper = CapacityController(
            client, self.around, lambda: self.survey.hardware, version=self.version
        )
        library = (
            install_simulated(root) if self._is_simulated else install_from(root, options.library)
        )
        if isinstance(library, Absent):
            log.warning("hami-core unavailable on this node", why=library.why)
        self.regions = RegionFiles(root, self.processes, library=library)
        self.monitor = Monitor(self._means(client, library))
        self.monitor.told = self._take_over

    @property
    def version(self) -> str:
        """Return our version as a label may have it; one that plays says so in it."""
        own = version().replace("+", "-")
        return f"{own}-{self._options.driver}" if self._is_simulated else own

    @property
    def cdi(self) -> Path:
        """Return the folder that a container runtime reads documents from."""
        return self._options.root / CDI_DIRECTORY

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs as far as they are known."""
        hardware = self.survey.hardware
        return () if hardware is None else hardware.devices

    async def alive(self) -> frozenset[str]:
        """Return the uids of the pods that have processes on this node."""
        everyone = await asyncio.to_thread(self.processes.everyone)
        return frozenset(one.cell.uid for one in everyone if one.cell is not None)

    async def close(self) -> None:
        """Let go of the driver, the journal, and whom we hold back; all else stays as it is."""
        try:
            await self.monitor.release()
        finally:
            await self.worker.close()
            self.journal.close()

    @property
    def _is_simulated(self) -> bool:
        return self._options.driver is DriverKind.SIMULATED

    def _driver(self) -> Driver:
        options = self._options
        if not self._is_simulated:
            return real(options.root)
        state = self.paths.state / "simulated.json"
        return simulated_driver(options.fleet, node=options.node, boot=self.boot, state=state)

    def _tools(self) -> MigServices:
        root = self._options.root
        return MigServices(
            worker=self.worker,
            journal=self.journal,
            nodes=NoFiles() if self._is_simulated else Capabilities(root),
            holding=OpenFiles(root),
            clock=SYSTEM,
            counted=self.metrics.recut,
            told=self.announcements.recut,
            may_switch=self._for_mig,
        )

    def _for_mig(self) -> bool:
        """Say whether the node's owner set it up for MIG: what a reboot undid may be made good."""
        own = self.around.node_config
        return own is not None and own.mode is Mode.MIG

    def _means(self, client: Client, library: Installed | Absent) -> MonitorServices:
        root = self._options.root

        def sweep_unused() -> object:
            return sweep(root, library) if isinstance(library, Installed) else ()

        return MonitorServices(
            node=self._options.node,
            worker=self.worker,
            around=MonitorView(self.around, self.survey, self.instances),
            inspector=Inspector(self.regions, self.processes),
            regions=self.regions,
            unused=sweep_unused,
            evictor=Evictor(client),
            news=self.announcements,
            tally=self.metrics,
        )

    def _take_over(self) -> None:
        """Take over what the monitor saw: memory of others is nobody's to promise."""
        told = self.survey.others
        now = self.monitor.foreign.items()
        found = {gpu: rounded_memory(told.get(gpu, NO_MEMORY), held) for gpu, held in now}
        if found != told:
            self.survey.others = {**told, **found}  # of a GPU that is silent, what it said last
            self.survey.renew()

    def _node(self) -> Reference:
        """Return what Events about the node regard."""
        node = self.around.node
        uid = "" if node is None else node.uid
        return Reference(api_version="v1", kind="Node", name=self._options.node, uid=uid)
