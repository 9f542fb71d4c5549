"""A server, one follower of its nodes, and a record of all that it published."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from kube.client import Client
from kube.config import Access
from kube.watch import WatchHealth, WatchSource, follow
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer, StreamedLists
from tests.fakes.kube_clock import FakeClock

NODES = "/api/v1/nodes"


class Meta(msgspec.Struct):
    name: str
    labels: dict[str, str] | None = None


class Node(msgspec.Struct):
    metadata: Meta


SOURCE: WatchSource[Node] = WatchSource(
    path=NODES,
    decode=msgspec.json.Decoder(Node).decode,
    key=lambda node: node.metadata.name,
)

Picture = Mapping[str, Node]


class Watched:
    """A server, one follower of it, and all that it published."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.time = FakeClock()
        self.pulse = WatchHealth()
        self.pictures: list[Picture] = []

    def add(self, *names: str) -> None:
        for name in names:
            self.server.objects.create(parsed(NODES), {"metadata": {"name": name}})

    def remove(self, name: str) -> None:
        self.server.objects.delete(parsed(f"{NODES}/{name}"))

    async def follow(self, source: WatchSource[Node] = SOURCE) -> None:
        access = Access(url=self.server.url)
        async with Client(access, clock=self.time.clock()) as client:
            await follow(
                client, source, self.pictures.append, health=self.pulse, clock=self.time.clock()
            )

    async def until(self, *names: str) -> None:
        """Wait for the picture that shows exactly *names*."""
        await self.until_true(lambda: bool(self.pictures) and set(self.pictures[-1]) == set(names))

    async def until_true(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - a test looks from outside
                await asyncio.sleep(0.002)

    def queries(self, key: str) -> list[str | None]:
        return [request.query.get(key) for request in self.server.requests]


def watching(
    scenario: Callable[[Watched], Awaitable[None]],
    *,
    streamed: StreamedLists = StreamedLists.SERVED,
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    source: WatchSource[Node] = SOURCE,
) -> Watched:
    async def play() -> Watched:
        async with ApiServer() as server:
            server.streamed_lists = streamed
            watched = Watched(server)
            watched.add("a", "b")
            following = asyncio.create_task(watched.follow(source))
            await watched.until("a", "b")
            await watched.until_true(lambda: bool(server.streams))
            await scenario(watched)
            following.cancel()
            await asyncio.wait([following])
            assert following.cancelled()
        return watched

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(play())
