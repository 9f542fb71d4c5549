"""An API server without a network between, whose requests and answers can be lost."""

import asyncio
import json
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Unpack

from kube.client import CallOptions
from kube.errors import UnreachableError, refusal
from tests.fakes.api_client import FakeApiClient
from tests.fakes.api_objects import Objects, parsed
from tests.fakes.api_rules import Json, RefusedError
from tests.fakes.kube_clock import FakeClock


class Line(Enum):
    """What the network does to the next call."""

    UP = auto()
    REQUEST_LOST = auto()
    ANSWER_LOST = auto()


class DirectStore(FakeApiClient):
    """Implements what elections and recorders need of a client, over shared *objects*.

    Each call lets others run, and takes ``latency`` seconds of *time* there and back.
    """

    def __init__(self, objects: Objects, time: FakeClock) -> None:
        self.objects = objects
        self.line = Line.UP
        self.latency = 0.0
        self._time = time

    async def get(self, path: str, **options: Unpack[CallOptions]) -> bytes:
        return await self._call(options, lambda: self.objects.read(parsed(path)))

    async def create(self, path: str, body: bytes, **options: Unpack[CallOptions]) -> bytes:
        return await self._call(
            options, lambda: self.objects.create(parsed(path), json.loads(body))
        )

    async def merge_patch(
        self, path: str, changes: Mapping[str, object], **options: Unpack[CallOptions]
    ) -> bytes:
        body = json.dumps(changes).encode()
        media = "application/merge-patch+json"
        return await self._call(options, lambda: self.objects.patch(parsed(path), media, body))

    async def _call(self, options: CallOptions, act: Callable[[], Json]) -> bytes:
        assert options.get("timeout", 1.0) > 0
        await self._travel()
        if self.line is Line.REQUEST_LOST:
            raise UnreachableError("the request was lost", sent=False)
        try:
            answer = json.dumps(act()).encode()
        except RefusedError as refused:
            raise refusal(json.dumps(refused.status()).encode(), status=refused.code) from refused
        await self._travel()
        if self.line is Line.ANSWER_LOST:
            raise UnreachableError("the answer was lost", sent=True)
        return answer

    async def _travel(self) -> None:
        self._time.now += self.latency
        await asyncio.sleep(0)
