"""The agent program: driver, watches, status, device plugin and metrics, wired and kept alive.

The plugin registers as soon as the slots are known, because kubelet fails bound pods while their
plugin is missing. PreStart decides what a container gets, so nothing else has to be ready by then.
A stopping agent leaves everything on the node for its successor, except that it releases the
containers it holds back.
"""

import asyncio
from dataclasses import dataclass
from typing import Never

import structlog

from agent.core.runtimes import containerd_major, reads_cdi
from agent.core.sharing import placements
from agent.shell.nodefacts import configurations
from agent.shell.options import AgentOptions
from agent.shell.parts import AgentParts
from agent.shell.promises import EntryClient
from agent.shell.server import Answers, serve_http
from agent.shell.service import PluginServices, Service
from agent.shell.withdrawal import EVERY, WithdrawalController
from allocator.shell.tasks import Start, background, stop_event
from kube.client import Client

log = structlog.get_logger(__name__)


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
        around = self.parts.around
        changed = around.subscribe()
        while True:
            await changed.wait()
            changed.clear()
            found = around.gpu_node
            if found is None or not around.synced:
                continue
            ledger = found.ledger
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
        around, changed = parts.around, parts.around.subscribe()
        while not around.is_configured or around.node is None:
            await changed.wait()
            changed.clear()
        with_cdi = await self._with_cdi(around.node.runtime)
        promises = EntryClient(
            self.client, around, parts.writer, devices=parts.devices, unguarded=not with_cdi
        )
        backing = PluginServices(
            around=around,
            survey=parts.survey,
            keeper=parts.keeper,
            promises=promises,
            instances=parts.instances,
            regions=parts.regions,
            alive=parts.alive,
            news=parts.announcements,
        )
        await Service(backing, parts.paths, cdi=parts.cdi if with_cdi else None).run()
