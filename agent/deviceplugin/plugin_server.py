"""DevicePlugin: answers kubelet's calls about slots.

Allocate is never refused, because kubelet would fail the pod for good. It does not name the pod, so
its answer depends on the slot alone; PreStart reports whatever is wrong with the container.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Final, Protocol

import structlog

from agent.deviceplugin import grpc_client
from agent.deviceplugin.container_edits import NOTHING_VISIBLE, VISIBLE
from agent.deviceplugin.slot_files import SlotFiles
from agent.node.slots import NO_SLOTS, SlotOffer, is_slot, list_slots
from agent.proto import deviceplugin_pb2 as pb
from agent.share import NotYetError

_HEALTHY: Final = "Healthy"
_UNHEALTHY: Final = "Unhealthy"


class StartHandler(Protocol):
    """Prepares starts of containers."""

    async def start(self, slots: Collection[str]) -> None:
        """Return when it may; raises NotYetError."""

    def note_assigned(self, slots: Collection[str]) -> None:
        """Note that kubelet assigns *slots* to a new container."""


class DeviceStreams:
    """ListAndWatch: each caller gets *devices*, and again after each change of them."""

    def __init__(self, devices: Callable[[], Iterable[pb.Device]]) -> None:
        """Serve nobody yet."""
        self._devices = devices
        self._changed = asyncio.Event()
        self._streams = 0
        self._generation = 0  # of streams
        self.on_streams: Callable[[int], None] = lambda _: None

    def notify(self) -> None:
        """Send the devices to all callers."""
        self._changed.set()
        self._changed = asyncio.Event()

    def hang_up(self) -> None:
        """End all calls."""
        self._generation += 1
        self.notify()

    async def watch(self, _: pb.Empty) -> AsyncIterator[pb.ListAndWatchResponse]:
        """Yield all devices, and again after each change; kubelet writes a file for each."""
        generation = self._generation
        self._streams += 1
        self.on_streams(self._streams)
        try:
            while generation == self._generation:
                changed = self._changed
                yield pb.ListAndWatchResponse(devices=self._devices())
                await changed.wait()
        finally:
            self._streams -= 1
            self.on_streams(self._streams)


async def plugin_options(_: pb.Empty) -> pb.DevicePluginOptions:
    """Ask kubelet to call before every start of a container."""
    return pb.DevicePluginOptions(pre_start_required=True)


class DevicePlugin:
    """Answers kubelet's calls; ``offer`` replaces the slots that kubelet sees."""

    def __init__(self, slots: SlotFiles, starts: StartHandler) -> None:
        """Offer nothing yet."""
        self._slots = slots
        self._starts = starts
        self._offer = NO_SLOTS
        self.streams = DeviceStreams(self._devices)

    @property
    def handlers(self) -> tuple[grpc_client.Handler, ...]:
        """Return the gRPC handlers; GetPreferredAllocation is not implemented."""
        return (
            grpc_client.unary_handler(grpc_client.OPTIONS, plugin_options),
            grpc_client.stream_handler(grpc_client.WATCH, self.streams.watch),
            grpc_client.unary_handler(grpc_client.ALLOCATE, self.allocate),
            grpc_client.unary_handler(grpc_client.PRESTART, self._prestart),
        )

    async def recover(self) -> None:
        """Take over the slots as the last process left them; raises OSError."""
        await asyncio.to_thread(self._slots.recover)

    def offer(self, offer: SlotOffer) -> None:
        """Send *offer* to kubelet, if it changed."""
        if offer != self._offer:
            self._offer = offer
            self.streams.notify()

    def _devices(self) -> list[pb.Device]:
        return [
            pb.Device(ID=name, health=_HEALTHY if healthy else _UNHEALTHY)
            for name, healthy in list_slots(self._offer, self._slots.used_slots)
        ]

    async def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        """Answer for the slots that kubelet assigns to the containers of one pod."""
        answers = [
            self._allocate_container(container_request.devices_ids)
            for container_request in request.container_requests
        ]
        return pb.AllocateResponse(container_responses=answers)

    def _allocate_container(self, slots: Collection[str]) -> pb.ContainerAllocateResponse:
        """Answer for one container; until PreStart says otherwise, it sees no GPU."""
        answer = pb.ContainerAllocateResponse(envs={VISIBLE: NOTHING_VISIBLE})
        if not slots or not all(map(is_slot, slots)):
            structlog.get_logger().warning("Allocate for unknown slots", slots=list(slots))
            return answer
        self._starts.note_assigned(slots)
        try:
            self._slots.empty(slots)
        except OSError as error:  # PreStart fails for the same reason and may refuse
            structlog.get_logger().warning("slots not emptied", slots=list(slots), error=str(error))
        allocation = self._slots.allocation(slots, soft=self._offer.soft)
        if allocation.device is not None:
            answer.cdi_devices.add(name=allocation.device)
        for mount in allocation.mounts:
            answer.mounts.add(
                container_path=mount.path, host_path=mount.host, read_only=mount.read_only
            )
        return answer

    async def _prestart(self, request: pb.PreStartContainerRequest) -> pb.PreStartContainerResponse:
        try:
            await self._starts.start(request.devices_ids)
        except NotYetError as error:
            raise grpc_client.CallError(grpc_client.Code.NOT_YET, str(error)) from error
        return pb.PreStartContainerResponse()
