"""Receives records: who sends is known by certificate and token, and every line is checked."""

import asyncio
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from allocator.audit.line_buffer import Line, line_size, whole_line
from allocator.audit.record import AnyRecord, Component, parse_record
from allocator.cli.http_server import PEER_CERTIFICATE
from allocator.delivery.batch_text import MOST_LINES, MOST_WHOLE_BYTES, BatchReader
from allocator.model.untrusted import escaped, inert
from console.access.authentication_server import address_of, bearer_token
from console.access.budgets import FailedAttempts, TooManyAttemptsError
from console.access.identity import UserIdentity
from console.access.reviews_client import ReviewsUnavailableError, TokenReviewer
from console.receive.console_metrics import ConsoleMetrics
from console.receive.node_limits import NodeLimitError, NodeLimits
from console.receive.sender import (
    PodNodes,
    Sender,
    SenderAccounts,
    foreign_pod,
    no_pod_nodes,
    rejection,
    sender_of,
)
from console.receive.store_thread import QueueFullError, StoreThread
from console.records.rows import StoredRecord
from console.store.store import StoreError
from kube.clock import SYSTEM, Clock

# Older senders make batches of the first version, which write each record out, or of the second,
# whose ends refer to no others.
PATHS: Final = ("/v1/records", "/v2/records", "/v3/records")
LARGEST_BODY: Final = MOST_WHOLE_BYTES  # bytes, compressed or not, and with each record written out
# Of a batch: whole records take several times the memory of its text.
READ_AT_ONCE: Final = 250
BODIES_AT_ONCE: Final = 8  # each may take twice LARGEST_BODY while it is read
BUSY_SECONDS: Final = 1
# What no agent of ours sends; it costs as much as the largest batch.
_SPOILT: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})
FAULT_SECONDS: Final = 10  # after which a store or an API server may answer again
log = structlog.get_logger(__name__)


class BatchError(Exception):
    """A batch is refused as a whole; ``after`` says when to try again, in seconds."""

    def __init__(self, status: HTTPStatus, why: str, *, after: int | None = None) -> None:
        """Keep the answer."""
        super().__init__(why)
        self.status = status
        self.after = after


class RejectedLine(msgspec.Struct, frozen=True):
    """One line that was not stored; lines count from 1."""

    line: int
    why: str


class BatchAnswer(msgspec.Struct, frozen=True):
    """What became of a batch."""

    stored: int
    known: int
    rejected: tuple[RejectedLine, ...] = ()


@dataclass(slots=True)
class _Batch:
    lines: list[tuple[int, Line]] = field(default_factory=list)  # of records, with their numbers
    rejected: list[RejectedLine] = field(default_factory=list)
    size: int = 0  # bytes of all lines


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsServer:
    """Answers senders of records."""

    tokens: TokenReviewer
    accounts: SenderAccounts
    writer: StoreThread
    metrics: ConsoleMetrics
    nodes_of: PodNodes = no_pod_nodes
    node_limits: NodeLimits = field(default_factory=NodeLimits)
    clock: Clock = SYSTEM
    _failures: FailedAttempts = field(default_factory=FailedAttempts, init=False)
    _bodies: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(BODIES_AT_ONCE), init=False
    )
    # Pages wait for threads of their own: whoever asks for many holds up no records.
    _reading: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "records"), init=False
    )

    def app(self) -> Starlette:
        """Return what serves the port."""
        app = Starlette(routes=[Route(path, self.receive, methods=["POST"]) for path in PATHS])
        app.router.redirect_slashes = False
        return app

    async def receive(self, request: Request) -> Response:
        """Store one batch, and say what became of each line."""
        try:
            answer, sender = await self._receive(request)
        except BatchError as error:
            self.metrics.count_batch(error.status)
            return _refusal(error)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        self.metrics.count_batch(HTTPStatus.OK)
        self.metrics.count_records(answer.stored, answer.known, len(answer.rejected))
        if answer.rejected:
            first = answer.rejected[0]
            log.warning(
                "records rejected",
                sender=sender.text,
                lines=len(answer.rejected),
                first=first.why,
            )
        return Response(msgspec.json.encode(answer), media_type="application/json")

    async def _receive(self, request: Request) -> tuple[BatchAnswer, Sender]:
        sender = await self._sender(request)
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"identity", "gzip"}:
            raise BatchError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"content-encoding is {escaped(encoding)}; accepted: gzip, or none",
            )
        with self._limited(sender):
            if self._bodies.locked():
                raise BatchError(
                    HTTPStatus.TOO_MANY_REQUESTS, "too many batches at once", after=BUSY_SECONDS
                )
            async with self._bodies:
                batch = await self._batch(await _body(request), encoding == "gzip")
                lines = len(batch.lines) + len(batch.rejected)
                stored, known = await self._store_batch(batch, sender)
            self._count(sender, lines=lines, size=batch.size)
        rejected = sorted(batch.rejected, key=lambda line: line.line)
        return BatchAnswer(stored, known, tuple(rejected)), sender

    @contextmanager
    def _limited(self, sender: Sender) -> Iterator[None]:
        """Hold an agent to what one node may send; raises BatchError. Webhooks may send all."""
        if sender.component is not Component.AGENT:
            yield
            return
        self._begin(sender.node)
        try:
            yield
        except BatchError as error:
            if error.status in _SPOILT:
                self._count(sender, lines=MOST_LINES)
            raise
        finally:
            self.node_limits.end(sender.node)

    def _begin(self, node: str) -> None:
        """Let *node* send a body; raises BatchError."""
        now = self.clock.monotonic()
        try:
            self.node_limits.begin(node, now)
        except NodeLimitError as error:
            if error.used_up:
                self.metrics.count_over_limit()
                if self.node_limits.log_is_due(node, now):
                    log.warning("node sends too many records", node=node, why=str(error))
            raise BatchError(HTTPStatus.TOO_MANY_REQUESTS, str(error), after=error.after) from error

    def _count(self, sender: Sender, *, lines: int, size: int = 0) -> None:
        """Count what came of an agent, unless it has to send that again."""
        if sender.component is Component.AGENT:
            now = self.clock.monotonic()
            self.node_limits.note(sender.node, now, lines=lines, size=size)

    async def _batch(self, body: bytes, compressed: bool) -> _Batch:  # noqa: FBT001 -- handed on
        """Return what was sent; raises BatchError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, _batch_of, body, compressed)

    async def _store_batch(self, batch: _Batch, sender: Sender) -> tuple[int, int]:
        """Store a batch, some records at a time; return how many were new, and how many known.

        Raises BatchError, when a part may be stored: then it is known when it is sent again.
        """
        stored, accepted = 0, 0
        for at in range(0, len(batch.lines), READ_AT_ONCE):
            records = await self._records(batch, at, sender)
            stored += await self._store(records)
            accepted += len(records)
        return stored, accepted - stored

    async def _records(self, batch: _Batch, at: int, sender: Sender) -> list[StoredRecord]:
        """Return the records from line *at* on; raises BatchError."""
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._reading, self._read, batch, at, sender)
        except StoreError as error:
            log.error("nodes of pods not read", why=str(error))  # noqa: TRY400 -- says it all
            raise BatchError(
                HTTPStatus.SERVICE_UNAVAILABLE, "the store cannot be read now", after=FAULT_SECONDS
            ) from error

    async def _sender(self, request: Request) -> Sender:
        """Return who sends; raises BatchError."""
        if PEER_CERTIFICATE not in request.scope.get("state", {}):
            raise BatchError(HTTPStatus.UNAUTHORIZED, "no client certificate was shown")
        token = bearer_token(request)
        identity = self.tokens.known(token) or await self._identity(token, address_of(request))
        sender = sender_of(identity, self.accounts)
        if sender is None:
            raise BatchError(
                HTTPStatus.FORBIDDEN,
                f"{inert(identity.user)[:253]} may not send records; accepted:"
                f" {self.accounts.webhook}, or {self.accounts.agent} with a token of its node",
            )
        return sender

    async def _identity(self, token: str, address: str) -> UserIdentity:
        """Return who holds *token*; an address that fails too often waits. Raises BatchError."""
        now = self.clock.monotonic()
        try:
            self._failures.check(address, now)
            identity = await self.tokens.identity(token) if token else None
        except TooManyAttemptsError as error:
            raise BatchError(
                HTTPStatus.TOO_MANY_REQUESTS, str(error), after=int(error.seconds) + 1
            ) from error
        except ReviewsUnavailableError as error:
            log.warning("sender not authenticated", why=str(error))
            raise BatchError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the token cannot be reviewed now",
                after=FAULT_SECONDS,
            ) from error
        if identity is None:
            self._failures.note_failure(address, now)
            raise BatchError(
                HTTPStatus.UNAUTHORIZED, "no bearer token that the API server knows for us"
            )
        return identity

    def _read(self, batch: _Batch, at: int, sender: Sender) -> list[StoredRecord]:
        """Return the records from line *at* on, and note in *batch* those that are rejected.

        Of an agent none is about a pod of another node.
        """
        now = int(self.clock.wall().timestamp() * 1000)
        found: list[tuple[int, AnyRecord]] = []
        for number, line in batch.lines[at : at + READ_AT_ONCE]:
            try:
                record = parse_record(whole_line(*line))
                why = rejection(record, sender, now)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                batch.rejected.append(RejectedLine(number, escaped_reason(error)))
                continue
            if why:
                batch.rejected.append(RejectedLine(number, why))
            else:
                found.append((number, record))
        return self._own(batch, found, sender)

    def _own(
        self, batch: _Batch, found: Sequence[tuple[int, AnyRecord]], sender: Sender
    ) -> list[StoredRecord]:
        """Return what was *found*, but for what an agent says about pods of other nodes."""
        uids = {record.pod_uid for _, record in found if record.pod_uid}
        nodes = self.nodes_of(uids) if uids and sender.component is Component.AGENT else {}
        records = []
        for number, record in found:
            why = foreign_pod(record, sender, nodes.get(record.pod_uid))
            if why:
                batch.rejected.append(RejectedLine(number, why))
            else:
                records.append(StoredRecord(record=record, sender=sender.text))
        return records

    async def _store(self, records: Sequence[StoredRecord]) -> int:
        if not records:
            return 0
        try:
            return await self.writer.append(records)
        except QueueFullError as error:
            raise BatchError(
                HTTPStatus.TOO_MANY_REQUESTS, "the store is busy", after=BUSY_SECONDS
            ) from error
        except StoreError as error:
            log.error("records not stored", why=str(error))  # noqa: TRY400 -- says it all
            raise BatchError(
                HTTPStatus.SERVICE_UNAVAILABLE, "the store cannot write now", after=FAULT_SECONDS
            ) from error


def _batch_of(body: bytes, compressed: bool) -> _Batch:  # noqa: FBT001 -- in a thread
    """Return the lines of a body; raises BatchError where it is too large or damaged as a whole."""
    text = inflate(body) if compressed else body
    lines = text.split(b"\n", MOST_LINES + 1)
    if len(lines) > MOST_LINES and any(line.strip() for line in lines[MOST_LINES:]):
        raise BatchError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"over {MOST_LINES} lines in a batch")
    batch, reader, whole_size = _Batch(), BatchReader(), 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            read = reader.read(line)
        except ValueError as error:
            batch.rejected.append(RejectedLine(number, escaped_reason(error)))
            continue
        if read is None:
            continue
        whole_size += line_size(*read)
        if whole_size > LARGEST_BODY:
            raise _too_large()
        batch.lines.append((number, read))
    batch.size = max(len(text), whole_size)
    return batch


async def _body(request: Request) -> bytes:
    """Return the whole body; raises BatchError where it is too large."""
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and (len(stated) > len(str(LARGEST_BODY)) or int(stated) > LARGEST_BODY):
        raise _too_large()
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY:
            raise _too_large()
    return bytes(body)


def _too_large() -> BatchError:
    return BatchError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a batch has over {LARGEST_BODY} bytes")


def inflate(body: bytes) -> bytes:
    """Return what *body* holds in gzip; raises BatchError where that is damaged or too large."""
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: gzip
    try:
        text = inflater.decompress(body, LARGEST_BODY + 1)
    except zlib.error as error:
        raise BatchError(HTTPStatus.BAD_REQUEST, f"the body is no gzip: {error}") from error
    if len(text) > LARGEST_BODY:
        raise _too_large()
    if not inflater.eof or inflater.unused_data:
        raise BatchError(
            HTTPStatus.BAD_REQUEST, "the body is cut short, or has something after its end"
        )
    return text


def escaped_reason(error: Exception) -> str:
    """Return why a line cannot be read, cut and without control characters."""
    return inert(str(error) or type(error).__name__)[:256]


def _refusal(error: BatchError) -> Response:
    headers = {} if error.after is None else {"retry-after": str(error.after)}
    if error.status is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    # What is left of a refused body is not read.
    return Response(
        msgspec.json.encode({"error": str(error)}),
        status_code=error.status,
        headers={**headers, "connection": "close"},
        media_type="application/json",
    )
