"""HTTP of every program: uvicorn, behind connections that neither grow nor stay without end.

Whoever reaches a port may open connections, so what one of them can take is bounded here, once for
all ports, and so is how many there are. Where there are too many, those go that have not yet asked
anything, the oldest first: whoever floods a port crowds out itself.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Never

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
# The API server keeps idle connections for 90 s; a server that closes them sooner makes it
# write into a closed connection now and then, which fails the pod.
KEEP_ALIVE: Final = 120
BACKLOG: Final = 2048
SHUTDOWN_SECONDS: Final = 5.0  # for the other side to end TLS, too
RETRY_SECONDS: Final = 0.1  # until the next accept, where this process has no more descriptors
CLOSE: Final = (b"connection", b"close")
PEER_CERTIFICATE: Final = "peer_certificate"  # in scope["state"]: what the caller showed, DER


def anybody(_host: str) -> bool:
    """Admit callers at any address."""
    return True


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen; port 0 takes a free one.

    Callers at an address for which *admits* returns false are not answered at all.
    """

    host: str
    port: int
    admits: Callable[[str], bool] = anybody


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one connection, whoever is at its other end, and of their number at one port.

    API servers write some kilobytes of headers, send at once what they have to say, and read at
    once what they asked for.
    """

    head: int = 16 * 1024  # bytes of a request that are not its body, trailers too
    headers: int = 128  # of a request, and its trailers
    request_seconds: float = 30.0  # for a whole request, the first of a connection too
    reader_seconds: float = 10.0  # in which none of what was written is read
    connections: int = 1024
    handshakes: int = 256  # of TLS at a time; some 50 KiB each
    handshake_seconds: float = 10.0
    sweep_seconds: float = 2.0  # between two looks for connections that are too slow


class Bounded(HttpToolsProtocol):
    """One connection that neither grows nor stays without end."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    waiting: ClassVar[dict["Bounded", float]]  # since when each owes us a request; oldest first
    _overhead: int = 0  # bytes of the request that is coming in, without its body
    _stalled: float | None = None  # loop time since which nobody reads; None: somebody does

    @staticmethod
    def admits(host: str) -> bool:
        """Say whether callers at an address are answered."""
        return anybody(host)

    @classmethod
    def with_limits(
        cls, limits: ConnectionLimits, admits: Callable[[str], bool]
    ) -> type["Bounded"]:
        """Return the protocol for the connections of one port."""
        members = {"limits": limits, "waiting": {}, "admits": staticmethod(admits)}
        return type(cls.__name__, (cls,), members)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Await a request; of too many connections end one."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (shown := tls.getpeercert(binary_form=True)):
            self.app_state[PEER_CERTIFICATE] = shown
        if len(self.connections) > self.limits.connections:
            surplus = next(iter(self.waiting), self)
            self.waiting.pop(surplus, None)
            surplus.transport.abort()
        self._await_request()

    def _await_request(self) -> None:
        self.waiting.pop(self, None)
        if self in self.connections:
            self.waiting[self] = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Take what came, and end the connection where a request has too long a head."""
        if self.client is not None and not self.admits(self.client[0]):
            self.send_400_response("callers at this address are not answered")
            return
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > self.limits.head and not self.transport.is_closing():
            self.send_400_response(f"headers are over {self.limits.head} bytes")
        if self.timeout_keep_alive_task is None and self._is_idle() and self not in self.waiting:
            self._await_request()  # what came began no request

    def _is_idle(self) -> bool:
        """Say whether no answer is due."""
        return self.cycle is None or self.cycle.response_complete

    def on_message_begin(self) -> None:
        """Give the request its time from here on."""
        super().on_message_begin()
        self._await_request()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header; many small ones take much more memory than they have bytes."""
        if len(self.headers) >= self.limits.headers:
            raise ValueError(f"over {self.limits.headers} headers")
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body, which has bounds of its own."""
        self._overhead = max(0, self._overhead - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Await nothing more."""
        self._overhead = 0
        self.waiting.pop(self, None)
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Read no more requests of somebody who does not read answers."""
        super().pause_writing()
        self._stalled = self.loop.time()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Go on reading."""
        super().resume_writing()
        self._stalled = None
        self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Go on with the next request if this answer could be written."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_request()  # it should leave, and has as long for that
        elif self.flow.write_paused:
            self.flow.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Await nothing of somebody who has gone."""
        self.waiting.pop(self, None)
        super().connection_lost(exc)

    def abort_if_slow(self, now: float) -> None:
        """End the connection if its other side has kept us waiting for too long."""
        waited = now - self.waiting.get(self, now)
        stalled = 0.0 if self._stalled is None else now - self._stalled
        if waited > self.limits.request_seconds or stalled > self.limits.reader_seconds:
            self.transport.abort()


class _Server(uvicorn.Server):
    """A uvicorn server of one socket, which leaves signals to the program that runs several.

    It accepts one connection in a turn of the loop, so that those that are there get their turns.
    """

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, limits: ConnectionLimits
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._limits = limits
        self._handshakes: dict[asyncio.Task[None], None] = {}  # oldest first
        self._tasks: list[asyncio.Task[Never]] = []

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 -- uvicorn's
        self.servers = []
        self._listener.settimeout(0)
        self._tasks = [asyncio.create_task(work) for work in (self._accept(), self._end_slow())]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in (*self._tasks, *self._handshakes):
            task.cancel()
        self._listener.close()
        await super().shutdown(sockets)

    async def _accept(self) -> Never:
        """Take connections; one that has not come through its handshake gives way to newer ones."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if len(self._handshakes) >= self._limits.handshakes:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            task = loop.create_task(self._connect(accepted))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))
            await asyncio.sleep(0)

    async def _connect(self, accepted: socket.socket) -> None:
        """Shake hands, after which the protocol has the connection."""
        loop = asyncio.get_running_loop()
        tls = self.config.ssl
        seconds = {
            "ssl_handshake_timeout": self._limits.handshake_seconds,
            "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
        }
        with contextlib.suppress(OSError):  # as all errors of TLS are
            await loop.connect_accepted_socket(
                self._protocol, accepted, ssl=tls, **(seconds if tls else {})
            )

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}
        )
        return made

    async def _end_slow(self) -> Never:
        """End connections that are too slow, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._limits.sweep_seconds)
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, Bounded):
                    connection.abort_if_slow(loop.time())


@contextlib.asynccontextmanager
async def serve(  # noqa: PLR0913 -- what is served where, by which rules
    app: App,
    listen: Listen,
    *,
    context: ssl.SSLContext | None = None,
    drain: int = 10,
    protocol: type[Bounded] = Bounded,
    limits: ConnectionLimits = ConnectionLimits(),
) -> AsyncIterator[int]:
    """Serve *app* while the block runs, yield the port, then finish what is in flight.

    *drain* is how many seconds open requests get at the end. Raises ``OSError`` where the address
    cannot be bound.
    """
    # Bound here and not by uvicorn, which ends the process where the address is taken.
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.create_server((listen.host, listen.port), family=family, backlog=BACKLOG)
    config = uvicorn.Config(
        app,
        http=protocol.with_limits(limits, listen.admits),
        ws="none",
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="error",  # a line for each bad request would fill a disk
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=drain,
        backlog=BACKLOG,
        ssl_context_factory=None if context is None else lambda _, __: context,
    )
    server = _Server(config, listener, limits)
    port = int(listener.getsockname()[1])
    task = asyncio.create_task(server.serve(), name=f"serve {port}")
    try:
        while not server.started:
            if task.done():
                await task
                raise OSError(f"the server on {listen.host}:{port} ended at once")
            await asyncio.sleep(0.01)
        yield port
    finally:
        server.should_exit = True
        await task
