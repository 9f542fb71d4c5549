"""A console's port for records: mutual TLS, and answers as scripted."""

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from allocator.audit.line_buffer import whole_line
from allocator.delivery.batch_text import read_batch
from kube.config import Access
from tests.fakes.pki import Authority

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SenderFiles:
    """What a sender has mounted."""

    folder: Path

    def write(self, authority: Authority, secret: bytes = b"token-1") -> None:
        issued = authority.issue("vgpu-audit-client")
        contents = {"ca.crt": authority.certificate, "tls.crt": issued.certificate}
        contents |= {"tls.key": issued.key, "token": secret}
        self.folder.mkdir(exist_ok=True)
        for name, content in contents.items():
            (self.folder / name).write_bytes(content)

    def access(self, url: str) -> Access:
        return Access(
            url=url,
            ca=self.folder / "ca.crt",
            certificate=self.folder / "tls.crt",
            key=self.folder / "tls.key",
            token=self.folder / "token",
        )


def response(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass(slots=True)
class RecordsConsole:
    """Stores each record once by its id, unless a script answers instead."""

    script: Script | None = None
    stored: dict[str, int] = field(default_factory=dict)  # how often each id came
    heads: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    calls: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head.decode())
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.calls += 1
                if self.script is None:
                    writer.write(response("200 OK", self.store(body)))
                    await writer.drain()
                else:
                    await self.script(reader, writer, body)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    def store(self, body: bytes) -> bytes:
        lines = [whole_line(*line).rstrip() for line in read_batch(body)]
        self.lines += lines
        ids = [json.loads(line)["id"] for line in lines]
        known = sum(each in self.stored for each in ids)
        for each in ids:
            self.stored[each] = self.stored.get(each, 0) + 1
        return json.dumps({"stored": len(ids) - known, "known": known, "rejected": []}).encode()


@contextmanager
def listening(
    console: RecordsConsole, identity: Authority | ssl.SSLContext, port: int = 0
) -> Iterator[int]:
    """Serve *console* in a thread on 127.0.0.1, to clients of *identity*; yield its port."""
    context = identity.server(clients=True) if isinstance(identity, Authority) else identity
    started = threading.Event()
    ports: list[int] = []
    loops: list[asyncio.AbstractEventLoop] = []
    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        server = await asyncio.start_server(console.serve, "127.0.0.1", port, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
        loops.append(asyncio.get_running_loop())
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        started.set()
        async with server:
            try:
                await asyncio.Event().wait()
            finally:
                server.close()
                for each in asyncio.all_tasks() - {task}:
                    each.cancel()

    def run() -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield ports[0]
    finally:
        loops[0].call_soon_threadsafe(tasks[0].cancel)
        thread.join(10)
