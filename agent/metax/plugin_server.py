"""The device plugin of a simulated MetaX node: what kubelet sees, and what a container gets.

A native node offers its GPUs by UUID, and kubelet's choice counts. A node in mode sgpu offers
numbered shares, which name no GPU: a container gets those that the annotation of its pod names.
"""

import asyncio
from collections.abc import Collection, Iterator
from typing import Final

import structlog

from agent.deviceplugin import grpc_client
from agent.deviceplugin.plugin_server import DeviceStreams
from agent.metax.allocation import AllocationError, next_devices
from agent.metax.machine import MetaxMachine
from agent.metax.node_client import MetaxNodeClient
from agent.proto import deviceplugin_pb2 as pb
from allocator.metax.node_modes import NodeMode
from kube.errors import KubeError

VISIBLE: Final = "METAX_VISIBLE_DEVICES"  # of the simulation; MetaX's plugin mounts device files
_HEALTHY: Final = "Healthy"
_UNHEALTHY: Final = "Unhealthy"
log = structlog.get_logger(__name__)


class MetaxPlugin:
    """Answers kubelet's calls about the GPUs of *machine*."""

    def __init__(self, machine: MetaxMachine, node: MetaxNodeClient) -> None:
        """Have served nobody."""
        self._machine = machine
        self._node = node
        self._devices = tuple(_devices(machine))
        self._known = {card.uuid for card in machine.cards}
        self._turn = asyncio.Lock()
        # How many containers of the pod that holds the lock have their GPUs. Only in memory, so a
        # pod whose plugin restarts between two of its containers fails.
        self._serving, self._served = "", 0
        self.streams = DeviceStreams(lambda: self._devices)

    @property
    def handlers(self) -> tuple[grpc_client.Handler, ...]:
        """Return the gRPC handlers; there is no PreStartContainer."""
        return (
            grpc_client.unary_handler(grpc_client.OPTIONS, _options),
            grpc_client.stream_handler(grpc_client.WATCH, self.streams.watch),
            grpc_client.unary_handler(grpc_client.ALLOCATE, self.allocate),
        )

    async def recover(self) -> None:
        """Do nothing: the plugin keeps no files."""

    async def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        """Answer for containers of one pod; raises CallError, and kubelet fails the pod."""
        allocate = (
            self._allocate_shares if self._machine.mode is NodeMode.SGPU else self._allocate_whole
        )
        try:
            answers = [
                await allocate(container_request.devices_ids)
                for container_request in request.container_requests
            ]
        except (AllocationError, KubeError) as error:
            log.warning("Allocate refused", why=str(error))
            code = (
                grpc_client.Code.BROKEN
                if isinstance(error, AllocationError)
                else grpc_client.Code.AWAY
            )
            raise grpc_client.CallError(code, str(error)) from error
        return pb.AllocateResponse(container_responses=answers)

    async def _allocate_whole(self, ids: Collection[str]) -> pb.ContainerAllocateResponse:
        if unknown := sorted(set(ids) - self._known):
            raise AllocationError(f"unknown GPU {unknown[0][:64]}")
        return _answer(sorted(ids))

    async def _allocate_shares(self, ids: Collection[str]) -> pb.ContainerAllocateResponse:
        async with self._turn:
            node = await self._node.read()
            pod = await self._node.locked_pod(node)
            served = self._served if pod.uid == self._serving else 0
            given = next_devices(pod, node=self._node.name, served=served, count=len(ids))
            if unknown := sorted(set(given.uuids) - self._known):
                raise AllocationError(f"the pod was given {unknown[0][:64]}, which is not here")
            if given.is_last:
                await self._node.release_lock(node)
            self._serving, self._served = pod.uid, served + 1
            return _answer(given.uuids)


async def _options(_: pb.Empty) -> pb.DevicePluginOptions:
    return pb.DevicePluginOptions()


def _answer(uuids: Collection[str]) -> pb.ContainerAllocateResponse:
    return pb.ContainerAllocateResponse(envs={VISIBLE: ",".join(uuids)})


def _devices(machine: MetaxMachine) -> Iterator[pb.Device]:
    """Yield what kubelet counts: GPUs of a native node, else shares."""
    number = 0
    for card in machine.cards:
        health = _HEALTHY if card.healthy else _UNHEALTHY
        if machine.mode is NodeMode.NATIVE:
            yield pb.Device(ID=card.uuid, health=health)
            continue
        for _ in range(card.shares):
            yield pb.Device(ID=f"sgpu-{number:05d}", health=health)
            number += 1
