"""HAMi's lists keep the place of every container."""

import pytest

from allocator.catalog.hami_keys import ALLOCATED_KEY, NODE_KEY
from allocator.hami.device_list import encode_hami_list, parse_hami_list, wished_gpus
from allocator.volcano.device_list import ListedDevice

GPU = ListedDevice("GPU-11", 6000, 25)
OTHER = ListedDevice("GPU-22", 6000, 25)
RECORDED = ";GPU-11,NVIDIA,6000,25:GPU-22,NVIDIA,6000,25:;;"  # init, two GPUs, none


def test_each_container_has_a_part() -> None:
    """An init container and a sidecar without GPUs keep theirs, or indexes would shift."""
    containers = [(), (GPU, OTHER), ()]

    assert encode_hami_list(containers) == RECORDED
    assert parse_hami_list(RECORDED) == tuple(containers)


def test_the_last_semicolon_ends_a_container() -> None:
    """With it or without it the number of containers is the same."""
    assert parse_hami_list("GPU-11,NVIDIA,6000,25:") == ((GPU,),)
    assert parse_hami_list("GPU-11,NVIDIA,6000,25:;") == ((GPU,),)


def test_a_wish_counts_on_its_own_node() -> None:
    """A list that HAMi made for another node says nothing about this one."""
    annotations = {NODE_KEY: "a", ALLOCATED_KEY: RECORDED}

    assert wished_gpus(annotations, "a") == ("GPU-11", "GPU-22")
    assert wished_gpus(annotations, "b") == ()
    assert wished_gpus({ALLOCATED_KEY: RECORDED}, "a") == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU-11;",
        "GPU-11,NVIDIA,6000:;",
        "GPU-11,DCU,6000,25:;",
        "GPU-11,NVIDIA,-1,25:;",
        "GPU-11,NVIDIA,6e3,25:;",
        "GPU-11,NVIDIA,6000,1000:;",
        "GPU-11,NVIDIA,99999999999,25:;",
        ",,0,0:;",
        "GPU 11,NVIDIA,6000,25:;",
        "../../etc,NVIDIA,6000,25:;",
        "GPU-\x1b[2J,NVIDIA,6000,25:;",
        "GPU-11,NVIDIA,\u0661,25:;",
        f"{'x' * 97},NVIDIA,6000,25:;",
        ";" * 513,
        "G,NVIDIA,1,1:" * 1025,
        "x" * 40_000,
    ],
)
def test_hostile_lists_are_no_wish(text: str) -> None:
    """A list with any defect, or beyond its bounds, counts as none."""
    assert parse_hami_list(text) is None
    assert wished_gpus({NODE_KEY: "a", ALLOCATED_KEY: text}, "a") == ()


def test_a_list_is_bounded() -> None:
    """By its length too: what stands between two semicolons may be empty."""
    one = "GPU-11,NVIDIA,6000,25,"

    assert parse_hami_list(one + "x" * 100) == ((GPU,),)
    assert parse_hami_list(one + "x" * 40_000) is None
