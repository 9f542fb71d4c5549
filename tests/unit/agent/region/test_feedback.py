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


def task(  # noqa: PLR0913 -- a row of the table names the one or two that matter
    priority: Priority = LOW,
    *,
    gpus: str = "0",
    last: int | None = None,
    recent: int = 0,
    layout: str = "C",
    said: int = LOW,
) -> SharingContainer:
    """Return a task on GPUs named by letters; *said* is the priority in its region."""
    region = Region(
        layout=BY_NAME[layout],
        uuids=(),
        limits=(0,) * 16,
        cores=(100,) * 16,
        slots=(),
        utilization_switch=1,
        recent_kernel=recent,
        priority=said,
        last_kernel=last,
    )
    return SharingContainer(gpus=frozenset(gpus), priority=priority, region=region, live=True)


BUSY = 999


def told(*tasks: SharingContainer) -> list[tuple[int, int]]:
    """Return switch and recent kernel of each."""
    found = flags_by_container({str(k): t for k, t in enumerate(tasks)}, now=NOW)
    return [(found[str(k)].switch, found[str(k)].recent) for k in range(len(tasks))]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        pytest.param([task(last=BUSY)], [(0, 0)], id="alone-runs-free"),
        pytest.param([task(last=BUSY), task()], [(0, 0), (0, 0)], id="beside-an-idle-one"),
        pytest.param([task(last=BUSY), task(last=BUSY)], [(1, 0), (1, 0)], id="two-are-limited"),
        pytest.param(
            [task(last=BUSY), task(last=BUSY, gpus="1")], [(0, 0), (0, 0)], id="on-two-gpus"
        ),
        pytest.param(
            [task(last=BUSY), task(last=BUSY, gpus="1"), task(gpus="01")],
            [(0, 0), (0, 0), (0, 0)],
            id="one-on-both-idle",
        ),
        pytest.param(
            [task(last=BUSY), task(gpus="1"), task(gpus="01", last=BUSY)],
            [(1, 0), (0, 0), (1, 0)],
            id="one-on-both",
        ),
        pytest.param(
            [task(HIGH, last=BUSY), task(last=BUSY)], [(0, 0), (1, -1)], id="held-back-by-high"
        ),
        pytest.param(
            [task(HIGH), task(last=BUSY, recent=-1)], [(0, 0), (0, 0)], id="released-again"
        ),
        pytest.param(
            [task(HIGH, recent=2, layout="B"), task(layout="B")],
            [(0, 1), (1, -1)],
            id="told-by-the-recent-kernel",
        ),
        pytest.param([task(recent=2), task(recent=2)], [(1, 1), (1, 1)], id="counted-down"),
        pytest.param([task(recent=1), task(recent=1)], [(0, 0), (0, 0)], id="counted-out"),
    ],
)
def test_orders(tasks: list[SharingContainer], expected: list[tuple[int, int]]) -> None:
    """As Volcano's monitor gives them, with the kernel's time where there is one."""
    assert told(*tasks) == expected


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
    assert told(task(last=BUSY, layout=layout)) == [(switch, 0)]


@given(
    said=st.integers(-(2**31), 2**31 - 1),
    recent=st.integers(-(2**31), 2**31 - 1),
    last=st.none() | st.integers(0, 2**64 - 1),
)
def test_a_tenant_cannot_hold_back_its_neighbour(said: int, recent: int, last: int | None) -> None:
    """Whatever it writes into its region, the other's launches go on."""
    liar = task(said=said, recent=recent, last=last, layout="E")
    found = flags_by_container({"liar": liar, "other": task(last=BUSY)}, now=NOW)

    assert found["other"].recent == 0
    assert found["liar"] in {RegionFlags(1, 0), RegionFlags(1, 1)}


@pytest.mark.parametrize("ahead", [6, 3600, 2**63])
def test_a_time_to_come_is_no_activity(ahead: int) -> None:
    """A tenant that writes one would be active for ever, and hold back or limit its neighbours."""
    invented = int(NOW) + ahead

    assert told(task(last=invented), task(last=BUSY)) == [(0, 0), (0, 0)]
    assert told(task(HIGH, last=invented), task(last=BUSY)) == [(0, 0), (0, 0)]


def test_a_clock_that_is_a_little_ahead_is_believed() -> None:
    """The library notes whole seconds by its own reading of the clock."""
    assert told(task(HIGH, last=int(NOW) + 1), task()) == [(0, 0), (1, -1)]


def test_what_has_no_process_is_not_active() -> None:
    """A region is seeded with the time, and its container may never launch."""
    idle = SharingContainer(
        gpus=frozenset("0"), priority=HIGH, region=task(last=BUSY).region, live=False
    )

    assert told(idle, task(last=BUSY))[1] == (0, 0)
