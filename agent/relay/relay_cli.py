"""The command of the relay: keeps the device plugin registered while the agent restarts."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Never

import click
import structlog

from agent.deviceplugin import grpc_client
from agent.deviceplugin.registration_client import KUBELET, PluginPaths, RegistrationClient
from agent.node import paths_cli
from agent.node.paths_cli import below
from agent.relay.closing_client import close_node
from agent.relay.relay_server import Relay
from allocator.cli.options import access, context, kubeconfig, log_lines, run_to_end
from allocator.cli.process import background, stop_event
from kube.client import Client
from kube.config import Access

# For the agent, which is told to end at the same time; of the DaemonSet's grace period of 20.
AGENT_SECONDS: Final = 15.0
STATE: Final = Path("var/lib/vgpu-admission")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """The options of the command line."""

    access: Access
    node: str  # name of our Node
    root: Path  # of the node
    host_root: Path  # of the node, as we see it
    kubelet: Path  # kubelet's directory
    folder: Path  # of the sockets of relay and agent


@dataclass(slots=True)
class RelayTasks:
    """The tasks of one relay."""

    options: RelayOptions
    client: Client
    closing: asyncio.Task[None] | None = None
    relay: Relay = field(init=False)

    def __post_init__(self) -> None:
        """Build the relay."""
        self.relay = Relay(
            self.options.host_root,
            self.options.folder,
            note_absence=self._close_node,
        )

    async def serve(self) -> Never:
        """Serve the agent until cancelled; raises OSError."""
        socket = self.options.folder / KUBELET
        self.options.folder.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server = grpc_client.GrpcServer(self.relay.registration_handlers)
        await server.start(socket)
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(0)
        raise RuntimeError("the server ended")

    async def register(self) -> Never:
        """Keep the plugin registered with kubelet once an agent has listed its devices.

        Raises OSError, and RuntimeError once an agent serves another resource than before.
        """
        await self.relay.listed.wait()
        paths = PluginPaths(
            resource=self.relay.resource,
            folder=self.options.kubelet / "device-plugins",
            lock=self.options.root / STATE / "relay.lock",
        )
        registration = RegistrationClient(self.relay, paths)
        registration.on_change = lambda: self.relay.note_registered(
            registered=registration.registered
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(registration.run())
            await self.relay.renamed.wait()
            raise RuntimeError("the agent serves another resource now")

    def _close_node(self) -> None:
        if self.closing is None or self.closing.done():
            self.closing = asyncio.create_task(close_node(self.client, self.options.node))

    async def wait_for_agent_to_leave(self) -> None:
        """Return once the agent has hung up, which it does when no pod is on its way any more."""
        try:
            async with asyncio.timeout(AGENT_SECONDS):
                await self.relay.left.wait()
        except TimeoutError:
            log.warning("ending before the agent")


async def run(options: RelayOptions) -> None:
    """Run until SIGTERM or SIGINT, and then until the agent has left; raises OSError."""
    stop = stop_event()
    async with Client(options.access) as client, background() as start:
        tasks = RelayTasks(options, client)
        start(tasks.serve(), "server")
        start(tasks.register(), "registration")
        log.info("relay serving", folder=str(options.folder), node=options.node)
        await stop.wait()
        await tasks.wait_for_agent_to_leave()


@click.command("relay")
@click.option("--node-name", "node", envvar="NODE_NAME", required=True, help="name of this node")
@paths_cli.root
@paths_cli.kubelet
@paths_cli.host_root
@click.option(
    "--relay-dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="directory where the agent registers; `vgpu agent --relay-dir` takes the same",
)
@kubeconfig
@context
def relay(  # noqa: PLR0913 -- the options
    *,
    node: str,
    root: Path,
    kubelet: Path,
    host_root: Path,
    folder: Path,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Keep the device plugin registered with kubelet while the agent restarts."""
    log_lines()
    options = RelayOptions(
        access=access(kubeconfig, context),
        node=node,
        root=root,
        host_root=below(root, host_root),
        kubelet=kubelet,
        folder=folder,
    )
    run_to_end(run(options))
