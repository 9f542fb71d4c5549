"""The podresources side of a kubelet: what it lists, and how often it may be asked."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agent.deviceplugin import grpc_client
from agent.proto import deviceplugin_pb2 as plugin
from agent.proto import podresources_pb2 as pb

RATE = 100  # calls a second, for all clients together
BURST = 10


@dataclass(slots=True, kw_only=True)
class Held:
    """One container of a pod and its slots, with what Allocate answered and how soon."""

    uid: str
    namespace: str
    pod: str
    container: str
    slots: frozenset[str]
    init: bool = False
    waited: float = 0.0  # seconds for Allocate
    answer: plugin.ContainerAllocateResponse = field(
        default_factory=plugin.ContainerAllocateResponse
    )


class PodResourcesServer:
    """Lists what is held: no uid, no init containers, one entry for each device."""

    def __init__(self, resource: str, held: list[Held], *, limited: bool) -> None:
        self._resource = resource
        self._held = held
        self._limited = limited
        self._tokens = float(BURST)
        self._at = time.monotonic()
        self.calls = 0
        self.rejected = 0
        self._server = grpc_client.GrpcServer(
            (grpc_client.unary_handler(grpc_client.LIST, self._list),)
        )

    async def start(self, socket: Path) -> None:
        await self._server.start(socket)

    async def stop(self) -> None:
        await self._server.stop(0)

    def _count(self) -> None:
        now = time.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._at) * RATE)
        self._at = now
        self.calls += 1
        if not self._limited:
            return
        if self._tokens < 1:
            self.rejected += 1
            raise grpc_client.CallError(grpc_client.Code.BUSY, "rejected by rate limit")
        self._tokens -= 1

    async def _list(self, _: pb.ListPodResourcesRequest) -> pb.ListPodResourcesResponse:
        self._count()
        return pb.ListPodResourcesResponse(pod_resources=self._pods())

    def _pods(self) -> Iterable[pb.PodResources]:
        pods: dict[tuple[str, str], pb.PodResources] = {}
        for held in self._held:
            key = held.namespace, held.pod
            pod = pods.setdefault(key, pb.PodResources(name=held.pod, namespace=held.namespace))
            if held.init:
                continue
            container = pod.containers.add(name=held.container)
            for slot in sorted(held.slots):
                container.devices.add(resource_name=self._resource, device_ids=[slot])
        return pods.values()
