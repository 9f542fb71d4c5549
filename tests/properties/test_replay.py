"""Whatever a record and a store say, replay answers, and never as if it believed them."""

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.audit.record import AdmissionRecord, BindRecord
from allocator.model.request import Mode
from allocator.replay.content import ReplayContentError, content_digest
from allocator.replay.request_codec import RecordedRequest
from console.replay.life import ReplayedLife, replay_document, replay_lines
from console.replay.outcome import DifferentDecision, NotReplayable, SameDecision
from console.replay.replay import replay_admission, replay_bind
from tests.builders.audit import VERSION, Bound, Recorded, recorded_admission, recorded_bind
from tests.builders.model import (
    A100_40,
    T4,
    ask,
    gpu,
    mig_grant,
    node,
    placed,
    pod,
    snapshot,
    soft_grant,
)

ASKED = RecordedRequest(request=pod(ask(4000, cores=20, count=2)))
THERE = node(
    "n0",
    gpu(A100_40, mode=Mode.MIG, grants=[mig_grant("1g.5gb", 0)], instances=[placed("1g.5gb", 0)]),
    gpu(A100_40, index=1, mode=Mode.MIG),
    gpu(T4, index=2, grants=[soft_grant(3000, 10)]),
    gpu(T4, index=3),
)
ADMITTED = recorded_admission(ASKED, snapshot(THERE))
BOUND = recorded_bind(Bound(asked=ASKED, node=THERE))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1, 64, 65, 100, 101])
SCALARS = st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner)
)


@st.composite
def changed_json(draw: st.DrawFn, document: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return *document* with one part replaced by anything."""
    if isinstance(document, dict) and document and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(document)))
        return {**document, key: draw(changed_json(document[key]))}
    if isinstance(document, list | tuple) and document and draw(st.integers(0, 9)):
        place = draw(st.integers(0, len(document) - 1))
        return [*document[:place], draw(changed_json(document[place])), *document[place + 1 :]]
    return draw(JSON)


def with_content(found: Recorded, content: object) -> Recorded | None:
    """Return *found* on another content, whose digest it names; ``None`` where it has none."""
    if not isinstance(content, dict):
        return None
    try:
        digest = content_digest(content)
    except ReplayContentError:
        return None
    stored = msgspec.structs.replace(found.snapshot, content=content, content_digest=digest)
    admission, bind = found.admission, found.bind
    if admission is not None:
        admission = msgspec.structs.replace(admission, snapshot=digest)
    if bind is not None:
        bind = msgspec.structs.replace(bind, snapshot=digest)
    return replace(found, snapshot=stored, admission=admission, bind=bind)


def answer(found: Recorded) -> ReplayedLife:
    """Replay *found* and show the answer in each form."""
    view = ReplayedLife()
    if found.admission is not None:
        again = replay_admission(found.admission, found.settings, found.snapshot, version=VERSION)
        view = replace(view, admission=again)
    if found.bind is not None:
        again = replay_bind(found.bind, found.settings, found.snapshot, version=VERSION)
        view = replace(view, bind=again)
    assert all(line.text.isprintable() for line in replay_lines(view))
    msgspec.json.encode(replay_document(view))
    return view


def is_answer(found: object) -> bool:
    return isinstance(found, SameDecision | DifferentDecision | NotReplayable)


@given(changed_json(ADMITTED.snapshot.content))
@settings(max_examples=300, deadline=None)
def test_any_fleet_is_answered(content: object) -> None:
    """A fleet that nobody has is replayed or refused with words."""
    found = with_content(ADMITTED, content)

    assert found is None or is_answer(answer(found).admission)


@given(changed_json(BOUND.snapshot.content))
@settings(max_examples=300, deadline=None)
def test_any_node_is_answered(content: object) -> None:
    """A node that nobody has is replayed or refused with words."""
    found = with_content(BOUND, content)

    assert found is None or is_answer(answer(found).bind)


@given(changed_json(msgspec.to_builtins(ADMITTED.admission)))
@settings(max_examples=300, deadline=None)
def test_any_admission_is_answered(value: object) -> None:
    """Whatever a sender wrote into a field."""
    try:
        record = msgspec.convert(value, AdmissionRecord)
    except msgspec.ValidationError:
        return  # no store takes it

    assert is_answer(answer(replace(ADMITTED, admission=record)).admission)


@given(changed_json(msgspec.to_builtins(BOUND.bind)))
@settings(max_examples=300, deadline=None)
def test_any_bind_is_answered(value: object) -> None:
    """Whatever a sender wrote into a field."""
    try:
        record = msgspec.convert(value, BindRecord)
    except msgspec.ValidationError:
        return  # no store takes it

    assert is_answer(answer(replace(BOUND, bind=record)).bind)
