"""The connection of the relay to the agent that registered with it last."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from agent.deviceplugin import grpc_client
from agent.proto import deviceplugin_pb2 as pb

DIAL_SECONDS: Final = 5.0  # for the agent to answer when it has just registered
log = structlog.get_logger(__name__)


class AgentClient:
    """Calls the agent that listens on *socket*, and learns from it which devices there are."""

    def __init__(self, socket: Path) -> None:
        """Connect at the first call."""
        self._channel = grpc_client.Channel(socket)
        self._followed: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Return if an agent answers; raises CallError."""
        await self._channel.call(grpc_client.OPTIONS, pb.Empty(), within=DIAL_SECONDS)

    def follow(
        self, learn: Callable[[Sequence[pb.Device]], None], lost: Callable[["AgentClient"], None]
    ) -> None:
        """Pass each list of devices to *learn*, and call *lost* once the agent is gone."""

        async def listen() -> None:
            try:
                async for answer in self._channel.follow(grpc_client.WATCH, pb.Empty()):
                    learn(answer.devices)
            except grpc_client.CallError as error:
                log.warning("the agent is gone", why=str(error))
            else:
                log.info("the agent has hung up")
            lost(self)

        self._followed = asyncio.create_task(listen())

    async def allocate(self, request: pb.AllocateRequest, *, within: float) -> pb.AllocateResponse:
        """Return the agent's answer; raises CallError."""
        return await self._channel.call(grpc_client.ALLOCATE, request, within=within)

    async def prestart(
        self, request: pb.PreStartContainerRequest, *, within: float
    ) -> pb.PreStartContainerResponse:
        """Return the agent's answer; raises CallError."""
        return await self._channel.call(grpc_client.PRESTART, request, within=within)

    async def close(self) -> None:
        """End all calls; the agent then registers again."""
        if self._followed is not None:
            self._followed.cancel()
        await self._channel.close()
