"""Vgpu agent: parts and wiring."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

import structlog

from agent.deviceplugin.entry_client import EntryClient
from agent.deviceplugin.shares import placements
from agent.doctor.container_runtime import containerd_major, reads_cdi
from agent.doctor.facts_files import configurations
from agent.driver.driver import Device, Driver
from agent.driver.driver_thread import DriverThread
from agent.health.hardware_informer import HardwareInformer, HardwareListeners
from agent.health.health import HealthPolicy
from agent.mig.device_files import Capabilities, NoFiles
from agent.mig.gpu_controller import MigServices
from agent.mig.instances_controller import InstancesController
from agent.mig.journal_files import Journal
from agent.mig.open_files import OpenFiles
from agent.monitor.inspection_thread import Inspector
from agent.monitor.metrics import AgentMetrics
from agent.monitor.monitor_controller import Monitor, MonitorServices
from agent.node.capacity_controller import CapacityController
from agent.node.node_informer import NodeInformer
from agent.node.process_files import Processes
from agent.node.status import rounded_memory
from agent.node.status_controller import StatusController, StatusFacts
from agent.region.library_files import Absent, Installed, install_from, install_simulated, sweep
from agent.region.region_files import RegionFiles
from agent.serve.device_plugin import Paths, PluginServices, Service
from agent.serve.http import Answers, serve_http
from agent.serve.monitor_view import Evictor, MonitorView
from agent.serve.node_events import REPORTER, NodeEvents
from agent.serve.options import AgentOptions, DriverKind, boot_of, real, simulated_driver
from agent.serve.withdrawal_controller import EVERY, WithdrawalController
from allocator.cli.process import Start, background, stop_event
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
        hardware_listeners = HardwareListeners(self.around.notify, self.announcements.health)
        self.survey = HardwareInformer(
            self.worker, hardware_listeners, policy=HealthPolicy(xids=options.xids)
        )
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
        memories = self.survey.others
        now = self.monitor.foreign.items()
        found = {gpu: rounded_memory(memories.get(gpu, NO_MEMORY), held) for gpu, held in now}
        if found != memories:
            self.survey.others = {**memories, **found}  # of a GPU that is silent, what it said last
            self.survey.renew()

    def _node(self) -> Reference:
        """Return what Events about the node regard."""
        node = self.around.node
        uid = "" if node is None else node.uid
        return Reference(api_version="v1", kind="Node", name=self._options.node, uid=uid)


async def run(options: AgentOptions) -> None:
    """Run until SIGTERM or SIGINT; a task that dies takes the program with it.

    Raises OSError, FleetError or JournalInUseError where the node is not fit for it.
    """
    stop = stop_event()
    async with Client(options.access) as client:
        parts = AgentParts(options, client)
        try:
            async with background() as start:
                agent = Agent(options, client, parts)
                agent.begin(start)
                answers = Answers(ready=agent.not_ready_reason, metrics=parts.metrics.exposition)
                async with serve_http(answers, options.listen) as port:
                    log.info("serving", port=port, version=parts.version, node=options.node)
                    await stop.wait()
        finally:
            await parts.close()


@dataclass(slots=True)
class Agent:
    """What runs, over the parts."""

    options: AgentOptions
    client: Client
    parts: AgentParts

    def begin(self, start: Start) -> None:
        """Start everything, or the withdrawal alone."""
        parts = self.parts
        start(parts.around.run(), "watches")
        start(parts.events.run(), "events")
        start(parts.survey.run(), "survey")
        start(self._status(), "status")
        if self.options.withdraw:
            parts.writer.leaving = True
            leaving = WithdrawalController(
                parts.around, parts.keeper, parts.paths, cdi=parts.cdi, alive=parts.alive
            )
            start(leaving.run(), "withdrawal")
            start(self._release_forever(), "release")
            return
        start(self._instances(), "instances")
        start(parts.keeper.run(), "node")
        start(self._serve(), "service")
        start(parts.monitor.run(), "monitor")

    def not_ready_reason(self) -> str:
        """Return why pods cannot be served now; empty if they can."""
        parts = self.parts
        if not parts.around.synced:
            return "not all watches of the API server have synced yet"
        if self.options.withdraw:  # the DaemonSet goes on to the next node
            return ""
        if parts.survey.hardware is None:
            return "the driver has not answered yet"
        if (hung := parts.survey.hung_call) is not None:
            return f"the driver hangs: {hung.call} has been running for {hung.seconds:.0f} s"
        return parts.around.plugin_conflict or (
            "" if parts.keeper.serving else "not registered with kubelet"
        )

    async def _status(self) -> Never:
        """Write the status once the instances are known; until then the previous status stays.

        A status without them would take every GPU in MIG mode out of service for a moment.
        """
        parts = self.parts
        changed = parts.around.subscribe()
        while not (parts.survey.settled or self.options.withdraw):
            await changed.wait()
            changed.clear()
        await parts.writer.run()

    async def _release_forever(self) -> Never:
        """Release containers that a killed agent may have left held back."""
        while True:
            await self.parts.monitor.release()
            await asyncio.sleep(EVERY)

    async def _instances(self) -> Never:
        """Look at what is cut already, then keep it as the ledger says."""
        parts = self.parts
        changed = parts.around.subscribe()
        while parts.survey.hardware is None:  # a driver that is being installed
            await changed.wait()
            changed.clear()
        await parts.instances.settle()
        parts.survey.settled = True
        parts.survey.renew()
        parts.around.notify()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_promises())
            group.create_task(parts.instances.run())
        raise RuntimeError("the task of the MIG instances ended")

    async def _follow_promises(self) -> Never:
        """Pass on what is promised, and at which places containers may run."""
        informer = self.parts.around
        changed = informer.subscribe()
        while True:
            await changed.wait()
            changed.clear()
            stored_gpu_node = informer.gpu_node
            if stored_gpu_node is None or not informer.synced:
                continue
            ledger = stored_gpu_node.ledger
            same = ledger.boot == self.parts.boot
            held = [entry for entry in ledger.entries if same and entry.uid in ledger.held]
            await self.parts.instances.set_desired(
                placements(ledger.entries), held=placements(held)
            )

    async def _with_cdi(self, runtime: str) -> bool:
        """Say whether *runtime* hears of devices through CDI, as it is configured now."""
        major = containerd_major(runtime)
        known = await asyncio.to_thread(configurations, self.options.root, major=major)
        found = reads_cdi(runtime, known)
        paths = [one.path for one in known]
        log.info("container runtime inspected", runtime=runtime, configured=paths, reads_cdi=found)
        return found

    async def _serve(self) -> Never:
        """Serve kubelet once it is known how this node is set up."""
        parts = self.parts
        informer, changed = parts.around, parts.around.subscribe()
        while not informer.is_configured or informer.node is None:
            await changed.wait()
            changed.clear()
        with_cdi = await self._with_cdi(informer.node.runtime)
        promises = EntryClient(
            self.client, informer, parts.writer, devices=parts.devices, unguarded=not with_cdi
        )
        backing = PluginServices(
            informer=informer,
            survey=parts.survey,
            keeper=parts.keeper,
            promises=promises,
            instances=parts.instances,
            regions=parts.regions,
            alive=parts.alive,
            news=parts.announcements,
        )
        await Service(backing, parts.paths, cdi=parts.cdi if with_cdi else None).run()
