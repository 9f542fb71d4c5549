"""Where groups go: the closest domain, the fullest that does, and nobody's reservation is taken."""

import json
from collections.abc import Mapping

import pytest

from allocator.groups.domains import Fabric, GroupDomain, GroupNeed, GroupWaits, Reservation
from allocator.groups.tree import Tree, decode_tree
from tests.builders.supernodes import node_group

EIGHT = {f"n{number}": 8 for number in range(1, 9)}
FREE = dict.fromkeys(EIGHT, 8)


def tree(*, unready: frozenset[str] = frozenset()) -> Tree:
    """Return two switchboxes of two dragonflies of two nodes each, n1 to n8."""
    boxes = {
        "sb1": {"df1": ("n1", "n2"), "df2": ("n3", "n4")},
        "sb2": {"df3": ("n5", "n6"), "df4": ("n7", "n8")},
    }
    return decode_tree(json.dumps(node_group(boxes, unready=unready))).tree


def fabric(
    idle: Mapping[str, int], *reservations: Reservation, among: Tree | None = None
) -> Fabric:
    return Fabric(
        tree=tree() if among is None else among,
        idle=lambda name: idle.get(name, 0),
        reservations=reservations,
    )


def chosen(
    idle: Mapping[str, int], need: GroupNeed, *reservations: Reservation, among: Tree | None = None
) -> str:
    """Return the name of the domain that is chosen, or why the group waits."""
    made = fabric(idle, *reservations, among=among).choose(need, lambda name: idle.get(name, 0))
    return made.domain.name if isinstance(made, GroupDomain) else made.text


def free(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, 8)


def pods(waiting: int, *, gpus: int = 8, placed: Mapping[str, int] | None = None) -> GroupNeed:
    return GroupNeed(gpus=gpus, waiting=waiting, placed=placed or {})


def domain(name: str) -> "Reservation":
    found = {one.name: one for one in tree().domains}
    return Reservation(found[name], 8, 2)


@pytest.mark.parametrize(
    ("idle", "need", "where"),
    [
        (FREE, pods(2), "df1"),
        (free("n1", "n3", "n4"), pods(2), "df2"),
        (free("n1", "n3"), pods(2), "sb1"),
        (FREE, pods(4), "sb1"),
        (free("n1", "n2", "n3", "n5", "n6", "n7", "n8"), pods(4), "sb2"),
        ({"n1": 4, "n2": 8}, pods(2, gpus=4), "n2"),
        (FREE, pods(1), "n1"),
        ({"n1": 8, "n2": 5, "n3": 6}, pods(1, gpus=4), "n2"),
        (free("n1", "n6", "n7"), pods(1, placed={"n5": 1}), "df3"),
        (free("n7", "n8"), pods(1, placed={"n5": 1}), "sb2"),
        (free("n3", "n6"), pods(1, placed={"n1": 1, "n2": 1, "n5": 1}), "sb1"),
        ({"n1": 4, "n2": 8}, pods(2, placed={"n1": 1}, gpus=4), "df1"),
        ({"n1": 4, "n2": 8}, pods(1, placed={"n1": 1}, gpus=4), "n1"),
    ],
)
def test_a_group_goes_to_the_closest_domain_and_of_these_to_the_fullest(
    idle: Mapping[str, int], need: GroupNeed, where: str
) -> None:
    """Of equally full ones the first by name."""
    assert chosen(idle, need) == where


@pytest.mark.parametrize(
    ("idle", "need", "numbers"),
    [
        (free("n1", "n2", "n5", "n6"), pods(4), ("32 GPUs for 4 pods", "16, in switchbox")),
        (FREE, pods(8), ("64 GPUs for 8 pods", 'is 32, in switchbox "sb2"')),
        ({}, pods(2), ("16 GPUs for 2 pods", "is 0, in switchbox")),
        (free("n1"), pods(2, placed={"n5": 2}), ("2 of which run already", "is 0")),
        # GPUs that are idle, but too few on each node for one pod, are no room.
        (dict.fromkeys(EIGHT, 7), pods(2), ("16 GPUs for 2 pods", "is 0")),
    ],
)
def test_a_group_that_fits_nowhere_waits_with_both_numbers(
    idle: Mapping[str, int], need: GroupNeed, numbers: tuple[str, ...]
) -> None:
    """What it needs, and what the roomiest domain has."""
    text = chosen(idle, need)
    assert all(number in text for number in numbers), text


def test_a_node_that_is_not_ready_has_no_room() -> None:
    """Nor has its dragonfly with it."""
    assert chosen(FREE, pods(2), among=tree(unready=frozenset({"n2"}))) == "df2"


def test_an_empty_tree_is_told() -> None:
    """It names no domain that does not exist."""
    assert "no node of its cluster" in chosen(FREE, pods(2), among=Tree())


def test_what_a_group_still_needs_is_no_room_for_others() -> None:
    """The second of two groups goes elsewhere before the first has placed all its pods."""
    assert chosen(FREE, pods(2), domain("df1")) == "df2"
    assert "is 16, in" in chosen(free("n1", "n2", "n3", "n4"), pods(4), domain("df1"))


def test_a_reservation_leaves_the_rest_of_a_domain_to_others() -> None:
    """Two groups share a dragonfly if it has room for both."""
    half = Reservation(domain("df1").domain, 8, 1)
    assert chosen(free("n1", "n2"), pods(2, gpus=4), half) == "n1"
    assert chosen({"n1": 6, "n2": 8}, pods(2, gpus=3), half) == "n1"
    assert "is 0, in" in chosen({"n1": 6, "n2": 8}, pods(1), half)


def test_a_pod_of_a_group_leaves_room_for_other_groups_and_for_its_own() -> None:
    """It takes the node that is of no use to them, although another has the room too."""
    made = fabric({"n1": 8, "n2": 4}, Reservation(domain("df1").domain, 8, 1)).choose(
        pods(1, gpus=4, placed={"n2": 1, "n1": 1}), lambda name: {"n1": 8, "n2": 4}.get(name, 0)
    )
    assert isinstance(made, GroupDomain)
    assert made.nodes == {"n2"}


def test_a_bind_to_a_node_that_others_need_is_refused() -> None:
    """A scheduler that asks nobody may have chosen it, though another node of the domain does."""
    idle = {"n1": 8, "n2": 4}
    site = fabric(idle, Reservation(domain("df1").domain, 8, 1))
    need = pods(1, gpus=4, placed={"n2": 1, "n1": 1})
    assert site.takes("n1", need, lambda name: idle.get(name, 0)) is None
    assert isinstance(site.takes("n2", need, lambda name: idle.get(name, 0)), GroupDomain)
    full = fabric({"n1": 8, "n2": 0})
    one = pods(1, placed={"n1": 1})
    assert full.takes("n2", one, lambda name: {"n1": 8}.get(name, 0)) is None


def test_a_pod_of_no_group_takes_only_what_is_not_reserved() -> None:
    """Elsewhere nothing is in its way."""
    site = fabric(free("n1", "n2", "n3"), Reservation(domain("df1").domain, 8, 1))
    assert site.spares("n1", 8)
    assert site.spares("n3", 8)
    full = fabric(free("n1", "n2", "n3"), domain("df1"))
    assert not full.spares("n1", 1)
    assert full.spares("n3", 8)


def test_any_domain_as_close_as_the_best_takes_a_first_pod() -> None:
    """A scheduler that asks nobody may choose another one than we would."""
    site = fabric(FREE)
    taken = site.takes("n8", pods(2), lambda _: 8)
    assert isinstance(taken, GroupDomain)
    assert taken.domain.name == "df4"


def test_a_node_outside_the_domain_of_the_group_takes_no_pod_of_it() -> None:
    """However much room it has; and where the group waits, the reason says why."""
    site = fabric(FREE)
    assert site.takes("n8", pods(1, placed={"n1": 1}), lambda _: 8) is None
    assert site.takes("elsewhere", pods(2), lambda _: 8) is None
    assert isinstance(site.takes("n1", pods(9), lambda _: 8), GroupWaits)


def test_only_gpus_that_suit_the_pod_are_room_for_its_group() -> None:
    """Idle GPUs of another model do not help."""
    suits = {"n1": 8, "n3": 8, "n4": 8}
    made = fabric(FREE).choose(pods(2), lambda name: suits.get(name, 0))
    assert isinstance(made, GroupDomain)
    assert made.domain.name == "df2"
