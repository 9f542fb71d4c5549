"""A Service in miniature: one port whose connections, or requests, go to the replicas in turn."""

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from itertools import count
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CHUNK: Final = 1 << 16
_LENGTH: Final = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)


@contextlib.contextmanager
def forwarding(ports: Sequence[int], *, by_request: bool = False) -> Iterator[int]:
    """Yield a port; what connects to it reaches one of *ports*, unless all refuse.

    A caller with one connection reaches one replica, as kube-scheduler does; *by_request* each of
    its requests, which are HTTP without TLS, goes to the replica whose turn it is.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="forwarder")
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    forwarder = _Forwarder(ports, by_request=by_request)
    try:
        yield run(forwarder.begin())
    finally:
        run(forwarder.end())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Forwarder:
    def __init__(self, ports: Sequence[int], *, by_request: bool) -> None:
        self._ports = ports
        self._way = self._each_request if by_request else self._forward
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
        task = asyncio.get_running_loop().create_task(self._way(reader, writer))
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

    async def _each_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with _closing(writer):
            while (request := await _message(reader)) and (found := await self._backend()):
                answers, onward = found
                async with _closing(onward):
                    onward.write(request)
                    answer = await _message(answers)
                if not answer:
                    return  # who died over it is not asked again by us, but by the caller
                writer.write(answer)
                await writer.drain()

    async def _backend(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect to the replica whose turn it is, or to the next that does not refuse."""
        number, size = next(self._turn), len(self._ports)
        # 0, 1, 1, 0: else, of two questions that alternate, each would always go the same way.
        turn = number + number // size
        for offset in range(size):
            port = self._ports[(turn + offset) % size]
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read a request or an answer that tells its length; nothing where the peer has gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        return head + await reader.readexactly(0 if length is None else int(length[1]))
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


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
