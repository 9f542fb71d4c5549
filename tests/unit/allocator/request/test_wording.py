"""Sentences use the names and the units in which a pod asked."""

from dataclasses import replace

import pytest

from allocator.catalog.vocabularies import GPUSHARE, VOLCANO, Vocabulary, configure_vocabulary
from allocator.model.decision import Finding
from allocator.model.request import PodRequest
from allocator.model.units import MiB
from allocator.placement.choose import choose
from allocator.report.feasibility_text import request_text
from allocator.request.wording import memory_figure, memory_text, vocabulary_of
from tests.builders.containers import GPU_COUNT, GPU_MEM, MEMORY, NUMBER, PERCENT, box, request
from tests.builders.model import T4, ask, gpu, node, snapshot, soft_grant

RENAMED = configure_vocabulary(VOLCANO, memory_factor=10, names={MEMORY: "acme.com/memory"})
BUSY = snapshot(node("n0", gpu(T4, grants=[soft_grant(10_000)])))


def only_finding(asked: PodRequest) -> Finding:
    (finding,) = choose(BUSY, asked).findings
    return finding


def read(limits: dict[str, str], names: Vocabulary) -> PodRequest:
    return request(box(limits), vocabularies=(names,))


@pytest.mark.parametrize(
    ("limits", "names", "expected"),
    [
        pytest.param(
            {GPU_MEM: "9"},
            GPUSHARE,
            "asks for 9 GiB on one GPU; the closest has 5 free; ask for at most 5 GiB now, or wait",
            id="gpushare",
        ),
        pytest.param(
            {GPU_MEM: "16"},
            GPUSHARE,
            "asks for 16 GiB on one GPU; the largest has 15; ask for at most 15",
            id="never",
        ),
        pytest.param(
            {"acme.com/memory": "900"},
            RENAMED,
            "asks for 900 units of 10 MiB on one GPU; the closest has 536 free; "
            "ask for at most 536 units of 10 MiB now, or wait",
            id="factor and name",
        ),
        pytest.param(
            {PERCENT: "50"},
            VOLCANO,
            "asks for 50 percent of the memory of one GPU; the closest has 34 percent free; "
            "ask for at most 34 percent of its memory now, or wait",
            id="percentage",
        ),
    ],
)
def test_a_finding_is_in_the_words_of_its_request(
    limits: dict[str, str], names: Vocabulary, expected: str
) -> None:
    """The remedy can be pasted, and the field names the cluster's own resource."""
    finding, (resource,) = only_finding(read(limits, names)), limits

    assert str(finding) == f'container "main": {expected}'
    assert finding.field == f'spec.containers[0].resources.limits["{resource}"]'


def test_who_asks_for_a_whole_gpu_by_number_is_not_told_to_ask_for_a_part() -> None:
    """Gpushare's gpu-count goes with no other resource."""
    assert only_finding(read({GPU_COUNT: "1"}, GPUSHARE)).remedy == "wait until other pods end"


def test_who_asks_for_no_cores_is_not_told_about_his_cores() -> None:
    """A GPU whose cores are all promised takes nobody, also not one who asks for none."""
    full = snapshot(node("n0", gpu(T4, grants=[soft_grant(1000, 100)])))

    (finding,) = choose(full, read({NUMBER: "1", MEMORY: "1000"}, VOLCANO)).findings

    assert finding.what == "all cores of the closest GPU are promised to other pods"


@pytest.mark.parametrize(
    ("limits", "names", "text"),
    [
        ({GPU_MEM: "9"}, GPUSHARE, "main: 1 GPU with 9 GiB"),
        ({"acme.com/memory": "1"}, RENAMED, "main: 1 GPU with 1 unit of 10 MiB"),
        ({MEMORY: "1"}, VOLCANO, "main: 1 GPU with 1 MiB"),
    ],
)
def test_a_request_is_told_in_its_own_unit(
    limits: dict[str, str], names: Vocabulary, text: str
) -> None:
    """As ``plan`` and ``kubectl vgpu`` print it."""
    assert request_text(read(limits, names)).startswith(text)


def test_a_table_of_gpus_is_in_the_unit_of_the_request() -> None:
    """One line for each GPU that was tried."""
    details = [
        choose(BUSY, read(limits, names)).candidates[0].detail
        for limits, names in (({GPU_MEM: "9"}, GPUSHARE), ({PERCENT: "50"}, VOLCANO))
    ]

    assert details == ["5 of 15 GiB free", "34 percent of its memory free"]


def test_the_catalogue_serves_where_nothing_is_configured() -> None:
    """A request carries a vocabulary of its own only where the cluster changed it."""
    assert read({MEMORY: "1"}, VOLCANO).configured is None
    assert vocabulary_of(read({MEMORY: "1"}, VOLCANO)) is VOLCANO
    assert vocabulary_of(read({GPU_MEM: "1"}, GPUSHARE)) is GPUSHARE
    assert vocabulary_of(read({"acme.com/memory": "1"}, RENAMED)) is RENAMED
    assert configure_vocabulary(VOLCANO) is VOLCANO


@pytest.mark.parametrize("free", [-1, 0, 1, 153, 154, 5000, 15359, 15360])
def test_a_percentage_that_is_said_to_be_free_fits(free: int) -> None:
    """Rounded down, and no less than what fits."""
    figure = memory_figure(VOLCANO, ask(percent=50), MiB(free), total=MiB(15360))
    percent = int(figure.removesuffix(" percent"))

    assert ask(percent=percent).memory_on(MiB(15360)) <= max(0, free)
    assert percent == 100 or ask(percent=percent + 1).memory_on(MiB(15360)) > max(0, free)


def test_units_are_counted_in_words() -> None:
    """One unit is singular."""
    assert memory_text(replace(VOLCANO, memory_factor=7), 1) == "1 unit of 7 MiB"
    assert memory_text(replace(VOLCANO, memory_factor=7), 2) == "2 units of 7 MiB"
