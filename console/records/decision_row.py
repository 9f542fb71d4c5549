"""What lists and pages show of the state of a decision."""

from dataclasses import dataclass
from itertools import chain

from allocator.audit.record import DevicePart
from console.records.query import PodOutcome
from console.records.rows import DecisionRow
from console.records.state import NEVER, AdmissionRegister, DecisionState, Subject
from console.records.times import rfc3339

_WAITS_NO_LONGER = "over"
_STAND_IN = "~"  # how the digest of a request that has none begins


def is_bound(state: DecisionState) -> bool:
    """Say whether the pod was bound, and its entry not taken back since on that node."""
    bind, release = state.bind, state.release
    if bind.stamp == NEVER:
        return False
    return not (release.stamp > bind.stamp and release.node == bind.node)


def started_of(state: DecisionState) -> int | None:
    """Return when the pod started, by the agent of its node where that is known."""
    if is_bound(state):
        return state.started.get(state.bind.node)
    return min(state.started.values(), default=None)


def violations_of(state: DecisionState) -> int:
    """Return how many violations were reported, by the agent of its node where that is known."""
    if is_bound(state):
        return state.violations.get(state.bind.node, 0)
    return sum(state.violations.values())


def outcome_of(state: DecisionState) -> PodOutcome:
    """Return what became of the pod; what its node tells beats what was decided before."""
    if state.subject in {Subject.REFUSED, Subject.FAILED}:
        return PodOutcome.REFUSED
    if state.over is not None:
        return PodOutcome.OVER
    if started_of(state) is not None:
        return PodOutcome.RUNNING
    if is_bound(state):
        return PodOutcome.BOUND
    if state.waiting.state and state.waiting.state != _WAITS_NO_LONGER:
        return PodOutcome.WAITING
    return PodOutcome.ADMITTED


def is_listed(state: DecisionState) -> bool:
    """Say whether the state is a decision of its own.

    A pending request is one until its pod is known, and a pod that only its node tells of is none.
    """
    admitted = state.admission.stamp != NEVER
    if state.subject is Subject.POD:
        return admitted or state.bound_first is not None
    return admitted and not state.confirmed


def digest_of(state: DecisionState) -> str:
    """Return the digest of the request; a stand-in only where no record has a real one."""
    stated = state.admission.digest
    if state.subject is Subject.POD and (not state.digest or not stated.startswith(_STAND_IN)):
        return stated or state.digest
    return state.digest


def mode_of(state: DecisionState) -> str:
    """Return the mode that the bind chose, or else the one of the decision at CREATE."""
    return (state.bind.mode if is_bound(state) else "") or state.admission.mode


def last_of(state: DecisionState) -> int:
    """Return when it was decided for the last time, in milliseconds since 1970."""
    if state.last is not None:
        return state.last
    return state.active if state.bound_last is None else state.bound_last


def first_of(state: DecisionState) -> int:
    """Return when it was decided for the first time, in milliseconds since 1970."""
    if state.first is not None:
        return state.first
    return state.active if state.bound_first is None else state.bound_first


def promised(state: DecisionState) -> tuple[int, int]:
    """Return MiB and percent of cores that the pod was promised, 0 where it was not bound."""
    devices: list[DevicePart] = []
    if is_bound(state):
        devices = list(chain.from_iterable(given.devices for given in state.bind.given))
    mib = sum(device.memory_mib or 0 for device in devices)
    return mib, sum(device.cores_percent or 0 for device in devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowContext:
    """What a row shows beside its own state.

    ``source`` says how the ``requester`` was found. ``request`` is the pending state with the pod's
    digest, which says what was asked for where the pod's own reviews do not.
    """

    requester: str = ""
    source: str = ""
    request: DecisionState | None = None
    people: bool = False  # whether names of persons may be shown


def _asked(state: DecisionState, request: DecisionState | None) -> AdmissionRegister:
    """Return the review that says what was asked for."""
    if state.admission.asked or request is None:
        return state.admission
    return request.admission if request.name.namespace == state.name.namespace else state.admission


def decision_row(state: DecisionState, context: RowContext) -> DecisionRow:
    """Return *state* as a row."""
    admission, bound, outcome = state.admission, is_bound(state), outcome_of(state)
    asked, people = _asked(state, context.request), context.people
    waits = outcome is PodOutcome.WAITING
    since = state.waiting_begun if state.waiting_begun is not None else state.waiting.stamp[0]
    return DecisionRow(
        digest=digest_of(state),
        pod_uid=state.pod_uid,
        first=rfc3339(first_of(state)),
        last=rfc3339(last_of(state)),
        times=max(1, state.times if state.subject in {Subject.REFUSED, Subject.FAILED} else 1),
        verdict=admission.verdict,
        reason=admission.reason,
        text=admission.text or asked.text,
        namespace=state.name.namespace,
        pod=state.name.pod,
        owner=admission.owner,
        user=admission.user if people else "",
        requester=context.requester if people else "",
        requester_source=context.source if people else "",
        vocabulary=asked.vocabulary,
        mode=mode_of(state),
        mode_source=(state.bind.mode_source if bound else "") or asked.mode_source,
        asked=asked.asked,
        given=state.bind.given if bound else (),
        node=state.bind.node if bound else "",
        state=outcome,
        waiting_reason=state.waiting.reason if waits else "",
        waiting_since=rfc3339(since) if waits else "",
        bound_at=rfc3339(state.bind.stamp[0]) if bound else "",
        started_at=rfc3339(started_of(state)),
        over_at=rfc3339(state.over),
        violations=violations_of(state),
    )
