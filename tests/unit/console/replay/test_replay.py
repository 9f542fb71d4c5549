"""Replay: stored decisions decided again."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.audit.record import (
    AdmissionVerdict,
    BindVerdict,
    LateCommitRecord,
)
from allocator.catalog.vocabularies import GPUSHARE, VOLCANO
from allocator.model.decision import Reason
from allocator.model.demand import BoardDemand, Demand
from allocator.model.gpu import Snapshot
from allocator.model.request import Mode
from allocator.replay.request_codec import RecordedRequest
from console.replay.outcome import (
    ChangedField,
    DifferentDecision,
    NotReplayable,
    Replay,
    SameDecision,
)
from console.replay.replay import WHOLE_POD, replay_admission, replay_bind
from tests.builders.audit import VERSION, Bound, Recorded, recorded_admission, recorded_bind
from tests.builders.model import (
    A100_40,
    T4,
    ask,
    gpu,
    node,
    nodes_of,
    pod,
    snapshot,
    soft_grant,
)
from tests.builders.recorded import (
    FLEETS,
    GEOMETRIES,
    OWN_WORDS,
    nodes,
    recorded_requests,
)

CATALOGUE = (VOLCANO, GPUSHARE)
SETTINGS = st.sampled_from(
    ["", "fleet: closed", "prefer: density", "nodeAgent: upstream", "gpuPolicy: spread"]
)
FLEET = snapshot(nodes_of(4, T4), nodes_of(8, A100_40, mode=Mode.MIG, name="n1"))
SMALL = RecordedRequest(request=pod(ask(4000)))
LARGE = RecordedRequest(request=pod(ask(90_000)))


def replayed(found: Recorded, *, version: str = VERSION) -> Replay:
    if found.admission is not None:
        return replay_admission(found.admission, found.settings, found.snapshot, version=version)
    assert found.bind is not None
    return replay_bind(found.bind, found.settings, found.snapshot, version=version)


def changed(found: Recorded, **fields: Any) -> Recorded:  # noqa: ANN401 -- any field
    """Return a record that says something else."""
    if found.admission is not None:
        admission = msgspec.structs.replace(found.admission, **fields)
        return replace(found, admission=admission)
    assert found.bind is not None
    return replace(found, bind=msgspec.structs.replace(found.bind, **fields))


def names_of(found: Replay) -> list[str]:
    assert isinstance(found, DifferentDecision), found
    return [one.name for one in found.changed]


def why_not(found: Replay) -> str:
    assert isinstance(found, NotReplayable), found
    return found.why


@given(recorded_requests(CATALOGUE), FLEETS, SETTINGS)
@settings(max_examples=300)
def test_each_admission_comes_out_again(asked: RecordedRequest, fleet: Snapshot, text: str) -> None:
    """Whatever is asked, wherever, under whatever settings: the record holds all that decides."""
    found = recorded_admission(asked, fleet, settings=text)

    assert isinstance(replayed(found), SameDecision), replayed(found)


@st.composite
def binds(draw: st.DrawFn) -> Bound:
    there = draw(nodes())
    counts = {"1g.5gb": 40.0, "2g.10gb": draw(st.floats(0, 100))}
    learned = BoardDemand(counts=counts, failures=draw(st.floats(0, 0.2)))
    names = [board.name for one in there.gpus if (board := one.board) is not None]
    uuids = [one.uuid for one in there.gpus]
    return Bound(
        asked=draw(recorded_requests(CATALOGUE)),
        node=there,
        settings=draw(SETTINGS),
        geometries=draw(GEOMETRIES),
        gpus=tuple(draw(st.lists(st.sampled_from(uuids), max_size=2, unique=True))),
        hard_policy=draw(st.sampled_from(["", "gpu exclusive"])),
        demand=Demand(boards=dict.fromkeys(names, learned)),
    )


@given(binds())
@settings(max_examples=300)
def test_each_bind_comes_out_again(bound: Bound) -> None:
    """On any node, with whatever is taken there, the same GPUs and slots are found again."""
    found = recorded_bind(bound)

    assert isinstance(replayed(found), SameDecision), replayed(found)


def test_what_was_chosen_is_told() -> None:
    """A page can show the fields that came out again."""
    found = replayed(recorded_admission(SMALL, FLEET))

    assert isinstance(found, SameDecision)
    assert found.fields["mode"] == "mig"
    assert found.fields["costs_per_mille"] == {"mig": 125, "hami-core": 261}


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "hami-core"},
        {"mode_source": "only"},
        {"costs_per_mille": {"mig": 1}},
        {"rule": "by chance"},
        {"outcome": AdmissionVerdict.REFUSED},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_that_says_otherwise_is_found_out(change: dict[str, Any]) -> None:
    """No field of a decision is taken on trust."""
    (name,) = change

    assert name in names_of(replayed(changed(recorded_admission(SMALL, FLEET), **change)))


def test_a_difference_shows_both_values_and_both_versions() -> None:
    """An auditor sees what came out otherwise, and whether the program has changed since."""
    found = changed(recorded_admission(SMALL, FLEET), rule="it was so", version="1.0.0")

    assert replayed(found) == DifferentDecision(
        changed=(
            ChangedField(
                name="rule",
                recorded='"it was so"',
                replayed='"it costs no more and isolates in hardware"',
            ),
        ),
        recorded_version="1.0.0",
        version=VERSION,
    )


def test_refusals_come_out_with_their_texts() -> None:
    """A closed fleet refuses what none of its GPUs serves, in the same words."""
    found = recorded_admission(LARGE, FLEET, settings="fleet: closed")
    again = replayed(found)

    assert found.admission is not None
    assert found.admission.outcome is AdmissionVerdict.REFUSED
    assert isinstance(again, SameDecision)
    assert "the largest has 40192" in again.fields["findings"][0]["text"]
    assert names_of(replayed(changed(found, reason="NodeNameSet"))) == ["reason"]
    assert names_of(replayed(changed(found, findings=()))) == ["findings"]


@pytest.mark.parametrize("reason", sorted(WHOLE_POD))
def test_what_only_the_whole_pod_shows_is_not_replayed(reason: Reason) -> None:
    """It is not called different: its request was in order, the pod was not."""
    found = recorded_admission(SMALL, FLEET, outcome="refused", reason=str(reason))

    assert why_not(replayed(found)) == (
        f"it was refused with {reason}, which follows from the whole pod; its request alone would "
        "be admitted in mode mig"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"outcome": AdmissionVerdict.ERROR}, "the pod could not be read"),
        ({"outcome": AdmissionVerdict.UNTOUCHED}, "the pod asks for no GPU"),
        ({"asked": {}}, "its record keeps no request"),
        (
            {"asked": {}, "outcome": AdmissionVerdict.REFUSED, "reason": "MalformedRequest"},
            "it was refused with MalformedRequest before its request was known",
        ),
        ({"asked": {"vocabulary": "x"}}, "this version cannot read what was recorded"),
        ({"settings": "s2"}, "settings s2 are not stored"),
        ({"snapshot": "other"}, "snapshot other is not stored"),
        ({"snapshot": ""}, "snapshot of no digest is not stored"),
    ],
)
def test_an_admission_that_cannot_be_replayed_says_why(change: dict[str, Any], why: str) -> None:
    """Nothing is made up for what is not recorded."""
    assert why_not(replayed(changed(recorded_admission(SMALL, FLEET), **change))).startswith(why)


def test_what_is_not_stored_is_not_replayed() -> None:
    """Settings and snapshots that are gone are named; without a ConfigMap defaults are in force."""
    found = recorded_admission(SMALL, FLEET)
    record, there = found.admission, found.snapshot
    assert record is not None
    defaults = msgspec.structs.replace(record, settings="defaults")

    no_settings = replay_admission(record, None, there, version=VERSION)
    no_snapshot = replay_admission(record, found.settings, None, version=VERSION)

    assert why_not(no_settings) == "settings s1 are not stored"
    assert why_not(no_snapshot) == f"snapshot {there.content_digest} is not stored"
    assert isinstance(replay_admission(defaults, None, there, version=VERSION), SameDecision)


def test_settings_of_another_version_are_told() -> None:
    """A setting that this version does not know is named."""
    found = recorded_admission(SMALL, FLEET)
    odd = msgspec.structs.replace(found.settings, text="color: red")

    why = why_not(replayed(replace(found, settings=odd)))

    assert why.startswith("settings s1 cannot be read by this version: ")
    assert "color" in why


def test_content_that_is_not_of_its_digest_is_not_believed() -> None:
    """A store that was tampered with replays nothing."""
    for found in (
        recorded_admission(SMALL, FLEET),
        recorded_bind(Bound(asked=SMALL, node=nodes_of(1, T4))),
    ):
        content = {**found.snapshot.content, "mixed": True}
        forged = msgspec.structs.replace(found.snapshot, content=content)

        why = why_not(replayed(replace(found, snapshot=forged)))

        assert why.endswith("is not what its digest says")


BIND = recorded_bind(Bound(asked=SMALL, node=node("n0", gpu(T4), gpu(T4, index=1))))
FULL = recorded_bind(Bound(asked=LARGE, node=nodes_of(1, T4)))


def test_grants_are_told() -> None:
    """A page can show which GPU came out again."""
    again = replayed(BIND)

    assert isinstance(again, SameDecision)
    (given_one,) = again.fields["containers"]
    assert given_one["devices"] == [
        {"gpu": "GPU-n0-0", "mode": "hami-core", "memory_mib": 4000, "cores_percent": 0}
    ]


def test_another_gpu_is_found_out() -> None:
    """A bind that gave what the decision did not give is different."""
    assert BIND.bind is not None
    (given_one,) = BIND.bind.containers
    device = msgspec.structs.replace(given_one.devices[0], gpu="GPU-n0-1")
    other = msgspec.structs.replace(given_one, devices=(device,))

    assert names_of(replayed(changed(BIND, containers=(other,)))) == ["containers"]
    assert names_of(replayed(changed(BIND, mode="mig"))) == ["mode"]


def test_a_refused_bind_comes_out_with_its_text() -> None:
    """What is told of pods without an entry is not part of the decision, the rest is."""
    again = replayed(FULL)

    assert isinstance(again, SameDecision)
    assert again.fields["outcome"] == BindVerdict.REFUSED
    assert names_of(replayed(changed(FULL, text="node is full"))) == ["text"]
    assert names_of(replayed(changed(FULL, reason="GpuUnhealthy"))) == ["reason"]


def test_what_was_taken_decides() -> None:
    """Without the grants that were there the pod would have got the first GPU."""
    busy = recorded_bind(
        Bound(
            asked=RecordedRequest(request=pod(ask(12_000))),
            node=node("n0", gpu(T4, grants=[soft_grant(8000)]), gpu(T4, index=1)),
        )
    )

    assert isinstance(replayed(busy), SameDecision)
    assert names_of(replayed(changed(busy, taken=()))) == ["containers"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"outcome": BindVerdict.ELSEWHERE}, "the pod was left to another device plugin"),
        ({"earlier": True}, "the pod had an entry on the node already"),
        ({"snapshot": ""}, "its record keeps no snapshot of the node"),
        ({"asked": {}}, "its record keeps no request"),
        ({"taken": ((9, 1, 1, -1, -1),)}, "this version cannot read what was recorded: a row"),
        ({"settings": "s2"}, "settings s2 are not stored"),
    ],
)
def test_a_bind_that_cannot_be_replayed_says_why(change: dict[str, Any], why: str) -> None:
    """Nothing is made up for what is not recorded."""
    assert why_not(replayed(changed(BIND, **change))).startswith(why)


def test_an_entry_after_the_fact_is_not_replayed() -> None:
    """Its pod was running, so nothing was chosen."""
    assert BIND.bind is not None
    fields = {**msgspec.structs.asdict(BIND.bind), "basis": "its assignment"}
    late = LateCommitRecord(**fields)

    found = replay_bind(late, BIND.settings, BIND.snapshot, version=VERSION)

    assert why_not(found).startswith("the pod was bound past the hook")


def test_names_of_the_cluster_are_in_the_texts() -> None:
    """A refusal that speaks of the cluster's own resource comes out in the same words."""
    asked = RecordedRequest(request=msgspec.structs.replace(LARGE.request, configured=OWN_WORDS[0]))
    found = recorded_admission(asked, FLEET, settings="fleet: closed", words=OWN_WORDS)
    again = replayed(found)

    assert isinstance(again, SameDecision)
    assert "GiB" in again.fields["findings"][0]["text"]
