"""Candidates of a stored decision, recomputed on its own snapshot."""

from dataclasses import replace
from time import perf_counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from allocator.audit.record import AdmissionRecord, BindRecord
from allocator.catalog.vocabularies import GPUSHARE, VOLCANO
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.replay.request_codec import RecordedRequest
from console.get.candidate_text import candidate_rows
from console.get.candidates import MOST_CANDIDATES, CandidateList, DecisionCandidates
from console.replay.candidates import admission_candidates, bind_candidates
from tests.builders.audit import VERSION, Bound, Recorded, recorded_admission, recorded_bind
from tests.builders.model import A100_40, T4, ask, gpu, node, nodes_of, pod, snapshot, soft_grant
from tests.builders.recorded import FLEETS, recorded_requests
from tests.unit.console.replay.test_replay import binds

FLEET = snapshot(nodes_of(4, T4), nodes_of(8, A100_40, mode=Mode.MIG, name="n1"))
SMALL = RecordedRequest(request=pod(ask(4000)))


def admission_of(found: Recorded) -> AdmissionRecord:
    assert found.admission is not None
    return found.admission


def bind_of(found: Recorded) -> BindRecord:
    assert found.bind is not None
    return found.bind


def weighed(found: Recorded, *, version: str = VERSION) -> CandidateList:
    if found.admission is not None:
        return admission_candidates(
            found.admission, found.settings, found.snapshot, version=version
        )
    return bind_candidates(bind_of(found), found.settings, found.snapshot, version=version)


def test_each_kind_of_gpu_has_its_cost_and_the_cheapest_of_the_mode_is_named() -> None:
    """An auditor sees what the mode of a pod was compared with."""
    found = weighed(recorded_admission(SMALL, FLEET))

    assert [
        (row.model, row.mode, row.fits, row.cost_per_mille, row.named, row.count)
        for row in found.rows
    ] == [
        (A100_40, "mig", True, 125, True, 8),
        (T4, "hami-core", True, 261, False, 4),
    ]
    assert (found.total, found.fitting, found.unknown, found.note) == (2, 2, "", "")


def test_a_kind_that_does_not_serve_says_why_in_the_words_of_the_product() -> None:
    """Nobody has to guess which of several conditions failed."""
    large = RecordedRequest(request=pod(ask(20_000)))
    many = RecordedRequest(request=pod(ask(4000, count=6)))

    short = weighed(recorded_admission(large, FLEET))
    few = weighed(recorded_admission(many, FLEET))

    assert [(row.model, row.reason) for row in short.rows if not row.fits] == [
        (T4, "GpuMemoryShort")
    ]
    detail = {row.model: row.detail for row in few.rows}
    assert detail[T4] == "6 are asked for; no node has more than 4"


def test_a_bind_shows_each_gpu_of_its_node_and_which_was_given() -> None:
    """The alternatives on the node stand beside what was committed, as they were then."""
    busy, ill = gpu(T4, grants=(soft_grant(14_000),)), replace(gpu(T4, index=2), healthy=False)
    there = node("gpu-b", busy, gpu(T4, index=1), ill)
    found = weighed(recorded_bind(Bound(asked=replace(SMALL, final=Mode.HAMI_CORE), node=there)))

    rows = [
        (row.index, row.fits, row.reason, row.detail, row.rank, row.named) for row in found.rows
    ]
    assert rows == [
        (1, True, "", "15360 of 15360 MiB free", 1, True),
        (0, False, "GpuMemoryShort", "1360 of 15360 MiB free", None, False),
        (2, False, "GpuUnhealthy", "unhealthy", None, False),
    ]


@given(recorded_requests((VOLCANO, GPUSHARE)), FLEETS)
@settings(max_examples=150)
def test_the_rows_of_an_admission_agree_with_what_was_recorded(
    asked: RecordedRequest, fleet: Snapshot
) -> None:
    """The cost of the named kind is the recorded cost of the mode, whatever was asked."""
    found = recorded_admission(asked, fleet)
    record = admission_of(found)
    named = [row for row in weighed(found).rows if row.named]

    if not record.mode or record.mode not in record.costs_per_mille:
        assert named == []
    else:
        assert {row.cost_per_mille for row in named} == {record.costs_per_mille[record.mode]}
        assert {row.mode for row in named} == {record.mode}
        assert all(row.fits for row in named)


@given(binds())
@settings(max_examples=150)
def test_what_a_bind_gave_is_among_the_gpus_that_fit(bound: Bound) -> None:
    """A GPU is never shown as unfit and given at once."""
    found = recorded_bind(bound)
    shown = weighed(found)

    given_gpus = {d.gpu for part in bind_of(found).containers for d in part.devices}
    if shown.total <= MOST_CANDIDATES and not shown.unknown:
        assert {row.gpu for row in shown.rows if row.named} == given_gpus
        assert all(row.fits for row in shown.rows if row.named)
    assert all((row.rank is not None) == row.fits for row in shown.rows)


def test_another_version_says_that_it_computed_the_rows() -> None:
    """Rows of a release that did not decide are not taken for what was seen then."""
    found = weighed(recorded_admission(SMALL, FLEET), version="9.9.9")

    assert found.note == f"version {VERSION} decided then; version 9.9.9 computed these rows"


@pytest.mark.parametrize("lost", ["settings", "snapshot"])
def test_what_is_not_stored_is_unknown(lost: str) -> None:
    """No row is invented where the snapshot or the settings are gone."""
    found = recorded_admission(SMALL, FLEET)
    kept: dict[str, Any] = {"settings": found.settings, "snapshot": found.snapshot, lost: None}

    shown = admission_candidates(
        admission_of(found), kept["settings"], kept["snapshot"], version=VERSION
    )

    assert shown.rows == ()
    assert "stored" in shown.unknown


HOSTILE = [
    {"node": "n"},
    {"kinds": "x", "vocabularies": []},
    {"kinds": [[]], "vocabularies": []},
    {"kinds": [[None, -1, "mig", None, 1]], "vocabularies": []},
    {"kinds": [["T4", 1, "turbo", None, 1]], "vocabularies": []},
    {"kinds": [["T4", 1, "mig", 7, 1]], "vocabularies": []},
    {"kinds": [["\x1b[31m", 1, "mig", None, 1]], "vocabularies": []},
    {"kinds": [["T4", 2**40, "mig", None, 1]], "vocabularies": []},
    {"kinds": [["T4", 1, "mig", None, 1]], "vocabularies": [{"name": "x"}]},
    {"kinds": [["T4", 1, "mig", None, 1]] * 5000, "vocabularies": []},
    {"kinds": [["T4", 1, "mig", None, 1, "acme"]], "vocabularies": [], "more": 1},
    {"kinds": None, "vocabularies": None},
]


@pytest.mark.parametrize("content", HOSTILE, ids=lambda one: str(one)[:40])
def test_hostile_content_is_refused_with_a_sentence(content: dict[str, Any]) -> None:
    """A store that somebody wrote into makes a page say what is wrong, and nothing else."""
    found = recorded_admission(SMALL, FLEET)
    other = msgspec.structs.replace(found.snapshot, content=content)

    for digest in (found.snapshot.content_digest, ""):
        forged = msgspec.structs.replace(other, content_digest=digest)
        shown = admission_candidates(admission_of(found), found.settings, forged, version=VERSION)
        assert shown.rows == ()
        assert shown.unknown
        assert list(candidate_rows(DecisionCandidates(admission=shown)))


def of_many_kinds(nodes: int, *, kinds: int) -> list[Node]:
    """Return nodes with eight GPUs each, of which some differ in their memory."""
    return [
        node(
            f"n{n}",
            *(replace(gpu(T4, index=i), memory=MiB(8000 + n % kinds)) for i in range(8)),
        )
        for n in range(nodes)
    ]


def test_a_page_has_a_hundred_rows_at_most_and_the_named_one_among_them() -> None:
    """A fleet of any size is one short table, with the number of the others."""
    found = weighed(recorded_admission(SMALL, snapshot(*of_many_kinds(300, kinds=300))))

    assert len(found.rows) == MOST_CANDIDATES
    assert (found.total, found.rows[0].named) == (300, True)


def test_five_thousand_nodes_take_less_than_a_second() -> None:
    """A page of one decision stays quick, even where every second node is of its own kind."""
    fleet = snapshot(*of_many_kinds(5000, kinds=2500))
    found = recorded_admission(SMALL, fleet)

    start = perf_counter()
    shown = weighed(found)
    taken = perf_counter() - start

    assert shown.total == 2500
    assert taken < 1
