"""Folding records into states."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.audit.record import AnyRecord, BindVerdict, Component, OwnerPart
from console.records.decision_row import RowContext, decision_row, is_listed
from console.records.fold import (
    SubjectKey,
    absorb,
    confirm,
    confirmed_key,
    decision_digest,
    new_state,
    parse_key,
    subject_key,
)
from console.records.query import PodOutcome
from console.records.rows import DecisionRow
from console.records.state import DecisionState, Subject
from console.records.times import milliseconds
from tests.builders.records import (
    MINUTE,
    bound,
    health,
    histories,
    mutated,
    refused,
    released,
    started,
    uid,
    validated,
    violation,
    waiting,
)


def folded(records: Sequence[AnyRecord]) -> dict[SubjectKey, DecisionState]:
    states: dict[SubjectKey, DecisionState] = {}
    for record in records:
        at = milliseconds(record.at)
        key, confirms = subject_key(record), confirmed_key(record)
        if key is not None:
            absorb(states.setdefault(key, new_state(key)), record, at)
        if confirms is not None and confirms != key:
            confirm(states.setdefault(confirms, new_state(confirms)), at)
    return states


def pod_row(*records: AnyRecord) -> DecisionRow:
    state = folded(records)[SubjectKey(Subject.POD, uid(1))]
    return decision_row(state, RowContext(people=True))


@given(histories().flatmap(lambda records: st.tuples(st.just(records), st.permutations(records))))
@settings(max_examples=300)
def test_any_order_of_records_ends_in_the_same_states(
    both: tuple[list[AnyRecord], list[AnyRecord]],
) -> None:
    """Two replicas and spools deliver records in any order."""
    inorder, shuffled = both
    assert folded(shuffled) == folded(inorder)


def test_a_pods_life_is_one_row() -> None:
    """Admission, wait, bind, start, violation and end each leave their mark."""
    row = pod_row(
        mutated(),
        validated(3),
        waiting(10),
        waiting(MINUTE, state="over", reason=""),
        bound(MINUTE),
        started(2 * MINUTE),
        violation(3 * MINUTE),
        released(4 * MINUTE),
    )
    assert (row.state, row.node, row.mode, row.violations) == (
        PodOutcome.OVER,
        "gpu-1",
        "hami-core",
        1,
    )
    assert [row.bound_at, row.started_at, row.over_at] == [
        "2026-11-20T12:01:00.000Z",
        "2026-11-20T12:02:00.000Z",
        "2026-11-20T12:04:00.000Z",
    ]


def test_each_step_of_a_life_is_a_state() -> None:
    """What happened last, by its meaning, says what became of the pod."""
    life: list[AnyRecord] = [validated(), waiting(10), bound(20), started(30), released(40)]
    outcomes = [pod_row(*life[:n]).state for n in range(1, len(life) + 1)]
    assert outcomes == ["admitted", "waiting", "bound", "running", "over"]


def test_an_entry_that_was_never_bound_leaves_the_pod_waiting() -> None:
    """An expired entry is no bind; a bind to another node stays one."""
    records = (validated(), waiting(5), bound(10))
    assert pod_row(*records, released(20, why="unbound")).state is PodOutcome.WAITING
    other = released(20, why="replaced", node="gpu-2")
    assert pod_row(*records, other).state is PodOutcome.BOUND
    assert pod_row(*records, released(20, why="unbound"), bound(30)).state is PodOutcome.BOUND


def test_refused_binds_and_binds_elsewhere_give_nothing() -> None:
    """A refused bind changes no state, and one of another device plugin names only the node."""
    row = pod_row(validated(), bound(10, outcome=BindVerdict.REFUSED))
    assert (row.state, row.node) == (PodOutcome.ADMITTED, "")
    row = pod_row(validated(), bound(10, outcome=BindVerdict.ELSEWHERE, containers=()))
    assert (row.state, row.node, row.given) == (PodOutcome.BOUND, "gpu-1", ())


def test_a_repeated_refusal_is_one_row() -> None:
    """A controller that tries again counts up, and the first and last time are kept."""
    states = folded([refused(n * MINUTE) for n in (2, 0, 1)])
    [state] = states.values()
    row = decision_row(state, RowContext())
    assert (row.times, row.first, row.last) == (
        3,
        "2026-11-20T12:00:00.000Z",
        "2026-11-20T12:02:00.000Z",
    )


def test_a_request_without_digest_has_a_stand_in() -> None:
    """The stand-in is the same for a repeated request, and another for another one."""
    owner = (OwnerPart(kind="Job", name="j", uid=uid(9)),)
    first = decision_digest(refused(digest="", owners=owner))
    assert first == decision_digest(refused(MINUTE, digest="", owners=owner))
    assert first.startswith("~")
    assert first != decision_digest(refused(digest="", owners=owner, reason="InvalidRequest"))


def test_a_request_is_listed_until_its_pod_is_known() -> None:
    """What quota refused afterwards stays a decision; a pod takes the place of its request."""
    key = SubjectKey(Subject.PENDING, "digest-a")
    assert is_listed(folded([mutated()])[key])
    assert not is_listed(folded([mutated(), validated(3)])[key])
    assert not is_listed(folded([mutated(), refused(3, digest="digest-a", step="validate")])[key])


def test_an_agent_renames_no_pod() -> None:
    """Records of agents change neither name nor namespace, nor what was decided."""
    forged = replace(started(namespace="team-b", digest="digest-x"), pod="other")
    row = pod_row(forged, validated(5))
    assert (row.namespace, row.pod, row.digest) == ("team-a", "train-1", "digest-a")
    row = pod_row(
        validated(), bound(component=Component.AGENT), released(component=Component.AGENT)
    )
    assert row.state is PodOutcome.ADMITTED


def test_an_agent_speaks_of_pods_of_its_node_only() -> None:
    """The agent of another node starts no pod, and accuses none."""
    forged = (started(5, node="gpu-2"), violation(6, node="gpu-2"))
    row = pod_row(validated(), bound(10), *forged)
    assert (row.state, row.started_at, row.violations) == (PodOutcome.BOUND, "", 0)
    row = pod_row(*forged, validated(), bound(10), started(20), violation(30))
    assert (row.state, row.started_at, row.violations) == (
        PodOutcome.RUNNING,
        "2026-11-20T12:00:00.020Z",
        1,
    )


def test_what_is_about_no_pod_changes_no_state() -> None:
    """The health of a GPU is no decision, and neither is a debug container."""
    assert folded([health()]) == {}
    assert folded([mutated(step="ephemeral")]) == {}


@given(st.text(max_size=40) | st.uuids().map(str), st.sampled_from(Subject))
def test_a_key_is_read_back(identity: str, subject: Subject) -> None:
    """Every identity that can be encoded has a key of its own."""
    try:
        identity.encode()
    except UnicodeEncodeError:
        return
    key = SubjectKey(subject, identity)
    assert parse_key(key.database_key) == key
