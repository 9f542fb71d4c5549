"""Parts: everything that the agent is made of, as it belongs together."""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from agent.core.driver import Device, Driver
from agent.core.health import Policy
from agent.core.status import settled
from agent.shell.announcements import REPORTER, Announcements
from agent.shell.capabilities import Capabilities, NoFiles
from agent.shell.capacity import NodeKeeper
from agent.shell.drivers import Kind, boot_of, real, simulated
from agent.shell.holders import Holders
from agent.shell.inspection import Inspector
from agent.shell.instances import Instances
from agent.shell.journal import Journal
from agent.shell.libraries import brought, played
from agent.shell.library import Absent, Installed, sweep
from agent.shell.metrics import Metrics
from agent.shell.miggpu import Tools
from agent.shell.monitor import Means, Monitor
from agent.shell.node import Neighbourhood
from agent.shell.options import Options
from agent.shell.processes import Processes
from agent.shell.regions import Regions
from agent.shell.service import Paths
from agent.shell.status import Facts, StatusWriter
from agent.shell.survey import Survey, Told
from agent.shell.view import Evictor, View
from agent.shell.worker import Worker
from allocator.model.request import Mode
from allocator.model.units import NO_MEMORY
from kube.client import Client, version
from kube.clock import SYSTEM
from kube.events import Recorder, Reference

STATE_DIRECTORY: Final = "var/lib/vgpu-admission"
CDI_DIRECTORY: Final = "var/run/cdi"

log = structlog.get_logger(__name__)


class Parts:
    """The parts of one agent; none of them does anything by itself."""

    def __init__(self, options: Options, client: Client) -> None:
        """Open what is the node's; raises OSError, FleetError or JournalInUseError."""
        root = options.root
        self._options = options
        self.boot = boot_of(root)
        state = root / STATE_DIRECTORY
        state.mkdir(parents=True, exist_ok=True)
        self.paths = Paths(root=root, kubelet=options.kubelet, state=state)
        self.around = Neighbourhood(client, options.node, options.namespace)
        self.events = Recorder(client, controller=REPORTER, instance=options.node)
        self.announcements = Announcements(self._node, self.events.record)
        self.worker = Worker(self._driver())
        self.processes = Processes(root)
        told = Told(self.around.wake, self.announcements.health)
        self.survey = Survey(self.worker, told, policy=Policy(xids=options.xids))
        self.journal = Journal(state / "mig.journal", boot=self.boot)
        for damage in self.journal.damage:
            log.warning("damaged line in the MIG journal", what=damage)
        self.metrics = Metrics(
            version=self.version,
            figures=lambda: self.monitor.figures,
            hung=lambda: 0.0 if (hung := self.worker.hung) is None else hung.seconds,
            old=lambda: self.around.settings.plugin_metrics,
        )
        self.instances = Instances(self._tools(), changed=self.survey.renew)
        self.survey.instances = self.instances
        facts = Facts(self.boot, lambda: self.survey.hardware, self.alive)
        self.writer = StatusWriter(client, self.around, facts)
        self.keeper = NodeKeeper(
            client, self.around, lambda: self.survey.hardware, version=self.version
        )
        library = played(root) if self._played else brought(root, options.library)
        if isinstance(library, Absent):
            log.warning("hami-core unavailable on this node", why=library.why)
        self.regions = Regions(root, self.processes, library=library)
        self.monitor = Monitor(self._means(client, library))
        self.monitor.told = self._take_over

    @property
    def version(self) -> str:
        """Return our version as a label may have it; one that plays says so in it."""
        own = version().replace("+", "-")
        return f"{own}-{self._options.driver}" if self._played else own

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
    def _played(self) -> bool:
        return self._options.driver is Kind.SIMULATED

    def _driver(self) -> Driver:
        options = self._options
        if not self._played:
            return real(options.root)
        state = self.paths.state / "simulated.json"
        return simulated(options.fleet, node=options.node, boot=self.boot, state=state)

    def _tools(self) -> Tools:
        root = self._options.root
        return Tools(
            worker=self.worker,
            journal=self.journal,
            nodes=NoFiles() if self._played else Capabilities(root),
            holding=Holders(root),
            clock=SYSTEM,
            counted=self.metrics.recut,
            told=self.announcements.recut,
            may_switch=self._for_mig,
        )

    def _for_mig(self) -> bool:
        """Say whether the node's owner set it up for MIG: what a reboot undid may be made good."""
        own = self.around.node_config
        return own is not None and own.mode is Mode.MIG

    def _means(self, client: Client, library: Installed | Absent) -> Means:
        root = self._options.root

        def unused() -> object:
            return sweep(root, library) if isinstance(library, Installed) else ()

        return Means(
            node=self._options.node,
            worker=self.worker,
            around=View(self.around, self.survey, self.instances),
            inspector=Inspector(self.regions, self.processes),
            regions=self.regions,
            unused=unused,
            evictor=Evictor(client),
            news=self.announcements,
            tally=self.metrics,
        )

    def _take_over(self) -> None:
        """Take over what the monitor saw: memory of others is nobody's to promise."""
        told = self.survey.others
        now = self.monitor.foreign.items()
        found = {gpu: settled(told.get(gpu, NO_MEMORY), held) for gpu, held in now}
        if found != told:
            self.survey.others = {**told, **found}  # of a GPU that is silent, what it said last
            self.survey.renew()

    def _node(self) -> Reference:
        """Return what Events about the node regard."""
        node = self.around.node
        uid = "" if node is None else node.uid
        return Reference(api_version="v1", kind="Node", name=self._options.node, uid=uid)
