"""A small console on loopback: its JSON API over TLS, for people with a token or a certificate.

It answers from rows that a test gives it, and knows of a filter no more than that a field of a row
equals it. Who may see what is the real console's business.
"""

import contextlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web
from cryptography import x509

from console.history.answers import DecisionAnswer, RecordAnswer, UsageAnswer
from console.records.query import DecisionFilter, RecordFilter
from console.records.rows import DecisionRow, UsageRow
from console.use.figures import UseAnswer
from tests.fakes.pki import Authority

NAME = "vgpu-console.vgpu-admission-system.svc"
_PAGING = frozenset({"limit", "after"})
_PERIOD = frozenset({"since", "until"})
_FIELDS = {
    "decisions": {each.name for each in fields(DecisionFilter)} | _PAGING,
    "records": {each.name for each in fields(RecordFilter)} | _PAGING,
    "usage": set(_PERIOD),
    "use": {"namespace"},
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked, and as whom."""

    path: str
    query: Mapping[str, str]
    person: str


class RefusedAnswerError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class ConsoleServer:
    """Serves what its lists hold while :meth:`serve` lasts."""

    ours: Authority = field(default_factory=lambda: Authority("vgpu"))  # of its own certificate
    clients: Authority = field(default_factory=lambda: Authority("cluster"))  # of people
    tokens: dict[str, str] = field(default_factory=lambda: {"secret": "amy"})
    decisions: Sequence[DecisionRow] = ()
    records: Sequence[Mapping[str, Any]] = ()
    usage: Sequence[UsageRow] = ()
    use: UseAnswer | None = None  # None: it was given no Prometheus
    asked: list[Asked] = field(default_factory=list)
    hellos: list[str] = field(default_factory=list)  # authorization headers that arrived
    page: int = 1000  # rows of the largest page
    broken: bytes | None = None  # answered instead of anything else
    port: int = 0

    @contextlib.asynccontextmanager
    async def serve(
        self, *, name: str = NAME, issuer: Authority | None = None
    ) -> AsyncIterator[None]:
        """Listen with a certificate for *name* and 127.0.0.1."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        tls = self._tls(name, issuer or self.ours)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    def _tls(self, name: str, issuer: Authority) -> ssl.SSLContext:
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.DNSName("localhost")])
        issued = issuer.issue("console", names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            file.write(issued.certificate + issued.key)
            file.flush()
            context.load_cert_chain(file.name)
        context.load_verify_locations(cadata=self.clients.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            person = self._person(request)
            self.asked.append(Asked(request.path, dict(request.query), person))
            body = self.broken if self.broken is not None else self._body(request)
        except RefusedAnswerError as error:
            refusal = json.dumps({"error": str(error)}).encode()
            return web.Response(status=error.status, body=refusal, content_type="application/json")
        return web.Response(body=body, content_type="application/json")

    def _person(self, request: web.Request) -> str:
        header = request.headers.get("Authorization", "")
        self.hellos.append(header)
        if header:
            person = self.tokens.get(header.removeprefix("Bearer "))
            if person is not None:
                return person
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        for ((key, value),) in (certificate or {}).get("subject", ()):
            if key == "commonName":
                return str(value)
        raise RefusedAnswerError(HTTPStatus.UNAUTHORIZED, "nobody was authenticated")

    def _body(self, request: web.Request) -> bytes:
        parts = request.path.strip("/").split("/")
        if parts[:2] != ["api", "v1"] or len(parts) < 3 or parts[2] not in _FIELDS:
            raise RefusedAnswerError(HTTPStatus.NOT_FOUND, "there is no such page")
        if parts[2] == "decisions" and len(parts) > 3:
            return self._one(*parts[3:])
        unknown = sorted(set(request.query) - _FIELDS[parts[2]])
        if unknown:
            raise RefusedAnswerError(
                HTTPStatus.BAD_REQUEST, f"there is no parameter {unknown[0]!r}"
            )
        if parts[2] == "usage":
            return msgspec.json.encode(UsageAnswer(rows=tuple(self.usage)))
        if parts[2] == "use":
            return self._use(request.query.get("namespace", ""))
        rows = self._decisions(request) if parts[2] == "decisions" else self._records(request)
        return self._page(rows, request.query)

    def _use(self, namespace: str) -> bytes:
        if self.use is None:
            raise RefusedAnswerError(HTTPStatus.NOT_IMPLEMENTED, "no Prometheus is configured")
        chosen = [each for each in self.use.containers if namespace in ("", each.namespace)]
        return msgspec.json.encode(UseAnswer(containers=tuple(chosen), gpus=self.use.gpus))

    def _page(self, rows: Sequence[object], query: Mapping[str, str]) -> bytes:
        begin = int(query.get("after") or 0)
        end = begin + min(int(query.get("limit", 100)), self.page)
        after = str(end) if end < len(rows) else ""
        return msgspec.json.encode({"rows": rows[begin:end], "after": after})

    def _decisions(self, request: web.Request) -> Sequence[DecisionRow]:
        wanted = {k: v for k, v in request.query.items() if k not in _PAGING | _PERIOD}
        since = request.query.get("since", "")
        return [
            row
            for row in self.decisions
            if row.last >= since and all(str(getattr(row, k)) == v for k, v in wanted.items())
        ]

    def _records(self, request: web.Request) -> Sequence[RecordAnswer]:
        kinds = set(filter(None, request.query.get("kinds", "").split(",")))
        other = _PAGING | _PERIOD | {"kinds"}
        wanted = {k: v for k, v in request.query.items() if k not in other}
        return [
            RecordAnswer(record=dict(record), sender="webhook")
            for record in self.records
            if (not kinds or record["kind"] in kinds)
            and all(record.get(k) == v for k, v in wanted.items())
        ]

    def _one(self, digest: str, uid: str = "") -> bytes:
        for row in self.decisions:
            if row.digest == digest and uid in ("", row.pod_uid):
                life = [r for r in reversed(self.records) if r.get("digest") == digest]
                answers = tuple(RecordAnswer(record=dict(r), sender="webhook") for r in life)
                return msgspec.json.encode(DecisionAnswer(decision=row, records=answers))
        raise RefusedAnswerError(
            HTTPStatus.NOT_FOUND, f"no decision {digest!r} is recorded, or you may not see it"
        )
