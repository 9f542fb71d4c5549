"""The agent: AgentParts builds the parts and wires them, Agent starts their tasks, run() serves."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

import structlog

from agent.deviceplugin.entry_client import EntryClient
from agent.deviceplugin.shares import placements_of
from agent.doctor.exposure import exposure
from agent.doctor.facts_files import configurations, toolkit_configs
from agent.driver.driver import Device
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
from agent.monitor.violation import LocalPod
from agent.node.capacity_controller import CapacityController
from agent.node.node_informer import NodeInformer
from agent.node.paths_cli import below
from agent.node.process_files import Processes
from agent.node.status_controller import StatusController, StatusFacts
from agent.region.library_files import Absent, Installed, sweep
from agent.region.region_files import RegionFiles
from agent.serve.device_plugin import (
    DevicePluginService,
    Paths,
    PluginServices,
    runtime_reads_cdi,
)
from agent.serve.handover import close_left_open, hand_over
from agent.serve.monitor_view import Evictor, MonitorView, update_foreign_use
from agent.serve.mps_service import NO_CDI, MpsParts, MpsService, mps_service
from agent.serve.node_audit import NodeAudit
from agent.serve.node_events import REPORTER, NodeEvents
from agent.serve.node_reports import NodeReports
from agent.serve.options import AgentOptions, DriverKind, boot_of, driver_of, installed_library
from agent.serve.withdrawal_controller import INTERVAL, WithdrawalController
from allocator.cli.http_server import serve
from allocator.cli.process import Start, background, stop_event
from allocator.cli.status_server import STATUS_LIMITS, status_app
from allocator.model.request import Mode
from kube.client import Client, version
from kube.clock import SYSTEM
from kube.events import Recorder, Reference

STATE_DIRECTORY: Final = "var/lib/vgpu-admission"
CDI_DIRECTORY: Final = "var/run/cdi"
log = structlog.get_logger(__name__)


class AgentParts:
    """The parts of one agent; none of them runs by itself."""

    def __init__(self, options: AgentOptions, client: Client) -> None:
        """Open the node's files; raises OSError, FleetError or JournalInUseError."""
        root = options.root
        self._options = options
        self.boot = boot_of(root)
        self.paths = self._paths()
        self.node_informer = NodeInformer(client, options.node, options.namespace)
        self.recorder = Recorder(client, controller=REPORTER, instance=options.node)
        self.metrics = self._metrics()
        self.audit = NodeAudit(options, self.node_informer, self.metrics, version=self.version)
        self.node_reports = NodeReports(
            NodeEvents(self._node, self.recorder.record), self.audit.records
        )
        self.driver_thread = DriverThread(driver_of(options, self.paths.state, boot=self.boot))
        self.processes = Processes(root)
        self.hardware_informer = self._hardware_informer()
        self.journal = self._journal()
        self.instances = InstancesController(
            self._mig_services(), changed=self.hardware_informer.refresh
        )
        self.hardware_informer.instances = self.instances
        self.mps = self._mps()
        self.hardware_informer.mps = self.mps.controller
        self.status_controller = StatusController(client, self.node_informer, self._status_facts())
        self.capacity_controller = CapacityController(
            client,
            self.node_informer,
            lambda: self.hardware_informer.hardware,
            version=self.version,
        )
        library = installed_library(options, self.paths.host_root)
        self.regions = RegionFiles(self.paths.host_root, self.processes, library=library)
        self.monitor = Monitor(self._monitor_services(client, library))
        self.monitor.on_snapshot = lambda: update_foreign_use(self.hardware_informer, self.monitor)
        self.monitor.on_observed = self.audit.note_starts

    @property
    def version(self) -> str:
        """Return our version in the form of a label; it names the driver if that is simulated."""
        agent_version = version().replace("+", "-")
        return f"{agent_version}-{self._options.driver}" if self._is_simulated else agent_version

    @property
    def cdi(self) -> Path:
        """Return the folder from which a container runtime reads CDI documents."""
        return self._options.root / CDI_DIRECTORY

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs as far as they are known."""
        hardware = self.hardware_informer.hardware
        return () if hardware is None else hardware.devices

    async def uids_with_processes(self) -> frozenset[str]:
        """Return the uids of the pods that have processes on this node."""
        processes = await asyncio.to_thread(self.processes.pod_processes)
        return frozenset(process.cgroup.uid for process in processes if process.cgroup is not None)

    async def close(self) -> None:
        """Release held-back containers, then close the driver and the journal."""
        try:
            await self.monitor.release()
        finally:
            await self.driver_thread.close()
            self.journal.close()

    def _pods(self) -> Mapping[str, LocalPod]:
        return self._view.pods()

    @property
    def _view(self) -> MonitorView:
        return MonitorView(
            self.node_informer, self.hardware_informer, self.instances, self.mps.controller
        )

    @property
    def _is_simulated(self) -> bool:
        return self._options.driver is DriverKind.SIMULATED

    def _paths(self) -> Paths:
        state = self._options.root / STATE_DIRECTORY
        state.mkdir(parents=True, exist_ok=True)
        return Paths(
            root=self._options.root,
            host_root=below(self._options.root, self._options.host_root),
            kubelet=self._options.kubelet,
            state=state,
            relay=self._options.relay,
        )

    def _journal(self) -> Journal:
        journal = Journal(self.paths.state / "mig.journal", boot=self.boot)
        for damage in journal.damage:
            log.warning("damaged line in the MIG journal", what=damage)
        return journal

    def _metrics(self) -> AgentMetrics:
        return AgentMetrics(
            version=self.version,
            snapshot=lambda: self.monitor.snapshot,
            hung=lambda: 0.0 if (hung := self.driver_thread.hung_call) is None else hung.seconds,
            old=lambda: self.node_informer.settings.plugin_metrics,
        )

    def _hardware_informer(self) -> HardwareInformer:
        listeners = HardwareListeners(self.node_informer.notify, self.node_reports.record_health)
        policy = HealthPolicy(xids=self._options.xids)
        return HardwareInformer(self.driver_thread, listeners, policy=policy)

    def _status_facts(self) -> StatusFacts:
        root = self._options.root
        return StatusFacts(
            self.boot,
            lambda: self.hardware_informer.hardware,
            self.uids_with_processes,
            serving=lambda: self.capacity_controller.serving,
            simulated=self._is_simulated,
            exposed=exposure(configurations(root), toolkit_configs(root)),
        )

    def _mig_services(self) -> MigServices:
        root = self._options.root
        return MigServices(
            worker=self.driver_thread,
            journal=self.journal,
            device_files=NoFiles() if self._is_simulated else Capabilities(root),
            open_files=OpenFiles(root),
            clock=SYSTEM,
            count_outcome=self.metrics.count_reconfiguration,
            report=self.node_reports.record_reconfiguration,
            may_enable_mig=self._may_enable_mig,
        )

    def _mps(self) -> MpsService:
        parts = MpsParts(
            informer=self.node_informer,
            worker=self.driver_thread,
            hardware=lambda: self.hardware_informer.hardware,
            pods=self._pods,
            report=self.node_reports.record_mps_trouble,
            count=self.metrics.count_mps_trouble,
            changed=self.hardware_informer.refresh,
        )
        return mps_service(parts, self._options, self.paths, boot=self.boot)

    def _may_enable_mig(self) -> bool:
        """Say whether the node is configured for MIG, so that MIG mode may be enabled again."""
        node_config = self.node_informer.node_config
        return node_config is not None and node_config.mode is Mode.MIG

    def _monitor_services(self, client: Client, library: Installed | Absent) -> MonitorServices:
        def sweep_unused() -> object:
            return sweep(self.paths.host_root, library) if isinstance(library, Installed) else ()

        return MonitorServices(
            node=self._options.node,
            worker=self.driver_thread,
            source=self._view,
            inspector=Inspector(self.regions, self.processes),
            regions=self.regions,
            remove_unused=sweep_unused,
            evictor=Evictor(client, self.audit.records.write_eviction),
            events=self.node_reports,
            counters=self.metrics,
        )

    def _node(self) -> Reference:
        """Return the reference to our Node in Events."""
        node = self.node_informer.node
        uid = "" if node is None else node.uid
        return Reference(api_version="v1", kind="Node", name=self._options.node, uid=uid)


async def run(options: AgentOptions) -> None:
    """Run until SIGTERM or SIGINT; a task that fails ends the program.

    Raises OSError, FleetError or JournalInUseError if the agent cannot run on this node.
    """
    stop = stop_event()
    async with Client(options.access) as client:
        parts = AgentParts(options, client)
        try:
            async with parts.audit.deliver(), background() as start:
                agent = Agent(options, client, parts)
                agent.begin(start)
                answers = status_app(agent.not_ready_reason, parts.metrics.exposition)
                async with serve(answers, options.listen, limits=STATUS_LIMITS, drain=2) as port:
                    log.info("serving", port=port, version=parts.version, node=options.node)
                    await stop.wait()
                    if not options.withdraw:
                        await hand_over(parts.status_controller, parts.node_informer)
            await agent.withdrawal().depart(parts.status_controller)
        finally:
            await parts.close()


@dataclass(slots=True)
class Agent:
    """The tasks of one agent, over its parts."""

    options: AgentOptions
    client: Client
    parts: AgentParts

    def begin(self, start: Start) -> None:
        """Start all tasks, or those of the withdrawal."""
        parts = self.parts
        start(parts.node_informer.run(), "watches")
        start(parts.recorder.run(), "events")
        start(parts.audit.run(), "records")
        start(parts.audit.follow_certificate(), "audit certificate")
        start(parts.hardware_informer.run(), "survey")
        start(self._status(), "status")
        if self.options.withdraw:
            parts.status_controller.leaving = True
            start(self.withdrawal().run(), "withdrawal")
            start(self._release_forever(), "release")
            return
        start(self._instances(), "instances")
        start(parts.capacity_controller.run(), "node")
        start(self._serve(), "service")
        start(parts.monitor.run(), "monitor")

    def withdrawal(self) -> WithdrawalController:
        """Return what removes this agent from its node."""
        parts = self.parts
        controller = WithdrawalController(
            parts.node_informer,
            parts.capacity_controller,
            parts.paths,
            cdi=parts.cdi,
            alive=parts.uids_with_processes,
        )
        controller.mps = parts.mps
        return controller

    def not_ready_reason(self) -> str:
        """Return why pods cannot be served now; empty if they can."""
        parts = self.parts
        if not parts.node_informer.synced:
            return "not all watches of the API server have synced yet"
        if self.options.withdraw:  # the DaemonSet goes on to the next node
            return ""
        if parts.hardware_informer.hardware is None:
            return "the driver has not answered yet"
        if (hung := parts.hardware_informer.hung_call) is not None:
            return f"the driver hangs: {hung.call} has been running for {hung.seconds:.0f} s"
        return parts.node_informer.plugin_conflict or (
            "" if parts.capacity_controller.serving else "not registered with kubelet"
        )

    async def _status(self) -> Never:
        """Close the node until kubelet knows our slots, and write the status from then on.

        It is written once the instances are known: a status without them would take every GPU in
        MIG mode out of service for a moment.
        """
        parts = self.parts
        changed = parts.node_informer.subscribe()
        if not self.options.withdraw:
            await close_left_open(parts.status_controller, parts.node_informer)
        while not (parts.hardware_informer.instances_known or self.options.withdraw):
            await changed.wait()
            changed.clear()
        await parts.status_controller.run()

    async def _release_forever(self) -> Never:
        """Release containers that a killed agent may have left held back."""
        while True:
            await self.parts.monitor.release()
            await asyncio.sleep(INTERVAL)

    async def _instances(self) -> Never:
        """Settle the existing instances, then keep them in line with the ledger."""
        parts = self.parts
        changed = parts.node_informer.subscribe()
        while parts.hardware_informer.hardware is None:  # a driver that is being installed
            await changed.wait()
            changed.clear()
        await parts.instances.settle()
        parts.hardware_informer.instances_known = True
        parts.hardware_informer.refresh()
        parts.node_informer.notify()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_entries())
            group.create_task(parts.instances.run())
            group.create_task(parts.mps.run())
        raise RuntimeError("the task of the MIG instances ended")

    async def _follow_entries(self) -> Never:
        """Pass on which placements are promised, and in which of them containers may run."""
        informer = self.parts.node_informer
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
            self.parts.mps.follow()
            await self.parts.instances.set_desired(
                placements_of(ledger.entries), held=placements_of(held)
            )

    async def _serve(self) -> Never:
        """Serve kubelet once it is known how this node is set up."""
        parts = self.parts
        informer, changed = parts.node_informer, parts.node_informer.subscribe()
        while not informer.is_configured or informer.node is None:
            await changed.wait()
            changed.clear()
        with_cdi = await runtime_reads_cdi(informer.node.runtime, self.options.root)
        parts.mps.controller.refusal = "" if with_cdi else NO_CDI
        entries = EntryClient(
            self.client,
            informer,
            parts.status_controller,
            devices=parts.devices,
            unguarded=not with_cdi,
        )
        services = PluginServices(
            informer=informer,
            hardware_informer=parts.hardware_informer,
            capacity_controller=parts.capacity_controller,
            entries=entries,
            instances=parts.instances,
            regions=parts.regions,
            mps=parts.mps.controller,
            alive=parts.uids_with_processes,
            events=parts.node_reports,
            hasten=parts.status_controller.hasten,
        )
        await DevicePluginService(services, parts.paths, cdi=parts.cdi if with_cdi else None).run()
