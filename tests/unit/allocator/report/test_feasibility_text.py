"""Rows of a search: what a pod gets, in the unit in which it asks."""

from dataclasses import replace

import pytest

from allocator.catalog.vocabularies import GPUSHARE, VOLCANO, Vocabulary, configure_vocabulary
from allocator.model.allocation import Grant
from allocator.placement.choose import PlacementPolicy
from allocator.report.feasibility import FleetSearch, GrantedDevice, outlook
from allocator.report.feasibility_text import placement_lines, seat
from tests.builders.containers import GPU_MEM, box, request
from tests.builders.model import T4, gpu, mig_grant, node, snapshot, soft_grant

TENS = configure_vocabulary(VOLCANO, memory_factor=10)


@pytest.mark.parametrize(
    ("names", "grant", "expected"),
    [
        pytest.param(VOLCANO, soft_grant(3000, 20), "3000 MiB and 20 % of its compute", id="MiB"),
        pytest.param(GPUSHARE, soft_grant(2048), "2 GiB on", id="gpushare"),
        pytest.param(GPUSHARE, soft_grant(1536), "1.5 GiB on", id="not-whole"),
        pytest.param(GPUSHARE, mig_grant("1g.5gb", 0), "(4.75 GiB)", id="instance"),
        pytest.param(TENS, soft_grant(3000), "300 units of 10 MiB on", id="factor"),
        pytest.param(TENS, soft_grant(10), "1 unit of 10 MiB on", id="one-unit"),
    ],
)
def test_a_grant_is_in_the_unit_of_its_request(
    names: Vocabulary, grant: Grant, expected: str
) -> None:
    """Whoever compares it with what they asked for need not convert."""
    device = GrantedDevice(container="main", node="n0", gpu=gpu(), grant=grant, names=names)

    assert expected in seat(device)


@pytest.mark.parametrize(
    ("cores", "sms", "expected"),
    [
        (10, 8, "3000 MiB and 10 % of its compute, rounded up to 2 of its 16 chunks of 8 multi"),
        (50, 0, "3000 MiB and 50 % of its compute, rounded up to 8 of its 16 chunks on"),
        (0, 4, "3000 MiB and 1 of its 16 chunks of 4 multiprocessors on"),
    ],
)
def test_a_share_of_a_divided_gpu_says_to_what_it_is_rounded_up(
    cores: int, sms: int, expected: str
) -> None:
    """Whoever asked for 10 % sees why no ten of them fit."""
    divided = replace(gpu(), chunks=16, chunk_sms=sms)
    grant = soft_grant(3000, cores)
    device = GrantedDevice(container="main", node="n0", gpu=divided, grant=grant, names=VOLCANO)

    assert expected in seat(device)


def test_a_search_says_what_it_found_in_that_unit() -> None:
    """Gpushare counts GiB."""
    search = FleetSearch(
        snapshot=snapshot(node("n0", gpu(T4))), mode=None, policy=PlacementPolicy()
    )
    asked = request(box({GPU_MEM: "2"}), vocabularies=(GPUSHARE,))

    (line, *_) = placement_lines(outlook(asked, search))

    assert "2 GiB on n0 GPU 0" in str(line)
