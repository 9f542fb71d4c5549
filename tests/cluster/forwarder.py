"""A Service in miniature: one port whose connections go to the replicas in turn."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from itertools import count
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CHUNK: Final = 1 << 16


@contextlib.contextmanager
def forwarding(ports: Sequence[int]) -> Iterator[int]:
    """Yield a port; what connects to it reaches one of *ports*, unless all refuse."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="forwarder")
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    forwarder = _Forwarder(ports)
    try:
        yield run(forwarder.begin())
    finally:
        run(forwarder.end())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Forwarder:
    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._turn = count()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def end(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _closing(writer):
            found = await self._backend()
            if found is None:
                return
            answers, onward = found
            async with _closing(onward):
                # Whoever ends first ends both, as a dead peer's connection does.
                ways = [
                    asyncio.ensure_future(way)
                    for way in (_pump(reader, onward), _pump(answers, writer))
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _backend(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect to the replica whose turn it is, or to the next that does not refuse."""
        turn = next(self._turn)
        for offset in range(len(self._ports)):
            port = self._ports[(turn + offset) % len(self._ports)]
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
