"""Defects that peers had in reading requests do not happen here."""

import pytest

from allocator.model.decision import Reason
from allocator.model.units import MiB
from tests.builders.containers import (
    CORES,
    GPU_MEM,
    MEMORY,
    NUMBER,
    PERCENT,
    Resources,
    asked,
    box,
    findings,
    only,
)


@pytest.mark.parametrize("text", ["4Gi", "3Gi", "4294967296", "3221225472"])
def test_memory_does_not_wrap_in_32_bits(text: str) -> None:
    """Volcano read 4Gi as 0, which is the whole GPU, and 3Gi as a negative amount, which fits."""
    (finding,) = findings(box({NUMBER: "1", MEMORY: text}))

    assert finding.reason is Reason.MALFORMED
    assert finding.remedy == f"give MiB, e.g. {4096 if text.startswith('4') else 3072}"


def test_no_gpu_is_not_charged_as_one() -> None:
    """Volcano charged a GPU for vgpu-number 0 and then assigned none."""
    assert asked(box({NUMBER: "0"})) is None
    assert findings(box({NUMBER: "0", CORES: "10"}))


@pytest.mark.parametrize("percent", [1, 33, 50, 99])
def test_a_percentage_below_100_is_not_nothing(percent: int) -> None:
    """Volcano up to 1.13 divided before it multiplied and got 0 MiB."""
    found = only({NUMBER: "1", PERCENT: str(percent)})

    assert found.memory_on(MiB(40536)) == 40536 * percent // 100 > 0


@pytest.mark.parametrize("text", ["101", "1000", "-1", "1e9", "9E"])
def test_a_percentage_out_of_range_is_refused_and_not_an_error(text: str) -> None:
    """H4: HAMi answered such a pod with an internal error."""
    (finding,) = findings(box({NUMBER: "1", PERCENT: text}))

    assert finding.reason is Reason.MALFORMED
    assert "from 1 to 100" in finding.remedy or finding.remedy == "ask for at most 100"


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({NUMBER: "1", "nvidia.com/gpu": "1"}, id="whole-gpu-beside"),
        pytest.param({MEMORY: "3k", "nvidia.com/mig-1g.5gb": "1"}, id="instance-beside"),
        pytest.param({GPU_MEM: "3", "volcano.sh/gpu-memory": "3"}, id="older-share-beside"),
        pytest.param({GPU_MEM: "3", MEMORY: "3"}, id="two-shares"),
        pytest.param({MEMORY: "0.5"}, id="half-a-mib"),
        pytest.param({MEMORY: "-1"}, id="negative"),
        pytest.param({MEMORY: "9223372036854775808"}, id="beyond-64-bits"),
    ],
)
def test_no_request_is_smuggled_past_the_parser(limits: Resources) -> None:
    """T27: each reader of such a pod could see another amount."""
    assert findings(box(limits))


def test_numbers_written_by_accident_mean_what_kubernetes_says() -> None:
    """T27: 20k on memory is 20000 MiB, 1e3 is 1000, and both are believed."""
    assert only({MEMORY: "20k"}).memory == 20000
    assert only({MEMORY: "1e3"}).memory == 1000


@pytest.mark.parametrize("text", ["NaN", "Inf", "-Inf", "0.333333", "33.3"])
def test_no_fraction_is_rounded(text: str) -> None:
    """K1: KAI rounded shares to two decimals and accepted what is not a number."""
    (finding,) = findings(box({PERCENT: text}))

    assert finding.reason is Reason.MALFORMED


def test_init_containers_count() -> None:
    """V7: Volcano ignored what init containers ask for."""
    found = findings(box({"cpu": "1"}), init=[box({NUMBER: "1", MEMORY: "4Gi"}, name="init")])

    assert [finding.place for finding in found] == ['init container "init"']
