"""A kubelet's device manager on real sockets: how it registers, allocates, records and forgets."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agent.deviceplugin import grpc_client
from agent.proto import deviceplugin_pb2 as pb
from tests.fakes.kubelet_list import Held, PodResourcesServer

CHECKPOINT = "kubelet_internal_checkpoint"


@dataclass(slots=True)
class Client:
    """What kubelet keeps of one registered plugin: its connection and what it last listed."""

    channel: grpc_client.Channel
    endpoint: str
    options: pb.DevicePluginOptions  # as the plugin answers; kubelet goes by them
    announced: pb.DevicePluginOptions  # as it registered
    devices: dict[str, str] = field(default_factory=dict)
    stream: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Kubelet:
    """Implements kubelet's side of both protocols below *folder*.

    Clients are kept by resource name, with kubelet's bug: whoever's stream ends, the client that
    now has the name is disconnected (seen on 1.36.2). ``refusing`` makes Register fail.
    """

    folder: Path
    resource: str = "volcano.sh/vgpu-number"
    limit: bool = True
    registrations: int = 0
    refusing: str | None = None
    refused: int = 0
    clients: dict[str, Client] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    _server: grpc_client.GrpcServer | None = None
    _resources: PodResourcesServer | None = None
    _streams: set[asyncio.Task[None]] = field(default_factory=set)
    _admission: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def plugins(self) -> Path:
        return self.folder / "device-plugins"

    @property
    def socket(self) -> Path:
        return self.folder / "pod-resources" / "kubelet.sock"

    @property
    def checkpoint(self) -> Path:
        return self.plugins / CHECKPOINT

    async def start(self) -> None:
        """Come up as a new process: remove all sockets, listen, remember what is recorded."""
        self.plugins.mkdir(parents=True, exist_ok=True)
        self.socket.parent.mkdir(exist_ok=True)
        for path in self.plugins.iterdir():
            if path.is_socket():
                path.unlink()
        self._server = grpc_client.GrpcServer(
            (grpc_client.unary_handler(grpc_client.REGISTER, self._register),)
        )
        await self._server.start(self.plugins / "kubelet.sock")
        self._resources = PodResourcesServer(self.resource, self.held, limited=self.limit)
        await self._resources.start(self.socket)

    async def stop(self) -> None:
        """Die: connections end; sockets stay, as after a kill."""
        for stream in tuple(self._streams):
            stream.cancel()
        for client in self.clients.values():
            await client.channel.close()
        self.clients.clear()
        if self._server is not None:
            await self._server.stop(0)
        if self._resources is not None:
            await self._resources.stop()

    @property
    def calls(self) -> int:
        """Return how often podresources was asked."""
        return self._resources.calls if self._resources else 0

    @property
    def rejected(self) -> int:
        """Return how many of those calls met the rate limit."""
        return self._resources.rejected if self._resources else 0

    async def deafen(self) -> None:
        """Stop answering podresources."""
        if self._resources is not None:
            await self._resources.stop()

    async def _register(self, request: pb.RegisterRequest) -> pb.Empty:
        """Dial back before answering, as kubelet does."""
        if self.refusing is not None:
            self.refused += 1
            raise grpc_client.CallError(grpc_client.Code.OTHER, self.refusing)
        if request.version != "v1beta1" or request.resource_name != self.resource:
            raise grpc_client.CallError(grpc_client.Code.OTHER, "unsupported")
        channel = grpc_client.Channel(self.plugins / request.endpoint)
        options = await channel.call(grpc_client.OPTIONS, pb.Empty(), within=10)
        client = Client(channel, request.endpoint, options, request.options)
        self.clients[request.resource_name] = client
        client.stream = asyncio.create_task(self._listen(request.resource_name, client))
        self._streams.add(client.stream)
        client.stream.add_done_callback(self._streams.discard)
        self.registrations += 1
        return pb.Empty()

    async def _listen(self, name: str, client: Client) -> None:
        with contextlib.suppress(grpc_client.CallError):
            async for answer in client.channel.follow(grpc_client.WATCH, pb.Empty()):
                client.devices = {device.ID: device.health for device in answer.devices}
                self._record()
        present = self.clients.pop(name, None)  # by name: it may be another plugin's by now
        if present is not None and present is not client and present.stream is not None:
            present.stream.cancel()

    @property
    def client(self) -> Client:
        return self.clients[self.resource]

    @property
    def allocatable(self) -> int:
        """Return what the Node would show: healthy devices of a connected plugin."""
        client = self.clients.get(self.resource)
        return sum(health == "Healthy" for health in client.devices.values()) if client else 0

    def free(self) -> list[str]:
        used = {slot for held in self.held for slot in held.slots}
        devices = self.client.devices.items()
        return sorted(slot for slot, health in devices if health == "Healthy" and slot not in used)

    async def admit(
        self, uid: str, pod: str, *, container: str = "main", count: int = 1, init: bool = False
    ) -> Held:
        """Give a container slots, as kubelet admits a pod: one Allocate at a time, then recorded.

        Slots of the same pod's init containers are used again first.
        """
        async with self._admission:
            mine = [held for held in self.held if held.uid == uid]
            lasting = {slot for held in mine if not held.init for slot in held.slots}
            reuse = {slot for held in mine if held.init for slot in held.slots} - lasting
            slots = frozenset([*sorted(reuse), *self.free()][:count])
            asked = pb.ContainerAllocateRequest(devices_ids=sorted(slots, reverse=True))
            began = time.perf_counter()
            answer = await self.client.channel.call(
                grpc_client.ALLOCATE, pb.AllocateRequest(container_requests=[asked]), within=60
            )
            waited = time.perf_counter() - began
            held = Held(
                uid=uid, namespace="team-a", pod=pod, container=container, slots=slots, init=init
            )
            held.answer, held.waited = answer.container_responses[0], waited
            self.held.append(held)
            self._record()
            return held

    async def prestart(self, slots: Iterable[str], *, within: float = 30.0) -> None:
        """Ask whether the container may start; raises CallError as kubelet would show it."""
        request = pb.PreStartContainerRequest(devices_ids=sorted(slots, reverse=True))
        await self.client.channel.call(grpc_client.PRESTART, request, within=within)

    async def run(self, held: Held, *, tries: int = 10) -> int:
        """Start a container until it starts; return how often that was refused first."""
        for refused in range(tries):
            try:
                await self.prestart(held.slots)
            except grpc_client.CallError as error:
                if refused == tries - 1 or error.code is not grpc_client.Code.NOT_YET:
                    raise
            else:
                return refused
        raise AssertionError("unreachable")

    def forget(self, uid: str) -> None:
        """Free a pod's slots, as after its deletion, however forced."""
        self.held[:] = [held for held in self.held if held.uid != uid]

    def _record(self) -> None:
        """Write the checkpoint whole, under another name first."""
        entries = [
            {
                "PodUID": held.uid,
                "ContainerName": held.container,
                "ResourceName": self.resource,
                "DeviceIDs": {"-1": sorted(held.slots)},
                "AllocResp": "",
            }
            for held in self.held
        ]
        registered = {name: sorted(client.devices) for name, client in self.clients.items()}
        data = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
        draft = self.checkpoint.with_suffix(".tmp")
        draft.write_text(json.dumps({"Data": data, "Checksum": 1}))
        draft.replace(self.checkpoint)
