"""Registers the plugin with kubelet, again whenever kubelet forgets it; node lock.

``node_lock`` keeps two agents from serving one node. RegistrationClient waits for kubelet, serves,
registers and watches until the registration is lost, then starts over after a back-off.
"""

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NewType, Protocol

import structlog

from agent.deviceplugin import grpc_client
from agent.deviceplugin.plugin_server import DeviceStreams
from agent.proto import deviceplugin_pb2 as pb
from kube.clock import SYSTEM, Clock

_LOCK_INTERVAL: Final = 0.5  # seconds between tries
ENDPOINT: Final = "vgpu-admission.sock"
KUBELET: Final = "kubelet.sock"
_VERSION: Final = "v1beta1"
_POLL_INTERVAL: Final = 0.5  # seconds between checks of the sockets
_REGISTER_TIMEOUT: Final = 15.0  # seconds for Register: kubelet dials back meanwhile, for up to 10
_LISTEN_TIMEOUT: Final = 10.0  # seconds from Register to kubelet's ListAndWatch call
_GRACE: Final = 1.0  # seconds for calls in flight: an Allocate cut off would fail its pod
_STABLE_SECONDS: Final = 60.0  # a registration that lasted this long resets the back-off
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.2, 10.0  # seconds of back-off
_SocketIdentity = NewType("_SocketIdentity", tuple[int, int, int])


@asynccontextmanager
async def node_lock(lock: Path) -> AsyncIterator[None]:
    """Wait until no other process holds the file *lock*, and hold it; raises OSError.

    The kernel releases it when the process ends, however that happens.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    waiting = False
    with lock.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    structlog.get_logger().warning(
                        "waiting for another agent to exit", lock=str(lock)
                    )
                waiting = True
            await asyncio.sleep(_LOCK_INTERVAL)
        yield


class _LostError(Exception):
    """The registration ended, or was never complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPaths:
    """The resource that the plugin serves, and the paths that it uses."""

    resource: str
    folder: Path  # of kubelet's sockets for device plugins
    lock: Path  # the file that keeps two agents from serving one node
    endpoint: str = ENDPOINT  # name of the plugin's socket
    has_prestart: bool = True  # whether the plugin has PreStartContainer


class ServedPlugin(Protocol):
    """What answers kubelet's calls."""

    @property
    def handlers(self) -> Collection[grpc_client.Handler]:
        """Return the gRPC handlers."""

    @property
    def streams(self) -> DeviceStreams:
        """Return its ListAndWatch calls."""

    async def recover(self) -> None:
        """Take over what the last process left; raises OSError."""


class RegistrationClient:
    """Keeps *plugin* registered with kubelet at *paths*."""

    def __init__(self, plugin: ServedPlugin, paths: PluginPaths, *, clock: Clock = SYSTEM) -> None:
        """Touch nothing yet."""
        self._plugin = plugin
        self._paths = paths
        self._clock = clock
        self._streams = 0
        self._listened = False
        self._streams_changed = asyncio.Event()
        self.registered = False
        self.on_change: Callable[[], None] = lambda: None
        plugin.streams.on_streams = self._note_streams

    async def run(self) -> None:
        """Serve and register until cancelled, as soon as no other process does; raises OSError."""
        async with node_lock(self._paths.lock):
            await self._plugin.recover()  # now that nobody else writes to the slots
            failures = 0
            while True:
                kubelet = await self._wait_for_kubelet()
                began = self._clock.monotonic()
                try:
                    await self._serve_registered(kubelet)
                except (_LostError, grpc_client.CallError, OSError) as error:
                    seconds = self._clock.monotonic() - began
                    failures = 1 if seconds >= _STABLE_SECONDS else failures + 1
                    structlog.get_logger().warning(
                        "not registered with kubelet", why=str(error), failures=failures
                    )
                await self._back_off(kubelet, failures)

    def _note_streams(self, streams: int) -> None:
        self._streams = streams
        self._listened = True
        self._streams_changed.set()

    async def _wait_for_kubelet(self) -> _SocketIdentity:
        """Return the identity of kubelet's socket, once there is one.

        Nothing is served before that: a kubelet that starts removes the sockets of plugins.
        """
        while (kubelet := _socket_identity(self._paths.folder / KUBELET)) is None:
            await self._clock.sleep(_POLL_INTERVAL)
        return kubelet

    async def _serve_registered(self, kubelet: _SocketIdentity) -> None:
        """Serve and register; raises _LostError when registration ends, CallError if it fails."""
        self._listened = False
        async with self._serve_plugin() as own:
            await self._register()
            self._note_registered(registered=True)
            structlog.get_logger().info("registered with kubelet", resource=self._paths.resource)
            try:
                await self._watch(kubelet, own)
            finally:
                self._note_registered(registered=False)

    def _note_registered(self, *, registered: bool) -> None:
        self.registered = registered
        self.on_change()

    @asynccontextmanager
    async def _serve_plugin(self) -> AsyncIterator[_SocketIdentity]:
        """Serve while the block runs: kubelet calls back before it answers Register."""
        server = grpc_client.GrpcServer(self._plugin.handlers)
        path = self._paths.folder / self._paths.endpoint
        try:
            await server.start(path)
            own = _socket_identity(path)
            if own is None:
                raise _LostError(f"{path} disappeared right after its creation")
            yield own
        finally:
            self._plugin.streams.hang_up()
            await server.stop(_GRACE)

    async def _register(self) -> None:
        channel = grpc_client.Channel(self._paths.folder / KUBELET)
        request = pb.RegisterRequest(
            version=_VERSION,
            endpoint=self._paths.endpoint,
            resource_name=self._paths.resource,
            options=pb.DevicePluginOptions(pre_start_required=self._paths.has_prestart),
        )
        try:
            await channel.call(grpc_client.REGISTER, request, within=_REGISTER_TIMEOUT)
        finally:
            await channel.close()

    async def _watch(self, kubelet: _SocketIdentity, own: _SocketIdentity) -> None:
        """Raise _LostError when kubelet no longer knows the plugin."""
        folder, began = self._paths.folder, self._clock.monotonic()
        while True:
            if _socket_identity(folder / KUBELET) != kubelet:
                raise _LostError("kubelet restarted: its socket is a new one")
            if _socket_identity(folder / self._paths.endpoint) != own:
                raise _LostError("the plugin's socket was removed or replaced")
            if self._listened and not self._streams:
                raise _LostError("kubelet ended its ListAndWatch call")
            if not self._listened and self._clock.monotonic() - began > _LISTEN_TIMEOUT:
                raise _LostError("kubelet accepted the plugin but did not call ListAndWatch")
            self._streams_changed.clear()
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_INTERVAL):
                await self._streams_changed.wait()

    async def _back_off(self, kubelet: _SocketIdentity, failures: int) -> None:
        """Wait before the next attempt; return at once when kubelet restarts."""
        remaining = self._clock.backoff(failures, first=_FIRST_BACKOFF, most=_LONGEST_BACKOFF)
        while remaining > 0:
            step = min(_POLL_INTERVAL, remaining)
            await self._clock.sleep(step)
            remaining -= step
            if _socket_identity(self._paths.folder / KUBELET) not in {kubelet, None}:
                return


def _socket_identity(socket: Path) -> _SocketIdentity | None:
    """Return what distinguishes this socket from a later one of its name; inodes are reused."""
    try:
        status = socket.stat()
    except OSError:
        return None
    return _SocketIdentity((status.st_dev, status.st_ino, status.st_ctime_ns))
