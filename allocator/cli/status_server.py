"""What every program says of itself in plain HTTP: health for kubelet, metrics for Prometheus."""

import asyncio
from collections.abc import Callable
from typing import Final

from allocator.cli.http_server import CLOSE, App, ConnectionLimits, Receive, Scope, Send

# Kubelet and Prometheus ask a few times a minute, in one piece.
STATUS_LIMITS: Final = ConnectionLimits(connections=128, request_seconds=10.0)
FRESH_SECONDS: Final = 5.0  # for which metrics are given again while somebody still reads them
PIECE: Final = 64 * 1024  # bytes that are written before it is known whether anybody reads
Metrics = Callable[[], tuple[str, bytes]]  # content type and text; called in a thread
Answer = tuple[int, str, bytes]
_TEXT: Final = "text/plain; charset=utf-8"


def status_app(why_not_ready: Callable[[], str], metrics: Metrics) -> App:
    """Return what serves ``/healthz``, ``/readyz`` and ``/metrics``.

    *why_not_ready* returns nothing where the program is ready.
    """
    return _Status(why_not_ready, metrics)


class _Status:
    """Answers one request of each connection, so that nobody keeps one."""

    def __init__(self, why_not_ready: Callable[[], str], metrics: Metrics) -> None:
        self._why_not_ready = why_not_ready
        self._read_metrics = metrics
        self._readers = 0  # answers with metrics that are being written
        self._kept: asyncio.Task[tuple[str, bytes]] | None = None
        self._kept_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; what it brings along is not read."""
        del receive
        if scope["type"] != "http":
            return
        if scope["path"] != "/metrics" or scope["method"] not in {"GET", "HEAD"}:
            await _reply(send, self._answer(scope["path"], scope["method"]))
            return
        self._readers += 1
        try:
            content_type, text = await self._metrics()
            await _reply(send, (200, content_type, text))
        finally:
            self._readers -= 1

    def _answer(self, path: str, method: str) -> Answer:
        if path not in {"/healthz", "/readyz", "/metrics"}:
            return 404, _TEXT, b"not found\n"
        if method not in {"GET", "HEAD"}:
            return 405, _TEXT, b"expected GET\n"
        why = self._why_not_ready() if path == "/readyz" else ""
        if why:
            return 503, _TEXT, f"{why}\n".encode()
        return 200, _TEXT, b"ready\n" if path == "/readyz" else b"ok\n"

    async def _metrics(self) -> tuple[str, bytes]:
        """Return the metrics; whoever reads slowly gets those of others, and memory once."""
        now = asyncio.get_running_loop().time()
        if self._kept is None or self._readers == 1 or now - self._kept_at > FRESH_SECONDS:
            self._kept = asyncio.create_task(asyncio.to_thread(self._read_metrics))
            self._kept_at = now
        return await asyncio.shield(self._kept)


async def _reply(send: Send, answer: Answer) -> None:
    status, content_type, text = answer
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(text)).encode()),
        CLOSE,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for start in range(0, len(text), PIECE):
        piece = text[start : start + PIECE]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
