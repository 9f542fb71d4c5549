"""Mode rows: each mode that a pod could have here, how it asks for it, and whether that fits."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings

from allocator.catalog.keys import PROFILE_KEY
from allocator.catalog.vocabularies import CATALOGUE, GPUSHARE, VOCABULARIES, VOLCANO, Vocabulary
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy
from allocator.model.gpu import Gpu, Snapshot
from allocator.model.request import METAX, Mode, PodRequest
from allocator.placement.choose import FitVerdict, PlacementPolicy, choose
from allocator.report.feasibility import FleetSearch
from allocator.report.mode_rows import (
    ModeAccess,
    ModeRow,
    mode_row_documents,
    mode_row_lines,
    mode_rows,
    row_text,
)
from allocator.report.terminal_lines import plain_text, printed_lines
from tests.builders.acme import ACME_WORDS, known_family
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.builders.model import A100_40, T4, ask, gpu, node, nodes_of, pod, snapshot, soft_grant
from tests.builders.recorded import FLEETS, recorded_requests

MIG = nodes_of(2, A100_40, mode=Mode.MIG, name="m")
SOFT = nodes_of(2, T4, name="s")
MPS = nodes_of(2, T4, mode=Mode.MPS, name="p")


def metax_node() -> Gpu:
    return replace(gpu(T4, mode=Mode.SGPU), model="C500", family=METAX)


EVERYTHING = snapshot(MIG, SOFT, MPS, node("x", metax_node()))


def rows(
    request: PodRequest,
    fleet: Snapshot = EVERYTHING,
    *,
    served: Sequence[Vocabulary] = VOCABULARIES,
    namespace: NamespacePolicy = ANY_MODE,
) -> dict[Mode, ModeRow]:
    search = FleetSearch(snapshot=fleet, mode=None, policy=PlacementPolicy())
    return {one.mode: one for one in mode_rows(request, search, served, namespace=namespace)}


def texts(request: PodRequest, fleet: Snapshot = EVERYTHING) -> list[str]:
    return [row_text(one) for one in rows(request, fleet).values()]


def test_a_pod_that_names_no_mode_is_told_of_all_of_them() -> None:
    """Also of those that are never the best, and of those that its names cannot ask for."""
    assert texts(pod(ask(4000))) == [
        "mig: weighed; fits GPU 0 of m",
        "hami-core: weighed; fits GPU 0 of s",
        "memory-only: only by aliyun.com/gpu-mem",
        "mps: by name only, volcano.sh/vgpu-mode: mps; fits GPU 0 of p",
        "sgpu: metax only, by metax-tech.com/vmemory; the pod asks in nvidia's names",
    ]


def test_modes_of_makes_that_the_fleet_lacks_are_not_told() -> None:
    """A cluster without MetaX's GPUs says nothing of them."""
    assert list(rows(pod(ask(4000)), snapshot(MIG))) == [Mode.MIG, Mode.HAMI_CORE, Mode.MPS]


def test_a_mode_of_a_vocabulary_that_is_not_served_is_not_told() -> None:
    """Nobody is sent to resources that the cluster does not read."""
    assert Mode.MEMORY_ONLY not in rows(pod(ask(4000)), served=(VOLCANO,))


def test_gpushare_is_told_in_its_own_names() -> None:
    """Its pods cannot become mps or mig; they may ask for isolation."""
    request = msgspec.structs.replace(
        pod(ask(4096)), vocabulary=GPUSHARE.name, mode=Mode.MEMORY_ONLY
    )

    assert texts(request)[:4] == [
        "mig: only by volcano.sh/vgpu-memory",
        'hami-core: by name only, vgpu-admission.io/isolate: "true"; fits GPU 0 of s',
        "memory-only: set by the resources of gpushare; fits GPU 0 of s",
        "mps: only by volcano.sh/vgpu-memory",
    ]


def test_a_named_mode_is_named_by_its_key_and_the_others_by_what_would_name_them() -> None:
    """A reader sees which annotation to change."""
    request = msgspec.structs.replace(pod(ask(4000)), mode=Mode.MPS, mode_key=VOLCANO.mode_key)
    profiled = msgspec.structs.replace(pod(ask(4000)), profile="1g.5gb", mode=Mode.MIG)

    found, cut = rows(request), rows(profiled)

    assert found[Mode.MPS].how == "named by volcano.sh/vgpu-mode"
    assert found[Mode.MIG].how == "by name only, volcano.sh/vgpu-mode: mig"
    assert cut[Mode.MIG].how == f"named by {PROFILE_KEY}"
    # Without the profile the pod would fit there.
    assert cut[Mode.HAMI_CORE].verdict is FitVerdict.FITS


def test_what_is_missing_is_told_with_each_mode() -> None:
    """No GPU in the mode, none that is large enough, and none that is free are different things."""
    full = node("s", gpu(T4, grants=(soft_grant(15_000),)))

    found = rows(pod(ask(4000)), snapshot(full))
    large = rows(pod(ask(20_000)), snapshot(full))
    unsure = rows(pod(ask(20_000)), snapshot(full, complete=False))

    assert row_text(found[Mode.MPS]).endswith("mps; no GPU here is in mode mps")
    assert row_text(found[Mode.HAMI_CORE]).endswith(
        "does not fit now: nothing free for it on the 1 GPU in mode hami-core"
    )
    assert large[Mode.HAMI_CORE].missing.startswith("asks for 20000 MiB")
    assert unsure[Mode.HAMI_CORE].verdict is FitVerdict.NOT_NOW


def test_a_mode_that_the_namespace_does_not_admit_is_not_looked_for() -> None:
    """A place is no use to a pod that would be refused."""
    found = rows(pod(ask(4000)), namespace=NamespacePolicy(min_isolation="mig"))

    assert found[Mode.MPS].verdict is None
    assert row_text(found[Mode.MPS]).endswith(
        "not admitted: mode mps isolates less than mig, which the namespace demands with "
        "vgpu-admission.io/min-isolation"
    )
    assert found[Mode.MIG].verdict is FitVerdict.FITS


def test_whoever_may_not_see_nodes_reads_of_none() -> None:
    """The sentence stays, the node goes."""
    found = rows(pod(ask(4000)))[Mode.MPS]

    assert row_text(found, nodes=False) == "mps: by name only, volcano.sh/vgpu-mode: mps; fits"


@given(recorded_requests(VOCABULARIES), FLEETS)
@settings(max_examples=150)
def test_a_row_says_of_a_mode_what_a_search_in_it_says(asked: object, fleet: Snapshot) -> None:
    """Whatever is asked, wherever: a mode that fits by its row fits, and no other one does."""
    request: PodRequest = getattr(asked, "request")  # noqa: B009 -- typed as object for hypothesis
    for one in rows(request, fleet).values():
        if one.access is ModeAccess.OTHER_RESOURCES:
            continue
        found = choose(fleet, request, mode=one.mode)
        assert (one.verdict is FitVerdict.FITS) == (found.assignment is not None)


@pytest.mark.parametrize("vocabulary", CATALOGUE, ids=lambda each: str(each.name))
def test_every_vocabulary_has_rows_with_a_way_to_ask(vocabulary: Vocabulary) -> None:
    """Each row says how, whichever words the pod uses."""
    request = msgspec.structs.replace(
        pod(ask(4096)),
        vocabulary=vocabulary.name,
        mode=vocabulary.mode,
        family=vocabulary.family,
        configured=vocabulary,
    )

    found = mode_row_documents(tuple(rows(request, served=CATALOGUE).values()))

    assert found
    assert all(one["how"] and one["access"] for one in found)
    assert sum(one["access"] == ModeAccess.ASKED for one in found) == (vocabulary.mode is not None)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_names_reach_no_terminal(text: str) -> None:
    """A node is called what its owner likes; a line stays a line."""
    one = ModeRow(
        mode=Mode.MPS, access=ModeAccess.BY_NAME, how=text, verdict=FitVerdict.FITS, place=text
    )

    for line in printed_lines(mode_row_lines([one])):
        assert plain_text(line).isprintable()


def test_a_family_of_a_made_up_maker_has_rows_by_its_data_alone() -> None:
    """Nothing in the code knows it: a catalogue entry and a family are enough."""
    with known_family():
        served = (*VOCABULARIES, ACME_WORDS)
        theirs = replace(gpu(T4), model="ACME 1", family="acme")
        own = msgspec.structs.replace(
            pod(ask(4096)), vocabulary="acme", family="acme", configured=ACME_WORDS
        )
        fleet = snapshot(node("a", theirs))

        found, strange = rows(own, fleet, served=served), rows(pod(ask(4096)), fleet, served=served)

    assert [row_text(one) for one in found.values()] == ["hami-core: weighed; fits GPU 0 of a"]
    assert strange[Mode.HAMI_CORE].missing == "no GPU here is in mode hami-core"
