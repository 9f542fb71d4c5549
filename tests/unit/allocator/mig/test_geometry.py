"""Geometries restrict what a site restricted, and nothing else."""

import pytest

from allocator.catalog.boards import board_named
from allocator.mig.geometry import Geometries, GeometryEntry, GeometryGroup, Item, Layouts, defects
from allocator.mig.profiles import canonical_profile
from allocator.model.board import Board, Profile
from allocator.model.units import MiB

GROUPS = (("seven", "7x1g.5gb"), ("mixed", "3x2g.10gb 1x1g.5gb"))


def entry(models: str, *groups: tuple[str, str]) -> GeometryEntry:
    return GeometryEntry(
        models=tuple(models.split("|")),
        groups=tuple(GeometryGroup(name=name, items=items(text)) for name, text in groups),
    )


def items(text: str) -> tuple[Item, ...]:
    pairs = (part.split("x", 1) for part in text.split())
    return tuple(Item(profile=name, memory=MiB(1000), count=int(n)) for n, name in pairs)


def board(name: str) -> Board:
    found = board_named(name)
    assert found is not None
    return found


A100 = board("A100-SXM4-40GB")


def profile(name: str) -> Profile:
    found = canonical_profile(A100, name)
    assert found is not None
    return found


def layouts(*groups: tuple[str, str]) -> Layouts:
    found = Geometries((entry("A100-SXM4-40GB", *groups),)).restriction(A100.name, A100)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("placed", "extra", "allowed"),
    [
        pytest.param("", "2g.10gb", True, id="empty-gpu"),
        pytest.param("1g.5gb", "2g.10gb", True, id="small-one-used-large-ones-free"),
        pytest.param("2g.10gb", "1g.5gb", True, id="large-one-used-small-one-free"),
        pytest.param("2g.10gb 2g.10gb 2g.10gb", "1g.5gb", True, id="last-of-the-group"),
        pytest.param("2g.10gb 1g.5gb", "1g.5gb", False, id="one-too-many"),
        pytest.param("1g.5gb 1g.5gb", "2g.10gb", False, id="in-no-group-together"),
        pytest.param("", "3g.20gb", False, id="not-listed"),
    ],
)
def test_a_layout_is_allowed_if_one_group_contains_it(
    placed: str, extra: str, *, allowed: bool
) -> None:
    """Any member of a group may come next, whichever came first (V2 and V3 of upstream)."""
    restriction = layouts(*GROUPS)

    answer = restriction.allows([profile(name) for name in placed.split()], profile(extra))

    assert answer is allowed


def test_groups_that_contain_a_layout_are_named() -> None:
    """A scheduler that writes [group-position] learns which groups it may name."""
    assert layouts(*GROUPS).groups_containing([profile("1g.5gb")]) == ("seven", "mixed")


def test_names_are_aliases() -> None:
    """7g.79gb in a table is the board's 7g.80gb."""
    cut = board("A100 80GB PCIe")
    table = Geometries((entry("A100-80GB-PCIe", ("all", "1x7g.79gb")),))

    restriction = table.restriction(cut.name, cut)

    whole = cut.profile("7g.80gb")
    assert restriction is not None
    assert whole is not None
    assert restriction.allows([], whole)


@pytest.mark.parametrize(
    ("text", "product", "meant"),
    [
        pytest.param("A30", "NVIDIA A30", True, id="itself"),
        pytest.param("A30", "NVIDIA RTX A3000", False, id="part-of-a-word"),
        pytest.param("A100-80GB-PCIe", "NVIDIA A100 80GB PCIe", True, id="other-separators"),
        pytest.param("A100-SXM4-40GB", "NVIDIA-NVIDIA A100-SXM4-40GB", True, id="volcano-type"),
        pytest.param("A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", False, id="other-memory"),
        pytest.param("H20", "NVIDIA H20-3e", False, id="known-relative"),
        pytest.param("H20", "NVIDIA H20 NVL16", False, id="unknown-relative"),
        pytest.param("X900", "NVIDIA X900 PCIe", True, id="not-in-the-catalogue"),
        pytest.param("X900", "NVIDIA X9000", False, id="part-of-an-unknown-word"),
    ],
)
def test_models_are_matched_by_words(text: str, product: str, *, meant: bool) -> None:
    """Separators and order do not matter, whole words do."""
    assert entry(text).names(product) is meant


def test_unlisted_models_are_not_restricted() -> None:
    """A table about one model says nothing about another."""
    table = Geometries((entry("A30", ("all", "1x4g.24gb")),))

    assert table.restriction(A100.name, A100) is None


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        pytest.param([entry("A100", GROUPS[0])], "ambiguous", id="model-of-several-shapes"),
        pytest.param(
            [entry("A100-SXM4-40GB", GROUPS[0]), entry("A100-40GB-SXM4", GROUPS[1])],
            "earlier entry",
            id="model-in-two-entries",
        ),
        pytest.param(
            [entry("A30", ("g", "1x3g.20gb"))], "is not a profile of", id="profile-not-there"
        ),
    ],
)
def test_ambiguity_is_a_defect(entries: list[GeometryEntry], what: str) -> None:
    """What could mean two things, or nothing, is found when the table is loaded."""
    found = list(defects(tuple(entries), "knownMigGeometries"))

    assert [what in problem.what for problem in found] == [True]


def test_one_table_in_two_entries_is_no_defect() -> None:
    """A site that added the right spelling below the shipped one is understood."""
    twice = (
        entry("A100-80GB-PCIe", ("g", "7x1g.10gb")),
        entry("A100 80GB PCIe", ("g", "7x1g.10gb")),
    )

    assert list(defects(twice, "knownMigGeometries")) == []
