"""Which GPUs can be partitioned statically, by driver and architecture."""

import pytest

from agent.driver.static_partitioning import chunk_size, cuda_version, static_refusal


@pytest.mark.parametrize(
    ("capability", "size"),
    [
        ((7, 0), 0),
        ((7, 5), 0),
        ((8, 0), 4),
        ((8, 6), 4),
        ((8, 7), 2),
        ((8, 9), 4),
        ((9, 0), 8),
        ((10, 0), 8),
        ((11, 0), 2),
        ((12, 0), 8),
        (None, 0),
    ],
)
def test_a_chunk_has_as_many_multiprocessors_as_its_architecture_says(
    capability: tuple[int, int] | None, size: int
) -> None:
    """Eight from Hopper on, four before, two beside the CPU, none before Ampere."""
    assert chunk_size(capability) == size
    assert (static_refusal("13.1", capability) == "") is (size > 0)


@pytest.mark.parametrize(
    "cuda",
    [
        "13.0",
        "12.8",
        "",
        "13",
        "x",
        "13.x",
        "1e9.1",
        "-13.1",
        "13.1.1",
        "13.1\n",
        "\u0662\u0660.\u0661",
        "1" * 10 + ".1",
    ],
)
def test_an_older_or_unknown_driver_is_refused(cuda: str) -> None:
    """The sentence names what is needed and what was found."""
    refusal = static_refusal(cuda, (9, 0))

    assert "needs CUDA 13.1 and compute capability 8.0 (Ampere) or newer" in refusal
    assert "compute capability 9.0" in refusal
    assert refusal.isprintable()


@pytest.mark.parametrize("cuda", ["13.1", "13.2", "14.0", "20.15"])
def test_a_newer_driver_will_do(cuda: str) -> None:
    """Versions are compared as numbers."""
    assert static_refusal(cuda, (8, 0)) == ""


def test_what_was_found_is_named() -> None:
    """An owner sees whether the driver or the GPU is too old."""
    assert "found CUDA 13.1 and compute capability 7.5" in static_refusal("13.1", (7, 5))
    assert "found CUDA 12.8 and compute capability unknown" in static_refusal("12.8", None)
    assert cuda_version("13.1") == (13, 1)
