"""Callers that leave, or send slowly: none of them keeps the place of another."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import pytest

from tests.properties.test_hostile_reviews import VIEW, application
from webhook.serve import admission
from webhook.serve.admission import LARGEST_BODY, AdmissionApp
from webhook.workload.workload_server import WorkloadHandler

Message = MutableMapping[str, Any]
GONE: Message = {"type": "http.disconnect"}
PIECE: Message = {"type": "http.request", "body": b"{", "more_body": True}
WHOLE: Message = {"type": "http.request", "body": b"{}", "more_body": False}


def caller(*messages: Message, then: float = 0) -> Callable[[], Awaitable[Message]]:
    """Return what a caller sends; after its last message it waits *then* seconds, and leaves."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(then)
        return left.pop(0) if left else GONE

    return receive


async def post(app: AdmissionApp, receive: Callable[[], Awaitable[Message]]) -> int:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/mutate/pods", "headers": []}
    await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        pytest.param([GONE], 400, id="at-once"),
        pytest.param([PIECE, GONE], 400, id="in-the-middle"),
        pytest.param([PIECE, PIECE, PIECE], 400, id="after-three-pieces"),
        pytest.param(
            [PIECE, {"type": "http.request", "body": b" " * (LARGEST_BODY + 1)}],
            413,
            id="too-large",
        ),
        pytest.param([WHOLE], 400, id="no-review"),
    ],
)
def test_a_caller_that_leaves_gives_its_place_back(
    messages: Sequence[Message], status: int
) -> None:
    """Otherwise so many of them would answer everybody with 429 for ever."""

    async def scenario() -> list[int]:
        app = application(most=2)
        return [await post(app, caller(*messages)) for _ in range(5)]

    assert asyncio.run(scenario()) == [status] * 5


def test_a_cancelled_review_gives_its_place_back() -> None:
    """The server cancels what runs on a connection that broke."""

    async def scenario() -> int:
        app = application(most=1)
        task = asyncio.create_task(post(app, caller(PIECE, then=60)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await post(app, caller(WHOLE))

    assert asyncio.run(scenario()) == 400


def test_more_than_may_are_asked_to_come_again() -> None:
    """The place of one that still sends is taken."""

    async def scenario() -> int:
        app = application(most=1)
        task = asyncio.create_task(post(app, caller(PIECE, then=60)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        status = await post(app, caller(WHOLE))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return status

    assert asyncio.run(scenario()) == 429


@pytest.mark.timeout(30)
def test_a_slow_body_has_an_end() -> None:
    """One that never comes ends within the time that a hook may take, and frees its place."""

    async def scenario() -> tuple[int, int]:
        app = application(most=1)
        async with asyncio.timeout(2 * admission.SLOWEST_BODY):
            slow = await post(app, caller(PIECE, then=600))
        return slow, await post(app, caller(WHOLE))

    assert asyncio.run(scenario()) == (408, 400)


WORKLOADS = WorkloadHandler(
    context_of=lambda _: VIEW.context,
    count_review=lambda _: None,
    observe_seconds=lambda _: None,
)
START = (
    b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"6a7d-1","x":"'
)
LONG: Message = {"type": "http.request", "body": b"<" * (LARGEST_BODY + 1)}


def beginning(start: bytes) -> Message:
    return {"type": "http.request", "body": start, "more_body": True}


async def answer_to(path: str, *messages: Message) -> tuple[int, bytes]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    await application(most=2, workloads=WORKLOADS)(scope, caller(*messages), send)
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    "path", ["/mutate/pods", "/validate/pods", "/mutate/pods/ephemeralcontainers"]
)
def test_too_large_a_pod_is_refused(path: str) -> None:
    """A hook that fails may be one that lets everything pass, and tenants choose the size."""
    status, body = asyncio.run(answer_to(path, beginning(START), LONG))

    response = json.loads(body)["response"]
    assert (status, response["uid"], response["allowed"]) == (200, "6a7d-1", False)
    assert response["status"]["code"] == 413
    assert "write a smaller pod [UnreadablePod]" in response["status"]["message"]


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[", id="a-list"),
        pytest.param(b'{"request":{"name":"a","uid":"1"', id="not-first"),
        pytest.param(b'{"x":{"request":{"uid":"1"', id="deeper"),
        pytest.param(b'{"request":{"uid":""', id="no-uid"),
        pytest.param(b'{"request":{"uid":1', id="a-number"),
        pytest.param(b'{"request":{"uid":"a\\u0022b"', id="escaped"),
        pytest.param(b'{"request":{"uid":"a\nb"', id="line-break"),
        pytest.param(b'{"request":{"uid":"' + b"a" * 65 + b'"', id="long"),
        pytest.param(b'{"request":{"uid":"a', id="cut"),
        pytest.param(b'{"kind":"' + b"A" * 100_000 + b'","request":{"uid":"1"', id="long-kind"),
        pytest.param(b"\xff\xfe" + START, id="another-encoding"),
        pytest.param(b'"request":{"uid":"1"', id="no-object"),
    ],
)
def test_what_names_no_review_has_no_answer(start: bytes) -> None:
    """Nobody but the API server is owed one, and it writes the uid first."""
    status, body = asyncio.run(answer_to("/mutate/pods", beginning(start), LONG))

    assert (status, body.startswith(b"body is over")) == (413, True)


def test_too_large_a_workload_is_not_refused() -> None:
    """Its hook only warns; without an answer the API server lets the workload in."""
    status, body = asyncio.run(answer_to("/validate/workloads", beginning(START), LONG))

    assert (status, body.startswith(b"body is over")) == (413, True)
