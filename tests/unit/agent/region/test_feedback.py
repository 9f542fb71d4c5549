"""Feedback: who is held back, whose limit holds, and that no tenant decides about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.region.decode import Region
from agent.region.feedback import RegionFlags, SharingContainer, flags_by_container
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
    return SharingContainer(gpus=frozenset(gpus), priority=priority, region=region, live=True)


BUSY = 999


def flags(*tasks: SharingContainer) -> list[tuple[int, int]]:
    """Return switch and recent kernel of each."""
    flags_by_key = flags_by_container({str(k): t for k, t in enumerate(tasks)}, now=NOW)
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
    found = flags_by_container({"liar": liar, "other": sharing_container(last=BUSY)}, now=NOW)

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
