"""The hot paths as a raw ASGI application: read a review, decide, answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from allocator.cli.http_server import App, Receive, Scope, Send
from webhook.admission import ephemeral_containers
from webhook.admission.audit_record import audit
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.admission.decide import confirm
from webhook.admission.messages import refusal, warnings, word
from webhook.admission.outcome import Outcome, Refused, Rewritten
from webhook.binding.binding_server import BindingHandler, LateError
from webhook.caller.hook_paths import HookPaths
from webhook.records.pass_records import PassRecords
from webhook.replicas.decided_pod import DecidedPod, DecidedReview
from webhook.replicas.recent_decisions import RecentDecisions, patched_pod
from webhook.review.admission_review import (
    BadObjectError,
    NotAReviewError,
    Refusal,
    Request,
    allow,
    parse,
    refuse,
    uid_at_start,
)
from webhook.review.pod_schema import Pod
from webhook.review.unread_review import INTERNAL, UnreadReview, unread_body, unread_object
from webhook.serve.http import AtOnce, answer_not_found, reply
from webhook.serve.metrics import WebhookMetrics
from webhook.workload.workload_server import WorkloadHandler

Review = Callable[[bytes], bytes]
Judge = Callable[[Pod, Pod | None, AdmissionContext], DecidedPod]
Answer = Callable[[bytes], bytes | Awaitable[bytes]]  # only a bind has to ask the API server
LARGEST_BODY: Final = 7 * 1024 * 1024  # two objects of the API server's 3 MiB, and the envelope
SLOWEST_BODY: Final = 5.0  # seconds; no hook of ours waits longer
RETRY_SECONDS: Final = 1
MOST: Final = 512  # reviews at a time
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodHandler:
    """Everything one review needs, injected so that a test needs no patching.

    ``view`` returns the surroundings of a namespace, and ``ticks`` a monotonic clock in seconds.
    """

    view: Callable[[str], AdmissionView]
    records: PassRecords | None  # None: nothing is recorded
    metrics: WebhookMetrics
    recent: RecentDecisions = field(default_factory=RecentDecisions)
    ticks: Callable[[], float] = time.perf_counter
    note_unread: Callable[[UnreadReview], None] = lambda _: None  # a review of a pod

    def mutate(self, body: bytes) -> bytes:
        """Answer a CREATE of a pod with the patch that makes it what we intend."""
        return self._answer(
            body, "mutate", lambda pod, _, context: self.recent.decide(pod, context, len(body))
        )

    def validate(self, body: bytes) -> bytes:
        """Answer whether a pod about to be stored is what admission decided."""
        return self._answer(
            body, "validate", lambda pod, _, context: DecidedPod(confirm(pod, context), None)
        )

    def ephemeral(self, body: bytes) -> bytes:
        """Answer an UPDATE of a pod's ephemeral containers."""
        return self._answer(body, "ephemeral", _decided_ephemeral)

    def _answer(self, body: bytes, step: str, judge: Judge) -> bytes:
        started = self.ticks()
        try:
            reviewed = parse(body)
        except BadObjectError as error:
            self.metrics.count_decision("error", reason="UnreadablePod", namespace="")
            self.note_unread(unread_object(error, step, len(body)))
            return refuse(error.uid, _unreadable_refusal(error))
        view = self.view(reviewed.request.namespace)
        judged = judge(reviewed.pod, reviewed.request.old_object, view.context)
        decided = DecidedReview(reviewed.request, judged, step, started, len(body))
        return self._finish(decided, view)

    def _finish(self, reviewed: DecidedReview, view: AdmissionView) -> bytes:
        """Carry a decision out: the answer, the record, the count; dry runs leave no trace."""
        request, step = reviewed.request, reviewed.step
        outcome, patch = reviewed.decided.outcome, reviewed.decided.patch
        seconds = self.ticks() - reviewed.started
        if not request.dry_run:
            if self.records is not None:
                self.records.note(reviewed, view, seconds)
            if _is_final(outcome, step):
                self._count(request, outcome)
        self.metrics.observe_decision(step, seconds)
        notes = warnings(outcome.warnings) if outcome.warnings and step != "validate" else ()
        if isinstance(outcome, Refused):
            return refuse(
                request.uid, refusal(outcome), warnings=notes, audit=audit(request, outcome)
            )
        return allow(
            request.uid,
            patch=b"" if patch is None else patch.text,
            warnings=notes,
            audit=audit(request, outcome),
        )

    def _count(self, request: Request, outcome: Outcome) -> None:
        mode = str(outcome.choice.mode) if isinstance(outcome, Rewritten) else ""
        reason = str(outcome.findings.first.reason) if isinstance(outcome, Refused) else ""
        self.metrics.count_decision(
            word(outcome), reason=reason, mode=mode, namespace=request.namespace
        )


def _decided_ephemeral(pod: Pod, before: Pod | None, context: AdmissionContext) -> DecidedPod:
    return patched_pod(pod, ephemeral_containers.decide(pod, before, context))


def _is_final(outcome: Outcome, step: str) -> bool:
    """Say whether *outcome* is the last word about a pod, so that each pod is counted once.

    A pod that asks for vGPU is reviewed by the mutating pass, perhaps again after other webhooks,
    and then by the validating one; any other pod by the mutating pass only.
    """
    match outcome:
        case Refused():
            return True
        case Rewritten():
            return step != "mutate"
        case _:
            return step != "validate"


def _unreadable_refusal(error: BadObjectError) -> Refusal:
    text = f"pod: the object cannot be read: {error} [UnreadablePod]"
    return Refusal(code=422, message=text, reason="Invalid")


class TooLargeError(Exception):
    """A body beyond what two objects can need, and the *start* of it."""

    def __init__(self, start: bytes, size: int) -> None:
        """Keep the *start*, which names the review, and how many bytes were read."""
        super().__init__(f"body is over {LARGEST_BODY} bytes")
        self.start = start
        self.size = size


class AdmissionApp:
    """Routes pods, Bindings and workloads to their handlers, and more to *rest*, if there is any.

    Answers ``429`` with ``Retry-After`` while *most* reviews are in flight, and ``503`` for a bind
    that comes to no end in time: the API server repeats such a call itself within the hook's
    timeout, so neither fails a pod.
    """

    def __init__(  # noqa: PLR0913 -- what it serves, and for whom
        self,
        reviewer: PodHandler,
        rest: App | None = None,
        *,
        binder: BindingHandler | None = None,
        workloads: WorkloadHandler | None = None,
        most: int = MOST,
        paths: HookPaths | None = None,
    ) -> None:
        """Serve *reviewer* and, where there is a cluster, *binder* and *workloads*.

        *paths* are those that only the API server knows; without them anybody may call.
        """
        self._reviewer = reviewer
        self._rest = rest or answer_not_found
        self._most = most
        self._hook_paths = paths or HookPaths()
        self._busy = 0
        reviews: dict[str, Review] = {
            "/mutate/pods": reviewer.mutate,
            "/validate/pods": reviewer.validate,
            "/mutate/pods/ephemeralcontainers": reviewer.ephemeral,
        }
        # Tenants decide how large their pods are, and a hook that fails may admit everything.
        # Reviews of workloads only warn, so they never refuse.
        self._refusing = frozenset((*reviews, "/mutate/bindings"))
        if workloads is not None:
            reviews["/validate/workloads"] = workloads.warn
        self._paths: dict[str, Answer] = {**reviews}
        if binder is not None:
            self._paths["/mutate/bindings"] = binder.bind
        self._at_once: Mapping[str, AtOnce] = {
            path: partial(self._answer, path, answer) for path, answer in reviews.items()
        }

    def at_once(self, path: bytes) -> AtOnce | None:
        """Return what answers *path* without waiting, if anything does."""
        return self._at_once.get(self._hook_paths.hook_of(path.decode("latin-1")) or "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        hook = self._hook_paths.hook_of(scope["path"]) if scope["type"] == "http" else None
        answer = self._paths.get(hook or "")
        if answer is None:
            await self._rest(scope, receive, send)
            return
        if scope["method"] != "POST":
            await reply(send, 405, b"expected POST\n", (b"allow", b"POST"))
            return
        if self._busy >= self._most:
            self._reviewer.metrics.shed()
            await reply(send, 429, b"too many reviews at once; try again\n", _RETRY)
            return
        self._busy += 1
        try:
            status, body = await self._serve(hook or "", answer, receive)
        except TooLargeError as error:
            self._note_unread(
                unread_body(hook or "", str(error), size=error.size, start=error.start)
            )
            uid = uid_at_start(error.start) if hook in self._refusing else ""
            status, body = (_OK, self._refuse_size(uid)) if uid else _too_large(error)
        finally:
            self._busy -= 1
        await reply(send, status, body, *_HEADERS.get(status, ()))

    async def _serve(self, hook: str, answer: Answer, receive: Receive) -> tuple[int, bytes]:
        """Return the status and body for one review of *hook*."""
        body = b""
        try:
            body = await _body(receive)
            answered = answer(body)
            return (_OK, answered) if isinstance(answered, bytes) else await _in_time(answered)
        except TooLargeError:
            raise
        except Exception as error:  # noqa: BLE001 -- the outermost loop of a review
            return self._failure(error, hook, body)

    def _refuse_size(self, uid: str) -> bytes:
        self._reviewer.metrics.count_decision("error", reason="UnreadablePod", namespace="")
        text = (
            f"pod: its review has more than {LARGEST_BODY} bytes, as < and & count six each; write"
            " a smaller pod [UnreadablePod]"
        )
        return refuse(uid, Refusal(code=413, message=text, reason="RequestEntityTooLarge"))

    def _answer(self, hook: str, answer: Review, body: bytes) -> tuple[int, bytes]:
        """Return the status and body for a review that is here and waits for nothing."""
        try:
            return _OK, answer(body)
        except Exception as error:  # noqa: BLE001 -- the outermost loop of a review
            return self._failure(error, hook, body)

    def _note_unread(self, review: UnreadReview | None) -> None:
        if review is not None:
            self._reviewer.note_unread(review)

    def _failure(self, error: Exception, hook: str, body: bytes) -> tuple[int, bytes]:
        """Say why there is no answer; a bug must not take the connection with it."""
        match error:
            case NotAReviewError():
                self._note_unread(unread_body(hook, str(error), size=len(body), start=body))
                return 400, f"{error}\n".encode()
            case TimeoutError():
                return 408, f"the body took more than {SLOWEST_BODY} seconds\n".encode()
            case ConnectionAbortedError():
                return 400, b"the caller went away\n"
            case _:  # 500 without Retry-After leaves the hook's failurePolicy to decide
                log.error("review failed", exc_info=error)
                why = "an internal error; the log of this replica has more"
                self._note_unread(
                    unread_body(hook, why, size=len(body), start=body, reason=INTERNAL)
                )
                self._reviewer.metrics.count_decision("error", reason="", namespace="")
                return 500, b"internal error; see the log of vgpu-admission\n"


_OK: Final = 200
_LATE: Final = 503
_RETRY: Final = (b"retry-after", str(RETRY_SECONDS).encode())
_HEADERS: Final = {_OK: ((b"content-type", b"application/json"),), _LATE: (_RETRY,)}


def _too_large(error: TooLargeError) -> tuple[int, bytes]:
    return 413, f"{error}\n".encode()


async def _in_time(answered: Awaitable[bytes]) -> tuple[int, bytes]:
    try:
        return _OK, await answered
    except LateError as error:
        return _LATE, f"{error}; try again\n".encode()


async def _body(receive: Receive) -> bytes:
    """Read a body, bounded in size, and in time where it does not come at once."""
    message = await receive()
    first: bytes = message.get("body", b"")
    if message["type"] != "http.request":
        raise ConnectionAbortedError
    if not message.get("more_body", False):
        return _check_size(first)
    async with asyncio.timeout(SLOWEST_BODY):
        parts = [first]
        size = len(first)
        while message.get("more_body", False):
            message = await receive()
            if message["type"] != "http.request":
                raise ConnectionAbortedError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > LARGEST_BODY:
                raise TooLargeError(first, size)
        return b"".join(parts)


def _check_size(body: bytes) -> bytes:
    if len(body) > LARGEST_BODY:
        raise TooLargeError(body, len(body))
    return body
