"""The catalogue agrees with what drivers list and with itself."""

import math

import pytest

from allocator.catalog.boards import (
    MODELS,
    board_named,
    board_of_pci,
    least_memory,
    model_named,
    models_like,
)
from allocator.mig.profiles import canonical_profile, shape_of
from allocator.model.board import Board
from allocator.model.units import MiB

MIG = [(model, model.board) for model in MODELS.values() if model.board is not None]

# Prefixes of names on 12-unit boards count 12ths of memory in whole 8ths: 3/12 is 2/8.
LISTED = {"NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 80GB HBM3"} | {
    "NVIDIA H100 NVL",
    "NVIDIA H200",
}


def board(name: str) -> Board:
    found = board_named(name)
    assert found is not None
    return found


def gb_by_the_drivers_formula(profile: MiB, total: MiB) -> int:
    eighths = math.ceil(8 * profile / total)
    return math.floor(eighths * math.ceil(total / 1024) / 8 + 0.5)


def test_names_follow_from_memory() -> None:
    """Every profile is called what the driver would call it, given its MiB and the board's."""
    wrong = [
        (model.name, profile.name)
        for model, cut in MIG
        for profile in cut.profiles
        if (shape := shape_of(profile.name)) is None
        or shape.gb != gb_by_the_drivers_formula(profile.memory, model.memory)
    ]

    assert wrong == []


def test_placements_stay_on_the_board() -> None:
    """No placement reaches beyond the last slot, and the largest profile is the whole board."""
    for _, cut in MIG:
        assert all(max(p.starts) + p.size <= cut.slots for p in cut.profiles)
        assert max(p.size for p in cut.profiles) == cut.slots


def test_a_profile_is_known_by_name_and_by_id() -> None:
    """Names and NVML ids are unique on a board; ids mean something else on another one."""
    for _, cut in MIG:
        assert len({p.name for p in cut.profiles}) == len(cut.profiles)
        assert len({p.id for p in cut.profiles}) == len(cut.profiles)
    assert {p.name for p in board("A30").profiles if p.id == 14} == {"1g.6gb"}
    assert {p.name for p in board("A100-SXM4-40GB").profiles if p.id == 14} == {"2g.10gb"}


def test_profiles_are_listed_smallest_first() -> None:
    """The order is by compute, then by memory slots, then as the data is written."""
    for _, cut in MIG:
        order = [(p.slices, p.size) for p in cut.profiles]
        assert order == sorted(order)


def test_plain_profiles_leave_out_the_scarce_ones() -> None:
    """Media, graphics and double-memory variants are given out only when named."""
    pro = board("NVIDIA RTX PRO 6000 Blackwell Server Edition")

    assert [p.name for p in board("H200").plain] == [
        "1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb",
    ]  # fmt: skip
    assert [p.name for p in pro.plain] == ["1g.24gb", "2g.48gb", "4g.96gb"]


def test_derived_memory_never_exceeds_a_listing() -> None:
    """The rule for boards without a listing is below every board that has one."""
    for name in LISTED:
        model = MODELS[name]
        for profile in board(name).profiles:
            assert least_memory(model.memory, profile.size) <= profile.memory


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param("NVIDIA A100-SXM4-40GB", id="as-nvml-says"),
        pytest.param("A100-SXM4-40GB", id="old-driver"),
        pytest.param("NVIDIA-NVIDIA A100-SXM4-40GB", id="as-volcano-registers"),
        pytest.param("NVIDIA-A100-SXM4-40GB", id="old-driver-as-volcano-registers"),
    ],
)
def test_a_board_is_found_under_each_spelling_of_its_name(spelling: str) -> None:
    """A missing or doubled NVIDIA makes no difference."""
    assert board(spelling).name == "NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize("name", ["A100", "RTX A3000", "NVIDIA A30X", "a30", "Tesla T4", ""])
def test_other_names_have_no_board(name: str) -> None:
    """Names are matched whole: a relative's shapes would be wrong ones."""
    assert board_named(name) is None


def test_models_without_mig_have_memory() -> None:
    """A T4 can be planned with, though it cannot be cut."""
    model = model_named("NVIDIA-Tesla T4")

    assert model is not None
    assert (model.memory, model.board) == (15360, None)


def test_a_board_is_found_by_pci_id() -> None:
    """The device id is enough, whatever a driver calls the product."""
    assert board_of_pci(0x20B0) is board("A100-SXM4-40GB")
    assert board_of_pci(0x2BB5) is board("RTX PRO 6000 Blackwell Server Edition")
    assert board_of_pci(0x1EB8) is None


@pytest.mark.parametrize(
    ("product", "spelling", "meant"),
    [
        pytest.param("A100 80GB PCIe", "7g.80gb", "7g.80gb", id="exact"),
        pytest.param("A100 80GB PCIe", "7g.79gb", "7g.80gb", id="rounded-down"),
        pytest.param("GB200", "1g.24gb", "1g.23gb", id="early-driver"),
        pytest.param("GB200", "1g.24gb+me", "1g.23gb+me", id="early-driver-media"),
        pytest.param("A100 80GB PCIe", "1g.20gb", "1g.20gb", id="double-memory"),
        pytest.param("A100 80GB PCIe", "7g.82gb", None, id="too-far"),
        pytest.param("A100 80GB PCIe", "1g.10gb+gfx", None, id="attribute-not-there"),
        pytest.param("A100 80GB PCIe", "5g.50gb", None, id="slices-not-there"),
        pytest.param("A100 80GB PCIe", "1c.2g.20gb", None, id="compute-instance"),
        pytest.param("A100 80GB PCIe", "seven", None, id="no-profile"),
    ],
)
def test_profile_names_differ_by_rounding(product: str, spelling: str, meant: str | None) -> None:
    """One GB more or less is the same profile; other slices or attributes are not."""
    found = canonical_profile(board(product), spelling)

    assert (found and found.name) == meant


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("A30", ["NVIDIA A30"], id="whole-name"),
        pytest.param("A100-80GB-PCIe", ["NVIDIA A100 80GB PCIe"], id="as-volcano-ships"),
        pytest.param("A100-PCIE-80GB", ["NVIDIA A100 80GB PCIe"], id="other-order"),
        pytest.param("H100-SXM5-80GB", ["NVIDIA H100 80GB HBM3"], id="form-factor"),
        pytest.param("H20", ["NVIDIA H20"], id="not-its-relatives"),
        pytest.param("T4", ["Tesla T4"], id="part-of-a-name"),
        pytest.param("A100-SXM5-80GB", [], id="no-such-board"),
        pytest.param("", [], id="empty"),
    ],
)
def test_people_name_models_loosely(text: str, names: list[str]) -> None:
    """All words of the text must be among the model's; a whole name beats a part of one."""
    found = models_like(text)

    assert [model.name for model in found] == names
