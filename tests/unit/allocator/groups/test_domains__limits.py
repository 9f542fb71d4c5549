"""Groups at the edges of their rules: tiers, samples of nodes, and reservations that overlap."""

from collections.abc import Container, Mapping

import pytest

from allocator.groups.domains import Fabric, GroupDomain, GroupNeed, GroupWaits, Reservation
from tests.unit.allocator.groups.test_domains import FREE, chosen, domain, fabric, free, pods

IDLE_OF_FIRST_BOX = free("n1", "n2", "n3", "n4")


def place(
    idle: Mapping[str, int],
    need: GroupNeed,
    *reservations: Reservation,
    among: Container[str] | None = None,
) -> str:
    """Return the domain that is chosen for a scheduler that knows *among*, empty for none."""
    usable = lambda name: idle.get(name, 0)  # noqa: E731 -- as Fabric has it
    made = fabric(idle, *reservations).choose(need, usable, among=among)
    return made.domain.name if isinstance(made, GroupDomain) else ""


def reserved(name: str, *, gpus: int = 8, count: int = 1) -> Reservation:
    return Reservation(domain(name).domain, gpus, count)


@pytest.mark.parametrize(
    ("among", "where"),
    [
        (None, "df1"),
        ({"n1"}, "df1"),
        ({"n2", "n8"}, "df1"),
        ({"n3"}, "df2"),
        ({"n8"}, "df4"),
        (set[str](), ""),
    ],
)
def test_a_scheduler_that_knows_some_nodes_gets_a_domain_with_one_of_them(
    among: set[str] | None, where: str
) -> None:
    """Of those that are as close as the closest."""
    assert place(FREE, pods(2), among=among) == where


def test_no_wider_domain_is_taken_while_a_closer_one_has_the_room() -> None:
    """The next sample of nodes may hold it; a group that is spread stays spread."""
    idle = free("n1", "n2", "n3")

    assert place(idle, pods(2)) == "df1"
    assert place(idle, pods(2), among={"n3"}) == ""
    assert place(free("n1", "n3"), pods(2), among={"n3"}) == "sb1"


def test_a_domain_without_an_open_node_gives_way_to_the_next() -> None:
    """Room that is there only together with what others need is none."""
    idle = {"n1": 8, "n2": 8, **free("n3", "n4")}
    own = Reservation(domain("df1").domain, 8, 2)

    assert place(idle, pods(2), own) == "df2"


def test_a_scheduler_that_chooses_tiers_itself_may_go_wider() -> None:
    """Others stay as close as they can."""
    site, need = fabric(free("n1", "n2", "n3")), pods(2)
    usable = lambda name: 8 if name in {"n1", "n2", "n3"} else 0  # noqa: E731

    assert site.takes("n3", need, usable) is None
    wide = site.takes("n3", need, usable, any_tier=True)
    assert isinstance(wide, GroupDomain)
    assert wide.domain.name == "sb1"
    close = site.takes("n1", need, usable, any_tier=True)
    assert isinstance(close, GroupDomain)
    assert close.domain.name == "df1"


def test_room_is_counted_in_pods() -> None:
    """What is left over on a node makes no domain the roomier one."""
    idle = {"n1": 8, "n2": 8, "n3": 7, "n4": 7}

    assert chosen(idle, pods(4, gpus=3)) == "df1"
    assert chosen({"n1": 8, "n2": 8, "n3": 5, "n4": 7}, pods(3, gpus=3)) == "df2"


def test_the_domain_with_the_least_room_is_that_beside_reservations() -> None:
    """So that as much as possible stays whole for others."""
    assert chosen(FREE, pods(2, gpus=4)) == "n1"
    assert chosen(FREE, pods(3, gpus=4), reserved("df2", gpus=4)) == "df2"
    assert chosen(FREE, pods(3, gpus=4), reserved("df1", gpus=4)) == "df1"


def test_a_pod_that_runs_outside_all_domains_draws_nobody_there() -> None:
    """Nodes of no domain are near to none."""
    idle = {"elsewhere": 8, **FREE}
    need = pods(1, gpus=2, placed={"elsewhere": 1})

    assert chosen(idle, need) != "elsewhere"
    assert fabric(idle).takes("elsewhere", need, lambda name: idle.get(name, 0)) is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_smallest_domains_choose_first(order: tuple[int, ...]) -> None:
    """The group of the switchbox needs n3, because the one of the dragonfly needs n1 and n2."""
    both = [reserved("sb1"), reserved("df1", count=2)]
    site = fabric(free("n1", "n2", "n3"), *(both[number] for number in order))

    assert not site.spares("n3", 8)
    assert not site.spares("n1", 8)
    waits = site.choose(pods(1), lambda name: 8 if name == "n3" else 0)
    assert isinstance(waits, GroupWaits)
    assert fabric(free("n1", "n2", "n3", "n4"), *both).spares("n3", 8)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_large_pods_choose_before_small_ones(order: tuple[int, ...]) -> None:
    """A small one fits beside them, they do not fit beside it; so the fifth GPU is not free."""
    both = [reserved("df1", gpus=1), reserved("df1", gpus=4, count=2)]
    site = fabric({"n1": 4, "n2": 5}, *(both[number] for number in order))

    assert not site.spares("n2", 1)


def test_a_node_that_is_full_has_room_for_no_small_pod() -> None:
    """Nor does one become less than full by what somebody takes."""
    site = fabric({"n1": 1, "n2": 0}, reserved("df1", gpus=1, count=2))

    assert not site.spares("n1", 1)
    assert site.spares("n1", 0)
    assert fabric({"n1": 3}, reserved("df1", gpus=1, count=2)).spares("n1", 1)
    assert site.spares("n2", 1)  # nothing is taken of it that was there


def test_reservations_of_other_places_change_nothing() -> None:
    """A whole switchbox away."""
    far = [reserved("sb2", count=4), reserved("df3", count=2)]
    need = pods(4)

    assert place(IDLE_OF_FIRST_BOX, need, *far) == place(IDLE_OF_FIRST_BOX, need) == "sb1"
    assert fabric(IDLE_OF_FIRST_BOX, *far).spares("n1", 8)


def test_why_a_group_waits_names_the_roomiest_domain() -> None:
    """And how many of its pods run already."""
    waits = fabric(free("n1", "n3")).choose(pods(3, placed={"n1": 1}), lambda _: 0)

    assert isinstance(waits, GroupWaits)
    assert "24 GPUs for 3 pods of its group, 1 of which run already," in waits.text
    assert Fabric(tree=fabric(FREE).tree, idle=FREE.__getitem__).spares("n1", 8)
