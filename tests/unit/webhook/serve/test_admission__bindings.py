"""The path of Bindings: an answer, or a request to come again that the API server understands."""

import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

from allocator.config.settings import DEFAULTS
from tests.builders.bindings import answered, binding, review
from tests.builders.model import nodes_of, snapshot
from tests.fakes.ledger_server import LedgerServer
from tests.properties.test_hostile_reviews import VIEW, Notes
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.records.pass_records import PassRecords
from webhook.serve.admission import AdmissionApp, PodHandler
from webhook.serve.metrics import WebhookMetrics

AROUND = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(nodes_of(8)))


def posted(body: bytes, *, slow: float = 0) -> tuple[int, dict[bytes, bytes], bytes]:
    """Send *body* to a replica whose API server takes *slow* seconds for a read."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def rest(_scope: object, _receive: object, _send: object) -> None:
        raise AssertionError("a hot path went elsewhere")

    binder = BindingHandler(
        calls=LedgerServer(slow=slow),
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        patience=0.05,
    )
    reviewer = PodHandler(
        view=lambda _: VIEW,
        records=PassRecords(Notes(), now=time.time_ns),
        metrics=WebhookMetrics(version="0"),
    )
    scope = {"type": "http", "method": "POST", "path": "/mutate/bindings", "headers": []}
    asyncio.run(AdmissionApp(reviewer, rest, binder=binder)(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_a_bind_is_answered() -> None:
    """Its path leads to the ledger."""
    status, headers, body = posted(review(binding()))

    assert (status, headers[b"content-type"]) == (200, b"application/json")
    assert answered(body)["status"]["code"] == 404


def test_a_late_bind_is_asked_to_come_again() -> None:
    """The API server repeats a 503 with Retry-After itself, so nobody's pod fails."""
    status, headers, body = posted(review(binding()), slow=1.0)

    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert b"no commit within" in body


def test_what_is_no_review_is_a_bad_request() -> None:
    """There is no uid to answer to."""
    assert posted(b"{}")[0] == 400
