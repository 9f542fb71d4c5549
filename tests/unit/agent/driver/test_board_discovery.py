"""What the driver lists becomes the boards that the fact tables hold, by ids and not positions."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.driver.board_discovery import (
    MIB,
    ProfileFacts,
    SlotSpan,
    board_of,
    pci_address,
    profile_name,
)
from allocator.catalog.boards import MODELS
from allocator.mig.profiles import canonical_profile
from allocator.model.board import Board, Profile
from allocator.model.units import MiB

# the enumeration of NVML by slices and attribute, with 1g of double memory apart
ENUMS = {
    (1, ""): 0x0,
    (2, ""): 0x1,
    (3, ""): 0x2,
    (4, ""): 0x3,
    (7, ""): 0x4,
    (1, "+me"): 0x7,
    (2, "+me"): 0x8,
    (1, "+gfx"): 0xA,
    (2, "+gfx"): 0xB,
    (4, "+gfx"): 0xC,
    (1, "-me"): 0xD,
    (2, "-me"): 0xE,
    (1, "+me.all"): 0xF,
    (2, "+me.all"): 0x10,
}
DOUBLE_MEMORY = 0x9
WITH_BOARD = sorted(name for name, model in MODELS.items() if model.board is not None)


def profile_facts(profile: Profile, board: Board, **changed: object) -> ProfileFacts:
    attribute = profile.name.partition("gb")[2]
    double = profile not in board.plain and not attribute
    implied = len(profile.starts)
    fields: dict[str, object] = {
        "enum": DOUBLE_MEMORY if double else ENUMS[profile.slices, attribute],
        "id": profile.id,
        "slices": profile.slices,
        "most": profile.limit or implied,
        "sms": profile.sms,
        "memory": profile.memory,
        "name": None,
        "spans": tuple(SlotSpan(start, profile.size) for start in profile.starts),
    } | changed
    return ProfileFacts(**fields)  # type: ignore[arg-type]  # a row of a table


def catalogue_board(name: str) -> Board:
    known_board = MODELS[name].board
    assert known_board is not None
    return known_board


def discovered_board(
    name: str, facts: Sequence[ProfileFacts], *, total: int | None = None
) -> Board:
    discovered = board_of(name, facts, total=total)
    assert discovered is not None
    return discovered


@pytest.mark.parametrize("name", WITH_BOARD)
def test_a_listing_is_the_board_of_the_catalogue(name: str) -> None:
    """Facts alone, without a name from the driver, give every board of the catalogue."""
    model, wanted = MODELS[name], catalogue_board(name)

    discovered = discovered_board(
        name, [profile_facts(p, wanted) for p in wanted.profiles], total=model.memory * MIB
    )

    assert discovered.slots == wanted.slots
    assert [p.id for p in discovered.profiles] == [p.id for p in wanted.profiles]
    assert [(p.size, p.starts, p.limit, p.sms) for p in discovered.profiles] == [
        (p.size, p.starts, p.limit, p.sms) for p in wanted.profiles
    ]
    for profile in discovered.profiles:
        assert (alias := canonical_profile(wanted, profile.name)) is not None
        assert alias.id == profile.id


@pytest.mark.parametrize(
    ("total", "memory", "slices", "name"),
    [
        pytest.param(40536, 4864, 1, "1g.5gb", id="A100-40"),
        pytest.param(40536, 40192, 7, "7g.40gb", id="A100-40 whole"),
        pytest.param(81251, 19968, 2, "2g.20gb", id="A100-80"),
        pytest.param(24258, 5836, 1, "1g.6gb", id="A30"),
        pytest.param(81559, 40448, 3, "3g.40gb", id="H100"),
        pytest.param(95830, 22016, 1, "1g.24gb", id="H100 NVL double memory"),
        pytest.param(143771, 33024, 2, "2g.35gb", id="H200"),
        pytest.param(97887, 23680, 1, "1g.24gb", id="RTX PRO 6000, 12 slots"),
        pytest.param(97887, 97280, 4, "4g.96gb", id="RTX PRO 6000 whole"),
        pytest.param(189471, 46592, 2, "2g.47gb", id="GB200 of 186 GiB"),
        pytest.param(193536, 46592, 2, "2g.47gb", id="GB200 of 189 GiB"),
        pytest.param(193536, 20480, 1, "1g.24gb", id="GB200 of 189 GiB, one slice"),
    ],
)
def test_names_follow_the_formula(total: int, memory: int, slices: int, *, name: str) -> None:
    """Names are what NVIDIA's tools print, for the total that the driver reports."""
    assert profile_name(slices, MiB(memory), total * MIB) == name


def test_the_drivers_own_name_wins() -> None:
    """A name in the struct is taken as it is, with or without the word MIG."""
    wanted = catalogue_board("NVIDIA GB200")
    facts = [profile_facts(p, wanted, name=f"MIG {p.name}") for p in wanted.profiles]

    discovered = discovered_board("NVIDIA GB200", facts, total=189 * 1024 * MIB)

    assert [p.name for p in discovered.profiles] == [p.name for p in wanted.profiles]


@pytest.mark.parametrize(
    "driver_name", ["", "MIG", "1g", "one big slice", "1g.5gb\x00", "1g.99999gb"]
)
def test_a_name_that_is_none_is_computed(driver_name: str) -> None:
    """What does not read as a profile's name is not believed to be one."""
    wanted = catalogue_board("NVIDIA A100-SXM4-40GB")

    discovered = discovered_board(
        wanted.name,
        [profile_facts(wanted.profiles[0], wanted, name=driver_name)],
        total=40536 * MIB,
    )

    assert discovered.profiles[0].name == "1g.5gb"


@pytest.mark.parametrize("name", WITH_BOARD)
def test_an_unreadable_total_names_known_models_all_the_same(name: str) -> None:
    """A container that may not read the GPU's memory still finds every profile by its name."""
    wanted = catalogue_board(name)

    discovered = discovered_board(name, [profile_facts(p, wanted) for p in wanted.profiles])

    assert [canonical_profile(wanted, p.name) for p in discovered.profiles] == list(wanted.profiles)


def test_an_unreadable_total_names_an_unknown_model_by_its_largest_profile() -> None:
    """Names are off by one GB at most, which the catalogue takes for the same."""
    wanted = catalogue_board("NVIDIA H200")

    discovered = discovered_board(
        "NVIDIA H999", [profile_facts(p, wanted) for p in wanted.profiles]
    )

    assert [p.name for p in discovered.profiles] != [p.name for p in wanted.profiles]
    assert [canonical_profile(wanted, p.name) for p in discovered.profiles] == list(wanted.profiles)


def test_a_floor_swept_board_keeps_its_gaps() -> None:
    """An A100 with a slice fused off has the placements it lists, and eight slots all the same."""
    wanted = catalogue_board("NVIDIA A100-SXM4-40GB")
    swept = {19: (0, 1, 4, 5), 14: (0, 4), 0: (0,)}
    facts = [
        profile_facts(p, wanted, spans=tuple(SlotSpan(s, p.size) for s in swept[p.id]), most=7)
        for p in wanted.profiles
        if p.id in swept
    ]

    discovered = discovered_board(wanted.name, facts, total=40536 * MIB)

    assert discovered.slots == 8
    assert {p.id: p.starts for p in discovered.profiles} == swept
    assert [p.limit for p in discovered.profiles] == [None, None, None]


@pytest.mark.parametrize(
    ("most", "limit"),
    [
        pytest.param(1, 1, id="fewer than fit"),
        pytest.param(7, None, id="as many as fit"),
        pytest.param(9, None, id="more than fit"),
        pytest.param(0, None, id="a count that cannot be right"),
    ],
)
def test_a_limit_is_kept_where_placements_do_not_imply_it(most: int, limit: int | None) -> None:
    """Media profiles have places for seven, and engines for one."""
    wanted = catalogue_board("NVIDIA A100-SXM4-40GB")

    discovered = discovered_board(
        wanted.name, [profile_facts(wanted.profiles[1], wanted, most=most)], total=40536 * MIB
    )

    assert discovered.profiles[0].limit == limit


def test_profiles_without_a_place_or_a_name_are_left_out() -> None:
    """A profile that can sit nowhere, or that nobody can name, is not offered."""
    wanted = catalogue_board("NVIDIA A30")
    first, second, *_ = wanted.profiles

    nowhere = profile_facts(first, wanted, spans=())
    unknown = profile_facts(second, wanted, enum=0x20)

    assert board_of("NVIDIA A30", [nowhere], total=24258 * MIB) is None
    assert board_of("NVIDIA A30", [unknown], total=24258 * MIB) is None
    assert board_of("NVIDIA A30", [], total=None) is None


@given(
    st.permutations(range(11)),
    st.sampled_from(("NVIDIA RTX PRO 6000 Blackwell Server Edition",)),
)
def test_the_order_of_the_listing_says_nothing(order: list[int], name: str) -> None:
    """Profiles are told by id and enumeration: a driver may list them in any order."""
    wanted = catalogue_board(name)
    facts = [profile_facts(p, wanted) for p in wanted.profiles]
    total = MODELS[name].memory * MIB

    discovered = board_of(name, [facts[i] for i in order], total=total)

    assert discovered == board_of(name, facts, total=total)
    assert discovered is not None
    assert discovered.slots == 12


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3B:00.0", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
    ],
)
def test_pci_addresses_are_the_kernels(bus_id: str, address: str) -> None:
    """NVML writes eight digits of domain in capitals, sysfs four in small letters."""
    assert pci_address(bus_id) == address
