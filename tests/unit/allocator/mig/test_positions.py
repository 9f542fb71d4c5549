"""Beside Volcano's scheduler a GPU is cut as one listed group, and each place has one name."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.catalog.boards import board_named
from allocator.config.device_config import load_device_config
from allocator.mig.geometry import Geometries
from allocator.mig.positions import (
    PositionTable,
    keep_volcano_positions,
    position_table,
    with_volcano_positions,
)
from allocator.model.allocation import Grant
from allocator.model.board import Board
from allocator.model.gpu import Snapshot
from allocator.model.problem import Loaded
from allocator.model.request import Mode
from allocator.placement.choose import Choice, FitVerdict, PlacementPolicy, choose
from tests.builders.choices import cuts, grants, only
from tests.builders.model import A30, A100_40, A100_80, ask, gpu, mig_grant, node, pod, snapshot

TABLES = Path(__file__).parents[3] / "golden" / "volcano"
MIXED = only("group1=7x1g.10gb", "group2=3x2g.20gb+1x1g.10gb")


def shipped(name: str) -> Geometries:
    loaded = load_device_config((TABLES / f"device-config-{name}.yaml").read_text())
    assert isinstance(loaded, Loaded)
    return loaded.value.geometries


def table_and_board(table: Geometries, product: str) -> tuple[PositionTable, Board]:
    board = board_named(product)
    assert board is not None
    found = position_table(table, product, board)
    assert found is not None
    return found, board


def mig_snapshot(*held: Grant, product: str = A100_80) -> Snapshot:
    return snapshot(with_volcano_positions(node("n0", gpu(product, mode=Mode.MIG, grants=held))))


def grant_at(position: str, instance: str) -> Grant:
    """Build a grant of an A100's ``1g.10gb@6``."""
    name, _, start = instance.partition("@")
    return msgspec.structs.replace(mig_grant(name, int(start), product=A100_80), position=position)


def positions(choice: Choice, container: str = "main") -> list[str | None]:
    return [grant.position for grant in grants(choice)[container]]


@pytest.mark.parametrize("generation", ["a", "b"])
@pytest.mark.parametrize("product", [A30, A100_40, A100_80])
def test_every_place_of_a_shipped_group_has_one_position(generation: str, product: str) -> None:
    """Positions count through the group without a gap, and their places do not overlap."""
    found, board = table_and_board(shipped(generation), product)

    assert len(found.groups) == (3 if product == A30 else 4)
    for seats in found.groups.values():
        taken = 0
        for place in seats:
            assert place.start in place.profile.starts
            assert not place.mask & taken
            taken |= place.mask
        assert sorted(seats.values()) == list(range(len(seats)))
        assert taken < 1 << board.slots


@pytest.mark.parametrize("generation", ["a", "b"])
def test_positions_count_in_the_order_of_the_table(generation: str) -> None:
    """The fact sheet's example: 2g.10gb are 0, 1, 2 and the 1g.5gb is 3."""
    found, _ = table_and_board(shipped(generation), A100_40)

    group = found.groups["group2"]
    assert {f"{place.profile}@{place.start}": n for place, n in group.items()} == {
        "2g.10gb@0": 0,
        "2g.10gb@2": 1,
        "2g.10gb@4": 2,
        "1g.5gb@6": 3,
    }


def test_both_names_of_the_largest_profile_are_one() -> None:
    """The older table calls it 7g.79gb, which no driver does."""
    for generation in ("a", "b"):
        found, board = table_and_board(shipped(generation), A100_80)
        largest = board.profile("7g.80gb")
        assert [place.profile for place in found.groups["group4"]] == [largest]


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param(["group1=3x4g.40gb"], id="too-many"),
        pytest.param(["group1=1x9g.99gb"], id="no-such-profile"),
        pytest.param(["group1=1x4g.40gb+2x2g.20gb"], id="too-large-together"),
    ],
)
def test_a_group_that_no_board_can_hold_names_nothing(groups: list[str]) -> None:
    """vc-scheduler would hand out what cannot be cut."""
    geometries = only(*groups).geometries
    assert geometries is not None

    found, _ = table_and_board(geometries, A100_80)

    assert not found.groups


def test_a_gpu_in_use_keeps_its_group() -> None:
    """Its first tenant is named after group1, and would be wrong beside a 2g."""
    choice = choose(mig_snapshot(grant_at("group1-6", "1g.10gb@6")), pod(ask(15000)), policy=MIXED)

    assert choice.verdict is FitVerdict.NOT_NOW


@pytest.mark.parametrize(
    ("held", "memory", "cut"),
    [
        pytest.param(grant_at("group2-3", "1g.10gb@6"), 15000, "group2-2 2g.20gb@4", id="V2"),
        pytest.param(grant_at("group2-0", "2g.20gb@0"), 8000, "group2-3 1g.10gb@6", id="V3"),
        pytest.param(
            grant_at("gone-0", "1g.10gb@6"), 8000, "group1-4 1g.10gb@4", id="edited-table"
        ),
    ],
)
def test_a_group_offers_all_its_places(held: Grant, memory: int, cut: str) -> None:
    """Upstream offers only profiles in use, or the larger one, or crashes on an edited table."""
    choice = choose(mig_snapshot(held), pod(ask(memory)), policy=MIXED)

    assert f"{positions(choice)[0]} {cuts(choice)[0]}" == cut


def test_v1_containers_of_one_pod_have_positions_of_their_own() -> None:
    """All of them of one group."""
    asks = [ask(8000, name=f"c{i}") for i in range(7)]

    choice = choose(mig_snapshot(), pod(*asks), policy=MIXED)

    found = [positions(choice, one.name)[0] for one in asks]
    assert sorted(map(str, found)) == [f"group1-{i}" for i in range(7)]


def test_a_schedulers_pick_is_taken() -> None:
    """Also its group, which is not the first that would do."""
    policy = replace(MIXED, preferred_positions=(("GPU-n0-0", "group2-3"),))

    choice = choose(mig_snapshot(), pod(ask(8000)), policy=policy)

    assert (cuts(choice), positions(choice)) == (["1g.10gb@6"], ["group2-3"])


@pytest.mark.parametrize("policy", [MIXED, PlacementPolicy()], ids=["listed", "no-table"])
def test_where_only_we_allocate_nothing_has_a_position(policy: PlacementPolicy) -> None:
    """Names would bind us to a group for nothing."""
    alone = snapshot(node("n0", gpu(A100_80, mode=Mode.MIG)))

    assert positions(choose(alone, pod(ask(8000)), policy=policy)) == [None]


def test_a_node_is_counted_as_it_was_last_known() -> None:
    """A ledger does not say who else keeps account; the Node's register does."""
    plain = node("n0", gpu())

    assert keep_volcano_positions(plain, with_volcano_positions(plain)) == with_volcano_positions(
        plain
    )
    assert keep_volcano_positions(plain, plain) == keep_volcano_positions(plain, None) == plain


@given(
    st.lists(st.tuples(st.sampled_from([4000, 9000, 18000, 30000]), st.booleans()), max_size=24),
    st.sampled_from(["a", "b"]),
)
def test_names_stay_true_while_pods_come_and_go(
    steps: list[tuple[int, bool]], generation: str
) -> None:
    """At any time all tenants of a GPU are of one group, each at the place that its name means."""
    table = shipped(generation)
    found, _ = table_and_board(table, A100_40)
    policy, held = PlacementPolicy(geometries=table), list[Grant]()
    for memory, leaves in steps:
        if leaves and held:
            del held[memory % len(held)]
            continue
        choice = choose(mig_snapshot(*held, product=A100_40), pod(ask(memory)), policy=policy)
        if choice.assignment is not None:
            held += grants(choice)["main"]
        groups = {str(grant.position).rpartition("-")[0] for grant in held}
        assert len(groups) <= 1
        for grant in held:
            assert grant.placed is not None
            group, _, number = str(grant.position).rpartition("-")
            assert found.groups[group][grant.placed] == int(number)


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        pytest.param("g=2x5g.50gb+1x1g.10gb", [2], id="before"),
        pytest.param("g=1x1g.10gb+2x5g.50gb", [0], id="after"),
        pytest.param("g=1x1g.10gb+3x5g.50gb+1x1g.10gb", [0, 4], id="between"),
    ],
)
def test_items_that_the_board_lacks_are_counted(spelled: str, expected: list[int]) -> None:
    """Volcano's plugin counts through the table and knows nothing of boards."""
    geometries = only(spelled).geometries
    assert geometries is not None
    found, _ = table_and_board(geometries, A100_80)

    assert sorted(found.groups["g"].values()) == expected
