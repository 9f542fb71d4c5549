"""Volcano's device list is written as its readers expect, and read as a stranger's word."""

import pytest

from allocator.volcano.device_list import ListedDevice, encode_list, listed_positions, listed_uuids


def test_each_container_has_a_part() -> None:
    """Containers without GPU leave an empty part, so that places match the pod's spec."""
    two = (ListedDevice("GPU-a", 3000, 50), ListedDevice("GPU-b", 3000, 50))

    assert encode_list([(), two]) == ";GPU-a,NVIDIA,3000,50:GPU-b,NVIDIA,3000,50:"


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        pytest.param("GPU-a,NVIDIA,3000,50:", ("GPU-a",), id="one"),
        pytest.param("GPU-a,NVIDIA,3000,0:;GPU-b,NVIDIA,5,30", ("GPU-a", "GPU-b"), id="two"),
        pytest.param(";;GPU-a,NVIDIA,1,1:;GPU-a,NVIDIA,1,1:", ("GPU-a",), id="once"),
        pytest.param("GPU-a[group1-0],NVIDIA,3000,0:", ("GPU-a",), id="position"),
    ],
)
def test_a_list_is_read(text: str, gpus: tuple[str, ...]) -> None:
    """The GPUs that a scheduler names are found, each once."""
    assert listed_uuids(text) == gpus


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "GPU-a,NVIDIA,3000",
        "GPU-a,NVIDIA,-1,0:",
        "GPU-a[group1],NVIDIA,1,0:",
        "GPU-a,NVIDIA,1,0:GPU b,NVIDIA,1,0:",
        "GPU-a,NVIDIA,1,0:" * 2000,
        "GPU-a,NVIDIA,٣,0:",
    ],
)
def test_a_bad_list_is_no_wish(text: str) -> None:
    """One defect anywhere, and nothing of it is believed."""
    assert listed_uuids(text) == ()
    assert listed_positions(text) == ()


def test_positions_are_read_and_written() -> None:
    """A MIG instance is named behind its GPU; a GPU without one wishes for no place."""
    text = "GPU-a[group2-3],NVIDIA,3000,0:GPU-b,NVIDIA,3000,0:"

    assert listed_positions(text) == (("GPU-a", "group2-3"),)
    assert (
        encode_list([[ListedDevice("GPU-a", 3000, 0, "group2-3"), ListedDevice("GPU-b", 3000, 0)]])
        == text
    )
