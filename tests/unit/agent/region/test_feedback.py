"""Feedback: who is held back, whose limit holds, and that no tenant decides about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.region.decode import Region
from agent.region.feedback import (
    ACTIVE_SECONDS,
    ComputeActivity,
    RegionFlags,
    SharingContainer,
    flags_by_container,
)
from agent.region.layout import BY_NAME
from allocator.model.request import Priority

NOW = 1000.0
HIGH, LOW = Priority.HIGH, Priority.LOW


def sharing_container(  # noqa: PLR0913 -- a row of the table names the one or two that matter
    priority: Priority = LOW,
    *,
    gpus: str = "0",
    last: int | None = None,
    recent: int = 0,
    layout: str = "C",
    region_priority: int = LOW,
    utilization: int | None = None,
) -> SharingContainer:
    """Return a container on GPUs named by letters; *region_priority* is what its region says."""
    region = Region(
        layout=BY_NAME[layout],
        uuids=(),
        limits=(0,) * 16,
        cores=(100,) * 16,
        slots=(),
        utilization_switch=1,
        recent_kernel=recent,
        priority=region_priority,
        last_kernel=last,
    )
    return SharingContainer(
        gpus=frozenset(gpus),
        priority=priority,
        region=region,
        live=True,
        utilization=utilization,
    )


BUSY = 999


def looked_at(containers: dict[str, SharingContainer]) -> dict[str, RegionFlags]:
    """Return what one look sets, the first there is."""
    _, active = ComputeActivity().advance(containers, NOW)
    return flags_by_container(containers, active)


def flags(*tasks: SharingContainer) -> list[tuple[int, int]]:
    """Return switch and recent kernel of each."""
    flags_by_key = looked_at({str(k): t for k, t in enumerate(tasks)})
    return [(flags_by_key[str(k)].switch, flags_by_key[str(k)].recent) for k in range(len(tasks))]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        pytest.param([sharing_container(last=BUSY)], [(0, 0)], id="alone-runs-free"),
        pytest.param(
            [sharing_container(last=BUSY), sharing_container()],
            [(0, 0), (0, 0)],
            id="beside-an-idle-one",
        ),
        pytest.param(
            [sharing_container(last=BUSY), sharing_container(last=BUSY)],
            [(1, 0), (1, 0)],
            id="two-are-limited",
        ),
        pytest.param(
            [sharing_container(last=BUSY), sharing_container(last=BUSY, gpus="1")],
            [(0, 0), (0, 0)],
            id="on-two-gpus",
        ),
        pytest.param(
            [
                sharing_container(last=BUSY),
                sharing_container(last=BUSY, gpus="1"),
                sharing_container(gpus="01"),
            ],
            [(0, 0), (0, 0), (0, 0)],
            id="one-on-both-idle",
        ),
        pytest.param(
            [
                sharing_container(last=BUSY),
                sharing_container(gpus="1"),
                sharing_container(gpus="01", last=BUSY),
            ],
            [(1, 0), (0, 0), (1, 0)],
            id="one-on-both",
        ),
        pytest.param(
            [sharing_container(HIGH, last=BUSY), sharing_container(last=BUSY)],
            [(0, 0), (1, -1)],
            id="held-back-by-high",
        ),
        pytest.param(
            [sharing_container(HIGH), sharing_container(last=BUSY, recent=-1)],
            [(0, 0), (0, 0)],
            id="released-again",
        ),
        pytest.param(
            [sharing_container(HIGH, recent=2, layout="B"), sharing_container(layout="B")],
            [(0, 1), (1, -1)],
            id="told-by-the-recent-kernel",
        ),
        pytest.param(
            [sharing_container(recent=2), sharing_container(recent=2)],
            [(1, 1), (1, 1)],
            id="counted-down",
        ),
        pytest.param(
            [sharing_container(recent=1), sharing_container(recent=1)],
            [(0, 0), (0, 0)],
            id="counted-out",
        ),
    ],
)
def test_orders(tasks: list[SharingContainer], expected: list[tuple[int, int]]) -> None:
    """As Volcano's monitor gives them, with the kernel's time where there is one."""
    assert flags(*tasks) == expected


@pytest.mark.parametrize(
    ("layout", "switch"),
    [
        pytest.param("C", 0, id="reads-it-at-every-launch"),
        pytest.param("D", 1, id="reads-it-once"),
        pytest.param("E", 1, id="may-read-it-once"),
    ],
)
def test_a_limit_is_lifted_only_where_it_comes_back(layout: str, switch: int) -> None:
    """A library that reads the switch once would let its process run free for ever."""
    assert flags(sharing_container(last=BUSY, layout=layout)) == [(switch, 0)]


@given(
    region_priority=st.integers(-(2**31), 2**31 - 1),
    recent=st.integers(-(2**31), 2**31 - 1),
    last=st.none() | st.integers(0, 2**64 - 1),
)
def test_a_tenant_cannot_hold_back_its_neighbour(
    region_priority: int, recent: int, last: int | None
) -> None:
    """Whatever it writes into its region, the other's launches go on."""
    liar = sharing_container(region_priority=region_priority, recent=recent, last=last, layout="E")
    found = looked_at({"liar": liar, "other": sharing_container(last=BUSY)})

    assert found["other"].recent == 0
    assert found["liar"] in {RegionFlags(1, 0), RegionFlags(1, 1)}


@pytest.mark.parametrize("ahead", [6, 3600, 2**63])
def test_a_time_to_come_is_no_activity(ahead: int) -> None:
    """A tenant that writes one would be active for ever, and hold back or limit its neighbours."""
    invented = int(NOW) + ahead

    assert flags(sharing_container(last=invented), sharing_container(last=BUSY)) == [(0, 0), (0, 0)]
    assert flags(sharing_container(HIGH, last=invented), sharing_container(last=BUSY)) == [
        (0, 0),
        (0, 0),
    ]


def test_a_clock_that_is_a_little_ahead_is_believed() -> None:
    """The library notes whole seconds by its own reading of the clock."""
    assert flags(sharing_container(HIGH, last=int(NOW) + 1), sharing_container()) == [
        (0, 0),
        (1, -1),
    ]


def test_what_has_no_process_is_not_active() -> None:
    """A region is seeded with the time, and its container may never launch."""
    idle = SharingContainer(
        gpus=frozenset("0"), priority=HIGH, region=sharing_container(last=BUSY).region, live=False
    )

    assert flags(idle, sharing_container(last=BUSY))[1] == (0, 0)


def probed(*, recent: int = 0, utilization: int | None = 0) -> SharingContainer:
    """Return a container in which a program attached a second ago, and wrote the time."""
    return sharing_container(HIGH, last=BUSY, layout="E", recent=recent, utilization=utilization)


@pytest.mark.parametrize(
    ("utilization", "recent", "held_back"),
    [
        pytest.param(0, 0, False, id="only-attached"),
        pytest.param(0, 1, False, id="launched-before-the-last-look"),
        pytest.param(1, 0, True, id="computes-without-a-limit"),
        pytest.param(100, 0, True, id="computes-all-the-time"),
        pytest.param(0, 2, True, id="launched-under-a-limit"),
        pytest.param(None, 0, True, id="no-figure-so-the-time-counts"),
        pytest.param(None, 2, True, id="no-figure-but-a-launch"),
    ],
)
def test_attaching_is_not_computing(
    utilization: int | None, recent: int, *, held_back: bool
) -> None:
    """A probe that runs nvidia-smi writes the time of a kernel; the driver knows better."""
    first = probed(recent=recent, utilization=utilization)

    assert (flags(first, sharing_container())[1] == (1, -1)) == held_back


def test_a_pause_between_two_kernels_is_no_end() -> None:
    """Who computed is active for five seconds more, whatever the looks between say."""
    busy = {"high": sharing_container(HIGH, utilization=40)}
    idle = {"high": probed()}
    activity, at_once = ComputeActivity().advance(busy, NOW)
    activity, soon = activity.advance(idle, NOW + ACTIVE_SECONDS)
    activity, later = activity.advance(idle, NOW + ACTIVE_SECONDS + 0.1)

    assert [set(at_once), set(soon), set(later)] == [{"high"}, {"high"}, set()]
    assert activity.advance({}, NOW)[0] == ComputeActivity({})


def test_the_time_alone_counts_once() -> None:
    """Without the driver's figure a kernel of four seconds ago is not renewed by each look."""
    told = {"high": sharing_container(HIGH, last=int(NOW))}
    activity, _ = ComputeActivity().advance(told, NOW + 4)

    assert activity.advance(told, NOW + 6)[1] == frozenset()
