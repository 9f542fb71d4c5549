"""A build of the interception library is known by its bytes, whatever else is in the file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.region.layout import TESTED, library_problem
from tests.fakes.hami_core import empty_library, library_bytes

SERVED = library_bytes()
SIZE = (2008952).to_bytes(4, "little")
TEXT = b"postinit semaphore"
ROOT = Path(__file__).parents[4]


def with_machine(number: int) -> bytes:
    return SERVED[:18] + number.to_bytes(2, "little") + SERVED[20:]


@pytest.mark.parametrize(
    "content",
    [
        SERVED,
        library_bytes(tail=b"x" * 100_000),
        library_bytes(tail=SIZE * 1000),
        library_bytes(tail=(2008984).to_bytes(4, "little") * 2),
        empty_library().read_bytes(),
    ],
    ids=["smallest", "longer", "many-sizes", "two-of-another", "compiled"],
)
def test_the_newest_layout_is_served(content: bytes) -> None:
    assert library_problem(content) == ""


@pytest.mark.parametrize(
    ("generation", "releases"),
    [("A", "2.3"), ("B", "2.4.0"), ("C", "2.4.1 to 2.8.0"), ("D", "2.8.1")],
)
def test_another_layout_is_refused_by_its_release(generation: str, releases: str) -> None:
    """Whoever builds the image reads which release it has, and which would do."""
    problem = library_problem(library_bytes(generation))

    assert releases in problem
    assert all(release in problem for release in TESTED)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a shared library"),
        (b"\x7fELF", "not a shared library"),
        (SERVED[:19], "not a shared library"),
        (b"#!/bin/sh\n" + SERVED, "not a shared library"),
        (SERVED[:4] + b"\x01" + SERVED[5:], "64-bit"),
        (SERVED[:5] + b"\x02" + SERVED[6:], "64-bit"),
        (SERVED[:16] + b"\x02" + SERVED[17:], "64-bit"),  # a program
        (SERVED[:16] + b"\x04" + SERVED[17:], "64-bit"),  # a core dump
        (with_machine(183), "aarch64"),
        (with_machine(3), "x86;"),
        (with_machine(65535), "machine 65535"),
        (SERVED[:20], "no region that is known"),
        (SERVED.replace(SIZE, b"\0\0\0\0", 1), "no region that is known"),
        (SERVED.replace(TEXT, b"another text"), "2.4.1 to 2.8.0"),
        (library_bytes(tail=(2008984).to_bytes(4, "little") * 3), "no region that is known"),
        (library_bytes(tail=library_bytes("A")), "no region that is known"),
        (SERVED.replace(SIZE, SIZE[::-1]), "no region that is known"),
        (SERVED[:20] + TEXT * 10, "no region that is known"),
    ],
)
def test_what_may_not_limit_is_refused(content: bytes, why: str) -> None:
    """Cut off, of another machine, of no or of two layouts."""
    assert why in library_problem(content)


@given(st.binary(max_size=200))
def test_any_bytes_get_an_answer(content: bytes) -> None:
    """Files are an image's or, for the doctor, the node's."""
    assert library_problem(content)
    assert library_problem(SERVED[:20] + content)


def test_the_page_of_the_image_names_the_releases() -> None:
    """The ones that the refusal names, in the row of those to use."""
    page = (ROOT / "docs/image.md").read_text()

    assert f"| {', '.join(f'v{release}' for release in TESTED)} |" in page
