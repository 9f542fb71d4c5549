"""podresources: kubelet's list of which container holds which slots."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.deviceplugin import grpc_client
from agent.deviceplugin.identity import ListedContainer, PodName
from agent.proto import podresources_pb2 as pb
from kube.clock import SYSTEM, Clock

# Every client of a node shares 100 calls a second, with bursts of 10.
_TRIES: Final = 100
_CALL_TIMEOUT: Final = 5.0  # seconds for one answer
# A pod with hundreds of devices of other plugins has each of them listed.
_MOST_BYTES: Final = 16 * 1024 * 1024


class PodResources:
    """The containers that hold slots of *resource*, as the kubelet behind *socket* lists them."""

    def __init__(self, socket: Path, resource: str, *, clock: Clock = SYSTEM) -> None:
        """Connect at the first call."""
        self._channel = grpc_client.Channel(socket, most_bytes=_MOST_BYTES)
        self._resource = resource
        self._clock = clock

    async def list(self) -> tuple[ListedContainer, ...]:
        """Return app containers and sidecars of active pods; raises CallError."""
        answer = await self._list_with_retries()
        return tuple(
            listed_container
            for pod in answer.pod_resources
            for listed_container in self._container_slots(pod)
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _list_with_retries(self) -> pb.ListPodResourcesResponse:
        """Call, and again after a short pause while kubelet's rate limit rejects it."""
        request = pb.ListPodResourcesRequest()
        for _ in range(_TRIES - 1):
            try:
                return await self._channel.call(grpc_client.LIST, request, within=_CALL_TIMEOUT)
            except grpc_client.CallError as error:
                if error.code is not grpc_client.Code.BUSY:
                    raise
            await self._clock.sleep(self._clock.uniform(0.010, 0.030))
        return await self._channel.call(grpc_client.LIST, request, within=_CALL_TIMEOUT)

    def _container_slots(self, pod: pb.PodResources) -> Iterator[ListedContainer]:
        name = PodName(pod.namespace, pod.name)
        for container in pod.containers:
            slots = frozenset(
                slot
                for devices in container.devices
                if devices.resource_name == self._resource
                for slot in devices.device_ids
            )
            if slots:
                yield ListedContainer(name=name, container=container.name, slots=slots)
