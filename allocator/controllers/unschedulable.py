"""Pods that no node took: an Event says why, and a hint names a node that takes them after all.

kube-scheduler asks about a sample of the nodes, and pods on their way to a node block it for a
moment. When a node takes a pod that was rejected everywhere, it becomes the pod's
``nominatedNodeName``: that change makes the scheduler retry, and it tries that node first. It is
only a hint; the scheduler still checks everything else about the node.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Never, Protocol

import structlog

from allocator.audit.record_writer import WriteRecord, write_nothing
from allocator.catalog.keys import HINT_KEY
from allocator.cluster.assumed_pods import EXPECTED_FOR
from allocator.extender.filter import FilterContext
from allocator.extender.index import Index
from allocator.extender.pod import SchedulingPod
from allocator.model.untrusted import LONGEST_NAME, all_shown, is_safe_name
from allocator.replay.waiting_fields import WaitingState, waiting_fields, waiting_id
from allocator.scheduling.unschedulable import (
    UnschedulablePod,
    explain_unschedulable,
    fitting_nodes,
    is_blocked_by_nominations,
)
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ApiError, KubeError
from kube.events import Event, Reference, Severity

STATUS_PATH: Final = "/api/v1/namespaces/{}/pods/{}/status"
MOST_WAITING: Final = 1024  # pods that are remembered
MOST_HINTS: Final = 5  # to one pod; after these its scheduler must have reasons unknown to us
RECORD_LIFETIME: Final = 600.0  # seconds after which hints are counted anew
# Seconds after an answer within which its scheduler writes to the pod that it does not fit. That
# write overwrites an earlier hint.
WRITTEN_AFTER: Final = 0.25
# Seconds after which a waiting pod is tried again. The pods that blocked it may never arrive, and
# the watch may have lagged; schedulers notice neither. The delay is multiplied by RETRY_FACTOR each
# time, but stays the same while nominated or assumed pods block the pod.
FIRST_RETRY: Final = EXPECTED_FOR
RETRY_FACTOR: Final = 3.0
LONGEST_RETRY: Final = 30.0  # seconds; by then an interrupted watch has resumed
REST_FACTOR: Final = 3.0  # pause after a pod, as a multiple of the time it took
LONGEST_REST: Final = 1.0  # seconds
FORBIDDEN: Final = 403
log = structlog.get_logger(__name__)


class EventRecorder(Protocol):
    """The part of :class:`kube.events.Recorder` that is used."""

    def record(self, event: Event, /) -> None:
        """Take a note; neither waits nor raises."""


@dataclass(slots=True)
class _PodRecord:
    """What was written to one pod so far."""

    since: float  # monotonic seconds
    texts: frozenset[str] = frozenset()  # reasons in the last Event
    reason: str = ""  # in the last record
    hints: Counter[str] = field(default_factory=Counter)  # number by node


@dataclass(frozen=True, slots=True)
class _QueuedPod:
    """A pod in the queue."""

    due: float  # monotonic seconds
    waiting: UnschedulablePod
    retry_delay: float = 0.0  # seconds that it was queued for; 0: not handled before


class UnschedulableController:
    """Handles unschedulable pods one at a time, after their schedulers were answered."""

    def __init__(  # noqa: PLR0913 -- what it asks, and whom it tells
        self,
        client: ApiClient,
        events: EventRecorder,
        *,
        index: Callable[[], Index],
        context_of: Callable[[SchedulingPod], FilterContext],
        write_record: WriteRecord = write_nothing,
        clock: Clock = SYSTEM,
    ) -> None:
        """Hint through *client*, report through *events* and *write_record*.

        *index* returns the cluster with hints counted as nominations, so that no two
        pods get a hint for the same GPUs.
        """
        self._client = client
        self._events = events
        self._index = index
        self._context_of = context_of
        self._write_record = write_record
        self._clock = clock
        self._queued: dict[str, _QueuedPod] = {}  # by uid
        self._has_queued = asyncio.Event()  # set while _queued is not empty
        self._records: OrderedDict[str, _PodRecord] = OrderedDict()
        self._hints_allowed = True  # until the API server says that we may not

    def enqueue(self, waiting: UnschedulablePod) -> None:
        """Queue a pod, or drop it when the queue is full; its scheduler will retry.

        A pod without a uid or with an unsafe name is dropped too: schedulers are not trusted.
        """
        uid, pod = waiting.pod.uid, waiting.pod
        if not (uid and is_safe_name(pod.namespace) and is_safe_name(pod.name)):
            return
        if uid in self._queued or len(self._queued) < MOST_WAITING:
            self._queued[uid] = _QueuedPod(self._clock.monotonic() + WRITTEN_AFTER, waiting)
            self._has_queued.set()

    async def run(self) -> Never:
        """Handle pods for ever, with pauses that leave the processor to admission."""
        while True:
            queued = await self._next()
            began = self._clock.monotonic()
            try:
                await self._handle_queued(queued)
            except Exception:
                # The outermost loop: one malformed pod must not end the program.
                log.exception("waiting pod not handled", uid=queued.waiting.pod.uid)
            elapsed = self._clock.monotonic() - began
            await self._clock.sleep(min(REST_FACTOR * elapsed, LONGEST_REST))

    async def _next(self) -> _QueuedPod:
        """Wait until the next pod is due, and return it."""
        while True:
            await self._has_queued.wait()
            uid, queued = min(self._queued.items(), key=lambda item: item[1].due)
            delay = queued.due - self._clock.monotonic()
            if delay <= 0:
                break
            # A pod that is queued meanwhile may be due earlier.
            await self._clock.sleep(min(delay, WRITTEN_AFTER))
        del self._queued[uid]
        if not self._queued:
            self._has_queued.clear()
        return queued

    async def _handle_queued(self, queued: _QueuedPod) -> None:
        """Handle a pod that is still unbound, and queue it again where that may help."""
        waiting, uid = queued.waiting, queued.waiting.pod.uid
        if queued.retry_delay and not self._is_still_unbound(waiting.pod):
            return
        retry_delay = await self.handle(waiting, queued.retry_delay * RETRY_FACTOR)
        if retry_delay is not None and uid not in self._queued:
            self._queued[uid] = _QueuedPod(
                self._clock.monotonic() + retry_delay, waiting, retry_delay
            )
            self._has_queued.set()

    def _is_still_unbound(self, pod: SchedulingPod) -> bool:
        now = self._index().pods.get(pod.uid)
        return now is not None and not (now.node or now.over or now.deleting)

    async def handle(self, waiting: UnschedulablePod, retry_delay: float = 0.0) -> float | None:
        """Give a hint, or else record an Event with what is short, unless it is a repetition.

        Returns the seconds until the next attempt, at least *retry_delay*, or ``None`` for none.
        """
        pod_record = self._record_of(waiting.pod.uid)
        if await self._hint(waiting, pod_record):
            return None
        texts = frozenset(obstacle.text for obstacle in waiting.failures.values())
        if texts != pod_record.texts:
            pod_record.texts = texts
            await self._report(waiting, pod_record)
        if not self._may_hint(pod_record):
            return None
        if self._is_blocked_by_nominations(waiting):
            return FIRST_RETRY
        retry_delay = max(FIRST_RETRY, retry_delay)
        return retry_delay if retry_delay <= LONGEST_RETRY else None

    def _is_blocked_by_nominations(self, waiting: UnschedulablePod) -> bool:
        context = self._context_of(waiting.pod)
        return is_blocked_by_nominations(self._index(), waiting.pod, waiting.names, context=context)

    def _may_hint(self, pod_record: _PodRecord) -> bool:
        return self._hints_allowed and pod_record.hints.total() < MOST_HINTS

    def _record_of(self, uid: str) -> _PodRecord:
        now = self._clock.monotonic()
        pod_record = self._records.pop(uid, None)
        if pod_record is None or now - pod_record.since > RECORD_LIFETIME:
            pod_record = _PodRecord(since=now)
        self._records[uid] = pod_record
        if len(self._records) > MOST_WAITING:
            self._records.popitem(last=False)
        return pod_record

    async def _hint(self, waiting: UnschedulablePod, pod_record: _PodRecord) -> bool:
        """Nominate the pod to a node that takes it; return whether that succeeded.

        A node may be named again, because the scheduler overwrites a hint when it writes to the pod
        that it does not fit.
        """
        if not self._may_hint(pod_record):
            return False
        pod, context = waiting.pod, self._context_of(waiting.pod)
        names = fitting_nodes(self._index(), pod, waiting.names, context=context)
        if not names:
            return False
        node = min(names, key=pod_record.hints.__getitem__)  # the best of those hinted least often
        pod_record.hints[node] += 1
        metadata = {"uid": pod.uid, "annotations": {HINT_KEY: node}}
        changes = {"metadata": metadata, "status": {"nominatedNodeName": node}}
        try:
            await self._client.merge_patch(STATUS_PATH.format(pod.namespace, pod.name), changes)
        except KubeError as error:
            self._hints_allowed = not (isinstance(error, ApiError) and error.status == FORBIDDEN)
            log.warning("hint not written", pod=f"{pod.namespace}/{pod.name}", why=str(error))
            return False
        log.info("hint written", pod=f"{pod.namespace}/{pod.name}", node=node)
        return True

    async def _report(self, waiting: UnschedulablePod, pod_record: _PodRecord) -> None:
        pod, policy = waiting.pod, self._context_of(waiting.pod).policy
        explain = partial(
            explain_unschedulable, self._index(), pod, failures=waiting.failures, policy=policy
        )
        finding = await asyncio.to_thread(explain)
        if finding is None:
            return
        note = f"{finding.reason}: on {len(waiting.names)} nodes, {finding}"
        self._record(pod, pod_record, reason=str(finding.reason), text=note)
        regarding = Reference(
            api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
        )
        self._events.record(
            Event(
                regarding=regarding,
                severity=Severity.WARNING,
                reason="VgpuWaiting",
                action="Schedule",
                note=note,
            )
        )

    def _record(
        self, pod: SchedulingPod, pod_record: _PodRecord, *, reason: str, text: str
    ) -> None:
        """Record that *pod* waits, or waits for another reason; numbers that differ are none."""
        if reason == pod_record.reason:
            return
        state = WaitingState.CHANGED if pod_record.reason else WaitingState.BEGUN
        pod_record.reason = reason
        namespace, name, uid = all_shown((pod.namespace, pod.name, pod.uid), LONGEST_NAME)
        fields = {"namespace": namespace, "pod": name, "pod_uid": uid}
        fields |= waiting_fields(state, reason, text)
        self._write_record("waiting", fields, record_id=waiting_id(state, pod.uid))
