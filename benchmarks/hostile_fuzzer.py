"""Raw connections as strangers make them: silent, slow, endless, half way, never reading.

``python -m benchmarks.hostile_fuzzer HOOKS STATUS SECONDS`` attacks two ports of this machine.
"""

import asyncio
import contextlib
import random
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
import uvloop

HOST: Final = "127.0.0.1"
RATE: Final = 1024 * 1024  # bytes a second, of all connections together
WORKERS: Final = 300  # connections at a time
LONGEST: Final = 20.0  # seconds that one connection is held at most
PIECE: Final = 4096  # bytes that are sent at a time
BODY: Final = 7 * 1024 * 1024
HOOK: Final = "/mutate/pods"
HEAD: Final = f"POST {HOOK}/{'0' * 64} HTTP/1.1\r\nHost: a\r\n".encode()
SEED: Final = 20261124


@dataclass(slots=True)
class Budget:
    """Bytes that may be sent, *rate* a second."""

    rate: float
    _next: float = 0.0  # loop time at which another piece may be sent

    async def take(self, count: int) -> None:
        """Wait until *count* more bytes may be sent."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self._next)
        self._next = begin + count / self.rate
        await asyncio.sleep(begin - now)


@dataclass(slots=True)
class Stranger:
    """One connection: what it says, and that it does not care for answers."""

    budget: Budget
    rng: random.Random
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, text: bytes) -> None:
        """Send *text* in pieces; raises ``OSError`` once the other side has ended."""
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            await self.budget.take(len(piece))
            if self.reader.at_eof() or self.writer.transport.is_closing():
                raise ConnectionResetError
            self.writer.write(piece)
            await self.writer.drain()

    async def repeat(self, text: bytes, times: int) -> None:
        """Send *text* again and again."""
        for _ in range(times):
            await self.say(text)

    async def wait(self) -> None:
        """Keep the connection for a while, and do nothing."""
        await asyncio.sleep(self.rng.uniform(0, LONGEST))

    def stop_reading(self) -> None:
        """Take no answers from now on."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]


Attack = Callable[[Stranger], Awaitable[None]]


async def _silence(stranger: Stranger) -> None:
    await stranger.wait()


async def _garbage(stranger: Stranger) -> None:
    await stranger.say(stranger.rng.randbytes(64 * 1024))


async def _half_a_head(stranger: Stranger) -> None:
    await stranger.say(HEAD[: stranger.rng.randrange(len(HEAD))])
    await stranger.wait()


async def _byte_by_byte(stranger: Stranger) -> None:
    for byte in HEAD:
        await stranger.say(bytes((byte,)))
        await asyncio.sleep(0.2)


async def _huge_headers(stranger: Stranger) -> None:
    await stranger.say(HEAD)
    await stranger.repeat(b"X-A: " + b"a" * 8000 + b"\r\n", 200)


async def _tiny_headers(stranger: Stranger) -> None:
    await stranger.say(HEAD + b"a:\r\n" * 100_000)


async def _one_header(stranger: Stranger) -> None:
    await stranger.say(HEAD + b"X-A: " + b"a" * 1_000_000)


async def _huge_path(stranger: Stranger) -> None:
    await stranger.say(b"POST /" + b"a" * 1_000_000)


async def _chunks(stranger: Stranger) -> None:
    await stranger.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    await stranger.repeat(b"400\r\n" + b"b" * 1024 + b"\r\n", 1000)


async def _trailers(stranger: Stranger) -> None:
    await stranger.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
    await stranger.repeat(b"X-A: " + b"a" * 1000 + b"\r\n", 1000)


async def _large_body(stranger: Stranger) -> None:
    await stranger.say(HEAD + b"Content-Length: %d\r\n\r\n" % BODY)
    await stranger.repeat(b" " * PIECE, BODY // PIECE)


async def _half_a_body(stranger: Stranger) -> None:
    await stranger.say(HEAD + b"Content-Length: 1000\r\n\r\n{")
    await stranger.wait()


async def _pipelined(stranger: Stranger) -> None:
    await stranger.repeat((HEAD + b"Content-Length: 0\r\n\r\n") * 20, 200)


async def _not_reading(stranger: Stranger) -> None:
    stranger.stop_reading()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            ask = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
            await stranger.repeat((ask + HEAD + b"Content-Length: 0\r\n\r\n") * 20, 100)
    await stranger.wait()


ATTACKS: Final[Sequence[Attack]] = (
    _silence,
    _garbage,
    _half_a_head,
    _byte_by_byte,
    _huge_headers,
    _tiny_headers,
    _one_header,
    _huge_path,
    _chunks,
    _trailers,
    _large_body,
    _half_a_body,
    _pipelined,
    _not_reading,
)


def _hello() -> bytes:
    """Return what a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talking = _careless().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        talking.do_handshake()
    return outgoing.read()


def _careless() -> ssl.SSLContext:
    """Return the TLS of a client that trusts anybody."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _half_a_handshake(stranger: Stranger) -> None:
    hello = _hello()
    cut = stranger.rng.choice((len(hello), stranger.rng.randrange(len(hello))))
    await stranger.say(hello[:cut])
    await stranger.wait()


@dataclass(slots=True)
class Fuzzer:
    """Attacks the *hooks*, behind TLS, and the *status* port, until it is told to stop."""

    hooks: int
    status: int
    rng: random.Random = field(default_factory=lambda: random.Random(SEED))
    budget: Budget = field(default_factory=lambda: Budget(RATE))
    counts: Counter[str] = field(default_factory=Counter)
    _plans: Iterator[tuple[Attack, int, bool]] = field(init=False)

    def __post_init__(self) -> None:
        self._plans = self._endless_plans()

    def _endless_plans(self) -> Iterator[tuple[Attack, int, bool]]:
        """Yield attacks in turn: behind TLS, before TLS, and where there is none."""
        bare = (_silence, _garbage, _half_a_handshake, _half_a_handshake)
        plans = [
            *((attack, self.hooks, True) for attack in ATTACKS),
            *((attack, self.hooks, False) for attack in bare),
            *((attack, self.status, False) for attack in ATTACKS),
        ]
        while True:
            self.rng.shuffle(plans)
            yield from plans

    async def run(self, seconds: float, *, workers: int = WORKERS) -> None:
        """Attack for so many *seconds*."""
        tasks = [asyncio.create_task(self._work()) for _ in range(workers)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises what ended it

    async def _work(self) -> None:
        while True:
            attack, port, tls = next(self._plans)
            self.counts[attack.__name__.strip("_")] += 1
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LONGEST):
                    await self._attack(attack, port, tls=tls)
            await asyncio.sleep(0.01)

    async def _attack(self, attack: Attack, port: int, *, tls: bool) -> None:
        context = _CARELESS if tls else None
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context, limit=PIECE)
        try:
            await attack(Stranger(self.budget, self.rng, reader, writer))
        finally:
            writer.transport.abort()


_CARELESS: Final = _careless()


def main(arguments: Sequence[str]) -> int:
    """Attack, and say how often each way."""
    hooks, status, seconds = arguments
    fuzzer = Fuzzer(int(hooks), int(status))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(fuzzer.run(float(seconds)))
    sys.stdout.buffer.write(orjson.dumps(fuzzer.counts, option=orjson.OPT_APPEND_NEWLINE))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
