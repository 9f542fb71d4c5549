"""Records of pods that wait for a node: that they do, for another reason, and no longer.

The extender records why a pod waits when a scheduler asks it. Here the leader records it of all
pods, by what their scheduler wrote on them, because not every scheduler asks. The identifier of the
first record is made of the pod's uid, so a store keeps the one that came first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from allocator.audit.record_writer import WriteRecord
from allocator.catalog.keys import DECISION_KEY
from allocator.catalog.vocabularies import Vocabulary
from allocator.cluster.pods import Pods
from allocator.model.untrusted import LONGEST_NAME, all_shown, escaped
from allocator.replay.waiting_fields import WaitingState, waiting_fields, waiting_id
from allocator.request.pod_summary import PodSummary
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError, NotFoundError
from kube.workqueue import isolated

SWEEP_SECONDS: Final = 5.0
AFTER: Final = 10.0  # seconds without a node after which a pod waits; most are bound at once
READ_AGAIN_AFTER: Final = 60.0  # seconds until a waiting pod is read again
MOST_READS: Final = 32  # pods in one sweep
SCHEDULED: Final = "PodScheduled"  # the condition in which a scheduler says why not
log = structlog.get_logger(__name__)


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    reason: str = ""
    message: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""
    creation_timestamp: datetime | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[_Condition, ...] | None = None


class _UnboundPod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def condition(self) -> _Condition:
        """Return what its scheduler said, with empty texts where none did."""
        conditions = self.status.conditions or ()
        return next((one for one in conditions if one.type == SCHEDULED), _Condition())


_POD: Final = msgspec.json.Decoder(_UnboundPod)


@dataclass(slots=True)
class _WaitingPod:
    """A pod without a node, and what was recorded of it."""

    pod: PodSummary
    since: float  # monotonic seconds
    seen_arriving: bool  # it was not there yet when this controller began
    read_at: float | None = None  # monotonic seconds
    begun: bool = False
    reason: str = ""
    created: datetime | None = None


@dataclass(frozen=True, slots=True)
class WaitingFigure:
    """How many pods of one namespace wait for one reason, and for how long the oldest has."""

    pods: int
    oldest_seconds: float


WaitingFigures = Mapping[tuple[str, str], WaitingFigure]  # by namespace and reason


def _no_report(_figures: WaitingFigures) -> None:
    return


@dataclass(slots=True, kw_only=True)
class WaitingController:
    """Follows the pods without a node that ask for vGPU. The leader runs it."""

    calls: ApiClient
    pods: Pods
    vocabularies: Callable[[], tuple[Vocabulary, ...]]
    write_record: WriteRecord
    report: Callable[[WaitingFigures], None] = _no_report  # after each sweep
    clock: Clock = SYSTEM
    _waiting: dict[str, _WaitingPod] = field(default_factory=dict, init=False)  # by uid
    _began: bool = field(default=False, init=False)

    async def sweep(self) -> None:
        """Record who waits no longer, then who waits, and why."""
        by_uid = self.pods.by_uid
        if by_uid is None:
            return
        now, vocabularies = self.clock.monotonic(), self.vocabularies()
        unbound = {
            pod.uid: pod
            for pod in self.pods.unbound()
            if not (pod.over or pod.deleting) and pod.requests_gpus(vocabularies)
        }
        for uid in [uid for uid in self._waiting if uid not in unbound]:
            self._record_end(self._waiting.pop(uid), by_uid.get(uid), now)
        for uid, pod in unbound.items():
            if uid not in self._waiting:
                self._waiting[uid] = _WaitingPod(pod, now, seen_arriving=self._began)
        self._began = True
        for waiting in self._due(now):
            with isolated("waiting pod not read", uid=waiting.pod.uid):
                await self._read(waiting, now)
        self.report(self._figures(now))

    def _figures(self, now: float) -> WaitingFigures:
        """Return who waits; a pod counts once it was read, because most are bound at once."""
        figures: dict[tuple[str, str], WaitingFigure] = {}
        for one in self._waiting.values():
            if not one.begun:
                continue
            age = now - one.since
            if one.created is not None:
                age = max(age, (self.clock.wall() - one.created).total_seconds())
            key = one.pod.namespace, one.reason
            before = figures.get(key, WaitingFigure(0, 0.0))
            figures[key] = WaitingFigure(before.pods + 1, max(before.oldest_seconds, age))
        return figures

    def _due(self, now: float) -> list[_WaitingPod]:
        """Return the pods to read now, those first that were not read for longest."""
        due = [
            one
            for one in self._waiting.values()
            if now - one.since >= AFTER
            and (one.read_at is None or now - one.read_at >= READ_AGAIN_AFTER)
        ]
        return sorted(due, key=lambda one: one.read_at or 0.0)[:MOST_READS]

    async def _read(self, waiting: _WaitingPod, now: float) -> None:
        """Record why a pod waits, unless that was done."""
        pod, waiting.read_at = waiting.pod, now
        try:
            raw = await self.calls.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
            found = _POD.decode(raw)
        except NotFoundError:
            return
        except (KubeError, msgspec.MsgspecError) as error:
            log.warning("waiting pod not read", pod=f"{pod.namespace}/{pod.name}", why=str(error))
            return
        if found.metadata.uid != pod.uid or found.spec.node_name:
            return  # the watch will say so too
        condition = found.condition
        waiting.created = found.metadata.creation_timestamp
        if waiting.begun and condition.reason == waiting.reason:
            return
        state = WaitingState.CHANGED if waiting.begun else WaitingState.BEGUN
        waiting.begun, waiting.reason = True, condition.reason
        digest = (found.metadata.annotations or {}).get(DECISION_KEY, "")
        fields = {
            **_pod_fields(pod),
            **waiting_fields(state, condition.reason, condition.message),
            "digest": escaped(digest) if digest else None,
        }
        self.write_record("waiting", fields, record_id=waiting_id(state, pod.uid))

    def _record_end(self, waiting: _WaitingPod, pod: PodSummary | None, now: float) -> None:
        """Record that a pod waits no longer.

        One that was bound at once never waited. One that was there before us, or is gone, may have
        been recorded by others.
        """
        bound = pod is not None and bool(pod.node)
        if bound and waiting.seen_arriving and not waiting.begun:
            return
        seconds = None
        if waiting.created is not None:
            seconds = (self.clock.wall() - waiting.created).total_seconds()
        elif waiting.seen_arriving:
            seconds = now - waiting.since
        state = WaitingState.OVER
        fields = {
            **_pod_fields(waiting.pod),
            **waiting_fields(state, "bound" if bound else "gone", ""),
            "node": escaped(pod.node, LONGEST_NAME) if pod is not None and bound else None,
            "seconds": None if seconds is None else round(max(seconds, 0.0), 1),
        }
        self.write_record("waiting", fields, record_id=waiting_id(state, waiting.pod.uid))


def _pod_fields(pod: PodSummary) -> Mapping[str, Any]:
    namespace, name, uid = all_shown((pod.namespace, pod.name, pod.uid), LONGEST_NAME)
    return {"namespace": namespace, "pod": name, "pod_uid": uid}
