"""Runs a simulated MetaX node: keeps its Node as MetaX's components would, and serves kubelet."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

import structlog

from agent.deviceplugin.grpc_client import CallError
from agent.deviceplugin.podresources_client import PodResources
from agent.deviceplugin.registration_client import PluginPaths, RegistrationClient
from agent.metax.machine import MetaxMachine
from agent.metax.node_client import MetaxNode, MetaxNodeClient
from agent.metax.plugin_server import MetaxPlugin
from agent.metax.published import NO_MARKS, node_marks
from allocator.catalog.keys import NOT_READY_TAINT
from allocator.metax.node_modes import NodeMode
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError

ENDPOINT: Final = "metax-simulated.sock"
INTERVAL: Final = 1.0  # seconds between two looks at the Node
_LONGEST_PAUSE: Final = 30.0
_LAST_SECONDS: Final = 5.0  # for a departure, of the DaemonSet's grace period of 20
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaxPaths:
    """Directories of the node."""

    kubelet: Path
    state: Path  # ours, for files that outlive the agent


class MetaxSimulation:
    """The tasks of a simulated MetaX node."""

    def __init__(
        self,
        machine: MetaxMachine,
        api_client: ApiClient,
        paths: MetaxPaths,
        *,
        node: str,
        clock: Clock = SYSTEM,
    ) -> None:
        """Touch nothing yet."""
        self._machine = machine
        self._node = MetaxNodeClient(api_client, node)
        self._paths = paths
        self._clock = clock
        plugin_paths = PluginPaths(
            resource=machine.resource,
            folder=paths.kubelet / "device-plugins",
            lock=paths.state / "metax.lock",
            endpoint=ENDPOINT,
            has_prestart=False,
        )
        self._registration = RegistrationClient(
            MetaxPlugin(machine, self._node), plugin_paths, clock=clock
        )
        self._lister = PodResources(
            paths.kubelet / "pod-resources/kubelet.sock", machine.resource, clock=clock
        )
        self._may_serve = asyncio.Event()
        self._obstacle = "its Node has not been read yet"
        self._was_selected = False

    def not_ready_reason(self) -> str:
        """Return why no pod can be served; empty if they can."""
        if self._obstacle:
            return self._obstacle
        return "" if self._registration.registered else "not registered with kubelet"

    async def publish(self) -> Never:
        """Keep the annotations and labels of the Node as they should be, for ever."""
        failures = 0
        while True:
            try:
                await self.sweep()
                failures = 0
            except (KubeError, CallError) as error:
                failures += 1
                log.warning("Node not updated", why=str(error))
            pause = self._clock.backoff(failures, first=INTERVAL, most=_LONGEST_PAUSE)
            await self._clock.sleep(pause if failures else INTERVAL)

    async def sweep(self) -> None:
        """Bring the Node up to date once; raises KubeError, and CallError where kubelet is away."""
        node = await self._node.read()
        self._was_selected |= node.is_selected
        obstacle = "" if self._may_serve.is_set() else self._obstacle_of(node)
        if obstacle != self._obstacle and obstacle:
            log.warning("not serving", why=obstacle)
        self._obstacle = obstacle
        if obstacle:
            return
        taken = await self._taken()
        if changes := node_marks(self._machine, taken).changes(node.annotations, node.labels):
            await self._node.write(changes)
        self._may_serve.set()
        if self._registration.registered and NOT_READY_TAINT in node.taints:
            await self._node.remove_taint(node)

    async def serve(self) -> None:
        """Serve kubelet once the Node is as it should be, until cancelled; raises OSError."""
        await self._may_serve.wait()
        await self._registration.run()

    async def withdraw_forever(self) -> Never:
        """Withdraw, and again until that has succeeded and after others have written."""
        while True:
            try:
                await self.withdraw()
            except KubeError as error:
                log.warning("withdrawal incomplete", why=str(error))
            await self._clock.sleep(INTERVAL)

    async def withdraw(self) -> None:
        """Remove from the Node what was written there; raises KubeError."""
        node = await self._node.read()
        if changes := NO_MARKS.changes(node.annotations, node.labels):
            await self._node.write(changes)

    async def depart(self) -> None:
        """Withdraw if the DaemonSet selects the Node no longer; the agent is about to end."""
        if not self._was_selected:
            return
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                if not (await self._node.read()).is_selected:
                    await self.withdraw()
        except (KubeError, TimeoutError) as error:
            log.warning("withdrawal incomplete", why=str(error) or type(error).__name__)

    async def close(self) -> None:
        """Close the connection to kubelet."""
        await self._lister.close()

    def _obstacle_of(self, node: MetaxNode) -> str:
        """Return why nothing may be offered on *node* yet, if so.

        The two resources are the same GPUs, so one is offered only when kubelet has no more of the
        other. A Node that an agent has marked is read as that agent's.
        """
        if node.has_agent:
            return (
                "the Node is still marked by an agent that simulated GPUs of NVIDIA's here; "
                "let it withdraw first (--withdraw)"
            )
        other = self._machine.other_resource
        if node.allocatable.get(other, "0") != "0":
            return f"kubelet still offers {other}"
        return ""

    async def _taken(self) -> frozenset[str]:
        """Return the devices that containers have, which matters for whole GPUs only."""
        if self._machine.mode is NodeMode.SGPU:
            return frozenset()
        listed = await self._lister.list()
        return frozenset(device for container in listed for device in container.slots)
