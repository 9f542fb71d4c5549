"""Registers with kubelet, again whenever it forgets; node lock."""

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NewType

import structlog

from agent.deviceplugin import grpc_client
from agent.deviceplugin.plugin_server import DevicePlugin
from agent.proto import deviceplugin_pb2 as pb
from kube.clock import SYSTEM, Clock

_AGAIN: Final = 0.5  # seconds between tries


@asynccontextmanager
async def node_lock(lock: Path) -> AsyncIterator[None]:
    """Wait until no other process holds the file *lock*, and hold it; raises OSError.

    The kernel releases it when its holder ends, however that happens.
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
            await asyncio.sleep(_AGAIN)
        yield


ENDPOINT: Final = "vgpu-admission.sock"
KUBELET: Final = "kubelet.sock"
_VERSION: Final = "v1beta1"
_POLL: Final = 0.5  # seconds between looks at the sockets
_DIAL: Final = 15.0  # seconds for Register: kubelet dials back meanwhile, for up to 10
_LISTEN: Final = 10.0  # seconds in which a kubelet that took us in begins to listen
_GRACE: Final = 1.0  # seconds for calls in flight: an Allocate cut off would fail its pod
_SOUND: Final = 60.0  # seconds after which a registration counts as one that held
_FIRST, _MOST = 0.2, 10.0  # seconds of back-off
_Identity = NewType("_Identity", tuple[int, int, int])


class _LostError(Exception):
    """The registration is no longer what it was, or never came to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPlace:
    """Where a plugin of *resource* is known: kubelet's *folder*; *lock* keeps a second one out."""

    resource: str
    folder: Path
    lock: Path


class RegistrationClient:
    """Keeps *plugin* known at its *place*."""

    def __init__(self, plugin: DevicePlugin, place: PluginPlace, *, clock: Clock = SYSTEM) -> None:
        """Touch nothing yet."""
        self._plugin = plugin
        self._place = place
        self._clock = clock
        self._streams = 0
        self._listened = False
        self._stirred = asyncio.Event()
        self.registered = False
        plugin.watched = self._note_streams

    async def run(self) -> None:
        """Serve and register until cancelled, as soon as no other process does; raises OSError."""
        async with node_lock(self._place.lock):
            await self._plugin.recover()  # now that nobody else writes to the slots
            failures = 0
            while True:
                kubelet = await self._kubelet()
                began = self._clock.monotonic()
                try:
                    await self._serve_registered(kubelet)
                except (_LostError, grpc_client.CallError, OSError) as error:
                    held = self._clock.monotonic() - began
                    failures = 1 if held >= _SOUND else failures + 1
                    structlog.get_logger().warning(
                        "not registered with kubelet", why=str(error), failures=failures
                    )
                await self._pause(kubelet, failures)

    def _note_streams(self, streams: int) -> None:
        self._streams = streams
        self._listened = True
        self._stirred.set()

    async def _kubelet(self) -> _Identity:
        """Return which kubelet there is, once there is one.

        Before that nothing is served: a kubelet that starts would remove the socket.
        """
        while (kubelet := _identity(self._place.folder / KUBELET)) is None:
            await self._clock.sleep(_POLL)
        return kubelet

    async def _serve_registered(self, kubelet: _Identity) -> None:
        """Serve and register; raises _LostError when that is over, CallError if it cannot be."""
        self._listened = False
        async with self._serve_plugin() as own:
            await self._register()
            self.registered = True
            structlog.get_logger().info("registered with kubelet", resource=self._place.resource)
            try:
                await self._watch(kubelet, own)
            finally:
                self.registered = False

    @asynccontextmanager
    async def _serve_plugin(self) -> AsyncIterator[_Identity]:
        """Serve while the block runs: kubelet calls back before it answers Register."""
        server = grpc_client.GrpcServer(self._plugin.handlers)
        path = self._place.folder / ENDPOINT
        try:
            await server.start(path)
            own = _identity(path)
            if own is None:
                raise _LostError(f"{path} disappeared right after its creation")
            yield own
        finally:
            self._plugin.hang_up()
            await server.stop(_GRACE)

    async def _register(self) -> None:
        channel = grpc_client.Channel(self._place.folder / KUBELET)
        request = pb.RegisterRequest(
            version=_VERSION,
            endpoint=ENDPOINT,
            resource_name=self._place.resource,
            options=pb.DevicePluginOptions(pre_start_required=True),
        )
        try:
            await channel.ask(grpc_client.REGISTER, request, within=_DIAL)
        finally:
            await channel.close()

    async def _watch(self, kubelet: _Identity, own: _Identity) -> None:
        """Raise _LostError when kubelet no longer knows the plugin."""
        folder, began = self._place.folder, self._clock.monotonic()
        while True:
            if _identity(folder / KUBELET) != kubelet:
                raise _LostError("kubelet restarted: its socket is a new one")
            if _identity(folder / ENDPOINT) != own:
                raise _LostError("the plugin's socket was removed or replaced")
            if self._listened and not self._streams:
                raise _LostError("kubelet ended its ListAndWatch call")
            if not self._listened and self._clock.monotonic() - began > _LISTEN:
                raise _LostError("kubelet accepted the plugin but did not call ListAndWatch")
            self._stirred.clear()
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL):
                await self._stirred.wait()

    async def _pause(self, kubelet: _Identity, failures: int) -> None:
        """Back off, but not from a kubelet that has come since."""
        left = self._clock.backoff(failures, first=_FIRST, most=_MOST)
        while left > 0:
            step = min(_POLL, left)
            await self._clock.sleep(step)
            left -= step
            if _identity(self._place.folder / KUBELET) not in {kubelet, None}:
                return


def _identity(socket: Path) -> _Identity | None:
    """Return what tells this socket from any other that takes its name; inodes are reused."""
    try:
        status = socket.stat()
    except OSError:
        return None
    return _Identity((status.st_dev, status.st_ino, status.st_ctime_ns))
