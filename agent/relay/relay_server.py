"""Relay: stands between kubelet and the agent, so that kubelet does not notice the agent's death.

Kubelet fails a pod for good that it admits while no device plugin serves. The relay is the plugin
that kubelet knows. It is small, runs in a container of its own, and outlives the agent:

- The agent registers with the relay as it would with kubelet.
- ListAndWatch passes on what the agent listed last.
- Allocate is passed on. If the agent is gone the relay answers it alone, because the answer depends
  on the slot and on what the agent wrote down (``SlotSetup``).
- PreStartContainer is passed on. If the agent is gone it waits for the next one, and then refuses;
  kubelet calls again.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import structlog

from agent.deviceplugin import grpc_client
from agent.deviceplugin.grpc_client import CallError, Code
from agent.deviceplugin.plugin_server import DevicePlugin, DeviceStreams, plugin_options
from agent.deviceplugin.slot_files import SlotFiles, read_setup
from agent.node.slots import SlotOffer
from agent.proto import deviceplugin_pb2 as pb
from agent.relay.agent_client import AgentClient
from agent.share import NotYetError

ALLOCATE_SECONDS: Final = 3.0  # kubelet admits no other pod meanwhile
START_SECONDS: Final = 28.0  # kubelet gives up after 30
KUBELET_SECONDS: Final = 12.0  # for kubelet to register us; the agent gives up after 15
POLL_SECONDS: Final = 0.1
ABSENT: Final = "the agent of this node is being restarted; the container starts once it is back"
SLOW: Final = "the agent of this node did not answer in time"
log = structlog.get_logger(__name__)


class _AbsentAgent:
    """Starts of containers while there is no agent."""

    async def start(self, slots: Collection[str]) -> None:  # noqa: ARG002 -- the protocol's
        """Refuse; raises NotYetError."""
        raise NotYetError(ABSENT)

    def note_assigned(self, slots: Collection[str]) -> None:
        """Do nothing: no start is under way."""


class Relay:
    """Serves kubelet, and the agent as kubelet would."""

    def __init__(
        self,
        host_root: Path,
        folder: Path,
        *,
        note_absence: Callable[[], None],
        start_seconds: float = START_SECONDS,
    ) -> None:
        """Listen nowhere yet.

        *host_root* is the folder of the node's slots, *folder* that of the agent's socket.
        *note_absence* is called when the agent is gone. A start of a container is refused after
        *start_seconds* without an agent.
        """
        self._start_seconds = start_seconds
        self._host_root = host_root
        self._folder = folder
        self._note_absence = note_absence
        self._registered = asyncio.Event()
        self._agent: AgentClient | None = None
        self._devices: Sequence[pb.Device] = ()
        self._closing: set[asyncio.Task[None]] = set()
        self.resource = ""  # that the agent serves
        self.listed = asyncio.Event()  # set once an agent has said which devices there are
        self.renamed = asyncio.Event()  # set once an agent serves another resource than before
        self.left = asyncio.Event()  # set while there is no agent
        self.left.set()
        self.streams = DeviceStreams(lambda: self._devices)

    @property
    def handlers(self) -> tuple[grpc_client.Handler, ...]:
        """Return what kubelet calls."""
        return (
            grpc_client.unary_handler(grpc_client.OPTIONS, plugin_options),
            grpc_client.stream_handler(grpc_client.WATCH, self.streams.watch),
            grpc_client.unary_handler(grpc_client.ALLOCATE, self._allocate),
            grpc_client.unary_handler(grpc_client.PRESTART, self._prestart),
        )

    @property
    def registration_handlers(self) -> tuple[grpc_client.Handler, ...]:
        """Return what the agent calls."""
        return (grpc_client.unary_handler(grpc_client.REGISTER, self._register),)

    async def recover(self) -> None:
        """Do nothing: the slots belong to the agent."""

    def note_registered(self, *, registered: bool) -> None:
        """Note whether kubelet knows us. If not, hang up on the agent, which closes the node."""
        if registered:
            self._registered.set()
        else:
            self._registered.clear()
            self._drop_agent()

    def _drop_agent(self) -> None:
        if self._agent is not None:
            self._close(self._agent)
            self._agent = None
            self.left.set()

    async def _register(self, request: pb.RegisterRequest) -> pb.Empty:
        """Take the agent that calls for the one to pass calls to, once kubelet knows us."""
        if self.resource not in {"", request.resource_name}:
            text = f"kubelet knows {self.resource}; the relay starts again for another resource"
            self.renamed.set()
            raise CallError(Code.NOT_YET, text)
        if "/" in request.endpoint or not request.endpoint:
            raise CallError(Code.NOT_YET, "the endpoint must be the name of a socket")
        agent = AgentClient(self._folder / request.endpoint)
        try:
            await agent.check()
        except CallError:
            await agent.close()
            raise
        self._drop_agent()
        self._agent = agent
        self.left.clear()
        self.resource = request.resource_name
        agent.follow(self._learn, self._lose)
        try:
            async with asyncio.timeout(KUBELET_SECONDS):
                await self._registered.wait()
        except TimeoutError as error:
            raise CallError(Code.NOT_YET, "kubelet does not know the relay yet") from error
        log.info("passing kubelet's calls to the agent", resource=self.resource)
        return pb.Empty()

    def _learn(self, devices: Sequence[pb.Device]) -> None:
        self._devices = tuple(devices)
        self.listed.set()
        self.streams.notify()

    def _lose(self, agent: AgentClient) -> None:
        self._close(agent)
        if self._agent is agent:
            self._agent = None
            self.left.set()
            self._note_absence()

    def _close(self, agent: AgentClient) -> None:
        task = asyncio.create_task(agent.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        if (agent := self._agent) is not None:
            try:
                return await agent.allocate(request, within=ALLOCATE_SECONDS)
            except CallError as error:
                log.warning("answering Allocate without the agent", why=str(error))
        setup = await asyncio.to_thread(read_setup, self._host_root)
        if setup is None:
            raise CallError(Code.NOT_YET, "no agent of this node has ever served")
        cdi = None if setup.cdi is None else Path(setup.cdi)
        alone = DevicePlugin(SlotFiles(self._host_root, cdi=cdi), _AbsentAgent())
        alone.offer(SlotOffer(total=0, healthy=0, soft=setup.soft))
        return await alone.allocate(request)

    async def _prestart(self, request: pb.PreStartContainerRequest) -> pb.PreStartContainerResponse:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._start_seconds
        while (left := until - loop.time()) > 0:
            if (agent := self._agent) is not None:
                try:
                    return await agent.prestart(request, within=left)
                except CallError as error:
                    if error.code is Code.LATE:
                        raise CallError(Code.NOT_YET, SLOW) from error
                    if error.code is not Code.AWAY:
                        raise CallError(error.code, error.details) from error
                    log.warning("the agent died during a start", why=str(error))
            await asyncio.sleep(POLL_SECONDS)
        raise CallError(Code.NOT_YET, ABSENT)
