"""Whatever a tenant writes, reading it ends in a request or in findings that help."""

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.model.decision import Finding, Findings, Reason
from allocator.model.request import PodRequest
from allocator.request import containers
from allocator.request.fast_path import parse_common
from allocator.request.quantity import LARGEST, canonical, parse, parse_plain
from allocator.request.resource_names import resource_names
from tests.builders.containers import (
    CORES,
    GPU_COUNT,
    GPU_MEM,
    MEMORY,
    NUMBER,
    PERCENT,
    Box,
    asked,
    box,
    findings,
)

NAMES: Final = (NUMBER, MEMORY, PERCENT, CORES, GPU_MEM, GPU_COUNT)
ODD_NAMES: Final = ("aliyun.com/gpu-core.percentage", "nvidia.com/gpu", "cpu", "volcano.sh/vgpu-")
SUFFIXES: Final = ("", "n", "u", "m", "k", "M", "G", "E", "Ki", "Mi", "Gi", "Ei", "e3", "E-2")

DIGITS = st.from_regex(r"[+-]?[0-9]{0,22}(\.[0-9]{0,4})?", fullmatch=True)
QUANTITIES = st.builds("".join, st.tuples(DIGITS, st.sampled_from(SUFFIXES)))
SMALL = st.integers(0, 200).map(canonical)
TEXTS = st.one_of(SMALL, QUANTITIES, st.text(max_size=80), st.integers(-5, 2**64))
ODD = st.dictionaries(
    st.sampled_from(NAMES + ODD_NAMES) | st.text(max_size=40).map("volcano.sh/vgpu-".__add__),
    TEXTS,
    max_size=5,
)
COUNT = st.integers(1, 16).map(canonical)
SHARE = st.integers(1, 100).map(canonical)
AMOUNT = st.integers(1, 80_000).map(canonical)
VOLCANO = st.one_of(
    st.fixed_dictionaries({}, optional={NUMBER: COUNT, MEMORY: AMOUNT, CORES: SHARE}),
    st.fixed_dictionaries({PERCENT: SHARE}, optional={NUMBER: COUNT, CORES: SHARE}),
)
GPUSHARE = st.one_of(
    st.fixed_dictionaries({GPU_MEM: AMOUNT}), st.fixed_dictionaries({GPU_COUNT: COUNT})
)


def boxes(limits: st.SearchStrategy[dict[str, str]]) -> st.SearchStrategy[Box]:
    return st.builds(
        lambda limits, name, policy: box(limits, name=name, restart_policy=policy),
        limits,
        st.text(max_size=80),
        st.sampled_from([None, "Always", "Never"]),
    )


ODD_BOXES = st.builds(lambda one, other: box(one, requests=other), ODD | st.none(), ODD | st.none())
GOOD_PODS = st.lists(boxes(VOLCANO), max_size=3) | st.lists(boxes(GPUSHARE), max_size=3)
PODS = GOOD_PODS | st.lists(boxes(VOLCANO) | boxes(GPUSHARE) | ODD_BOXES, max_size=3)
KEYS = st.sampled_from(
    [
        "volcano.sh/vgpu-mode",
        "vgpu-admission.io/mig-profile",
        "vgpu-admission.io/isolate",
        "nvidia.com/use-gputype",
        "volcano.sh/vgpu-use-gpuuuid",
    ]
)
WISHES = st.sampled_from(["mig", "hami-core", "1g.5gb", "true", "A100,,H100", ""])
ANNOTATIONS: st.SearchStrategy[dict[str, str]] = st.just({}) | st.dictionaries(
    KEYS, WISHES | st.text(max_size=80), max_size=3
)


@given(st.text(max_size=80) | QUANTITIES)
@settings(max_examples=500)
def test_any_text_is_a_quantity_or_none(text: str) -> None:
    """Neither reader raises, and where the quick one answers, the thorough one agrees."""
    quick, thorough = parse_plain(text), parse(text)

    assert quick is None or (thorough is not None and thorough.value == quick)


@given(st.integers(-LARGEST, LARGEST) | st.integers(0, 10**4).map(lambda n: n * 1000))
@settings(max_examples=300)
def test_what_we_write_reads_back(number: int) -> None:
    """The canonical form of a number is that number."""
    quantity = parse(canonical(number))

    assert quantity is not None
    assert quantity.value == number


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=6))
@settings(max_examples=200)
def test_decimals_are_exact(number: Decimal) -> None:
    """No float comes between the text and its value."""
    quantity = parse(f"{number:f}")

    assert quantity is not None
    assert quantity.value == Fraction(number)


@given(PODS, PODS, ANNOTATIONS)
@settings(max_examples=400)
def test_any_pod_is_read_or_refused(
    containers: list[Box], init: list[Box], annotations: dict[str, str]
) -> None:
    """Nothing raises; a refusal has a reason to read, a request has something to give."""
    found = asked(*containers, init=init, annotations=annotations)

    match found:
        case None:
            pass
        case PodRequest():
            assert all(1 <= container.count <= 16 for container in found.containers)
            assert all(c.memory is None or c.percent is None for c in found.containers)
            written = {(one.name, True) for one in init} | {(c.name, False) for c in containers}
            assert {(c.name, c.of_init) for c in found.containers} <= written
        case Findings():
            assert 1 <= len(found.all) <= 16
            assert all(str(finding).isprintable() and finding.remedy for finding in found.all)


@given(VOLCANO | GPUSHARE, ANNOTATIONS)
@settings(max_examples=200)
def test_our_own_slot_is_no_second_request(
    limits: dict[str, str], annotations: dict[str, str]
) -> None:
    """A pod to which admission added the slot is read as it was before."""
    before = asked(box(limits), annotations=annotations)
    if not isinstance(before, PodRequest):
        return
    slots = {NUMBER: canonical(before.containers[0].count)}

    after = asked(box({**limits, **slots}), annotations=annotations)

    assert after == before


@given(st.sampled_from(NAMES), st.one_of(QUANTITIES, st.text(max_size=12), st.integers(-5, 2**64)))
@settings(max_examples=500)
def test_a_remedy_that_names_a_value_is_admitted(name: str, text: str | int) -> None:
    """Pasting the value of a refusal, as the API server would hand it on, makes the pod pass."""
    found = asked(box({name: text}))

    if not isinstance(found, Findings):
        return
    (finding,) = found.all
    value = _named_value(finding)
    assert value is not None
    assert isinstance(asked(box({name: canonical(value)})), PodRequest)


def _named_value(finding: Finding) -> int | None:
    named = re.search(r"(?:e\.g\.|at most|at least) (\d+)", finding.remedy)
    return int(named[1]) if named else None


@given(st.integers(1, 2**31 - 1))
@settings(max_examples=200)
def test_every_amount_of_memory_is_read_or_taken_for_a_unit(memory: int) -> None:
    """Only whole millions of MiB, which the API server writes with an M, cannot be told apart."""
    found = asked(box({MEMORY: canonical(memory)}))

    if memory % 1_000_000:
        assert isinstance(found, PodRequest)
        assert found.containers[0].memory == memory
    else:
        (finding,) = findings(box({MEMORY: canonical(memory)}))
        assert finding.reason is Reason.MALFORMED


@settings(max_examples=300)
@given(PODS, st.lists(boxes(VOLCANO), max_size=1))
def test_what_is_read_in_one_pass_is_what_a_closer_look_finds(
    pod: list[Box], init: list[Box]
) -> None:
    """The shortcut answers only where the long way finds nothing wrong, and the same."""
    known = resource_names(VOCABULARIES)

    quick = parse_common(init, pod, known)

    spots = list(containers.asking_containers(init, pod, known))
    if quick is not None:
        assert quick.asking == [containers.container_request(spot, known) for spot in spots]
        assert {spot.known_names[0].vocabulary for spot in spots} <= {quick.vocabulary}


@settings(max_examples=100)
@given(st.lists(boxes(VOLCANO), max_size=3))
def test_usual_pods_are_read_in_one_pass(pod: list[Box]) -> None:
    """Amounts within their bounds that do not contradict each other need no closer look."""
    assert parse_common([], pod, resource_names(VOCABULARIES)) is not None
