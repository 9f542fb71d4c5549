"""Callers that leave, or send slowly: none of them keeps the place of another."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import pytest

from tests.properties.test_hostile_reviews import application
from webhook.serve import admission
from webhook.serve.admission import LARGEST_BODY, AdmissionApp

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
