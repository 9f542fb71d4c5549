"""HTTP of the extender: paths of its verbs, bounds of bodies, answers to malformed requests.

Only the last part of a path counts, because configurations in the wild put their own before it.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from webhook.serve.extender_verbs import BadQuestionError, Extender, NotKnownYetError
from webhook.serve.http import AtOnce

PREFIXES: Final = ("/extender", "/gpushare-scheduler")  # ours, and that of gpushare's documents
LARGEST_BODY: Final = 32 * 1024 * 1024  # some thousand whole nodes
LARGEST_AT_ONCE: Final = 1024 * 1024  # the names of some ten thousand; callers are few and known
Question = Callable[[bytes], bytes]
Observe = Callable[[str, float], None]
log = structlog.get_logger(__name__)


def ignore_timing(_verb: str, _seconds: float) -> None:
    """Take no note of how long an answer took."""


def immediate_answers(
    extender: Extender, observe: Observe = ignore_timing
) -> Mapping[bytes, AtOnce]:
    """Return what answers names under the usual prefixes without a detour.

    *observe* takes each verb, and the seconds that its answer took.
    """
    questions = _questions(extender, observe)
    return {
        f"{prefix}/{verb}".encode(): partial(_answer, question)
        for prefix in PREFIXES
        for verb, question in questions.items()
    }


def app(extender: Extender, observe: Observe = ignore_timing) -> Starlette:
    """Return the application that serves *extender*."""
    questions = _questions(extender, observe)

    async def handle(request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return PlainTextResponse(f"body is over {LARGEST_BODY} bytes\n", 413)
        verb = request.url.path.rpartition("/")[2]
        if verb == "bind":
            began = perf_counter()
            status, answer = await _answer_bind(extender.bind(body))
            observe(verb, perf_counter() - began)
        else:
            status, answer = _answer(questions[verb], body)
        kind = "application/json" if status == _OK else "text/plain"
        return Response(answer, status, media_type=kind)

    verbs = (*questions, "bind")
    return Starlette(
        routes=[Route(f"/{{prefix:path}}{verb}", handle, methods=["POST"]) for verb in verbs]
    )


_OK: Final = 200


def _questions(extender: Extender, observe: Observe) -> Mapping[str, Question]:
    questions: dict[str, Question] = {
        "filter": extender.filter,
        "prioritize": extender.prioritize,
        "preempt": extender.preempt,
    }
    return {verb: _with_timing(verb, question, observe) for verb, question in questions.items()}


def _with_timing(verb: str, question: Question, observe: Observe) -> Question:
    def ask_timed(body: bytes) -> bytes:
        began = perf_counter()
        answer = question(body)
        observe(verb, perf_counter() - began)
        return answer

    return ask_timed


def _answer(question: Question, body: bytes) -> tuple[int, bytes]:
    try:
        return _OK, question(body)
    except Exception as error:  # noqa: BLE001 -- the outermost loop of a question
        return _failure(error)


async def _answer_bind(answer: Awaitable[bytes]) -> tuple[int, bytes]:
    try:
        return _OK, await answer
    except Exception as error:  # noqa: BLE001 -- the outermost loop of a bind
        return _failure(error)


def _failure(error: Exception) -> tuple[int, bytes]:
    """Say why there is no answer: the scheduler tries again, or skips us if it may."""
    if isinstance(error, BadQuestionError):
        return 400, f"{error}\n".encode(errors="replace")
    if isinstance(error, NotKnownYetError):
        return 503, f"{error}\n".encode()
    log.error("extender call failed", exc_info=error)
    return 500, b"internal error; see the log of vgpu-admission\n"


async def _body(request: Request) -> bytes | None:
    """Return the body, ``None`` where it is too large."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > LARGEST_BODY:
                return None
    except ClientDisconnect:
        return b""
    return b"".join(parts)
