"""Attribution: who is counted where, and when the driver's word is taken instead."""

import pytest

from agent.driver.driver import Process
from agent.monitor.attribution import (
    DriverUse,
    OpenRegion,
    RegionView,
    by_container,
    counted_memory,
    misnumbered_slots,
    uncounted_processes,
)
from agent.region.decode import RegionReading
from agent.region.layout import SEEDED
from agent.share import Owner, Share
from allocator.model.units import MiB
from tests.builders.model import soft_grant
from tests.unit.agent.region.test_decode import (
    GPU,
    OTHER,
    built_region,
    readable_region,
    set_total,
)

MIB = 1024 * 1024
PID = 4711


def view(  # noqa: PLR0913 -- a row of a table names the one or two that matter
    *totals: tuple[int, ...],
    processes: dict[str, int] | None = None,
    gpus: tuple[str, ...] = (GPU, OTHER),
    answered: frozenset[str] = frozenset({GPU, OTHER}),
    live: frozenset[int] = frozenset({0, 1}),
    uuids: tuple[str, ...] = (GPU, OTHER),
    utilization: int | None = 7,
) -> RegionView:
    """Return a region by the totals of each process and device, as the driver sees the first."""
    content = built_region(SEEDED, uuids, [(7 + k, 0) for k in range(len(totals))])
    for slot, of_slot in enumerate(totals):
        for number, total in enumerate(of_slot):
            set_total(content, slot=slot, device=number, total=total % 2**64)
    region = readable_region(content)
    owner = Owner(uid="u", namespace="team-a", pod="p", containers=("main",))
    share = Share(owner=owner, grants=tuple(soft_grant(8, gpu=gpu) for gpu in gpus), key="c0")
    opened = OpenRegion(
        key="k",
        container=("u", "main"),
        share=share,
        limits=(),
        reading=RegionReading(name="vgpu.cache", region=region),
        region=region,
    )
    seen = tuple(
        Process(pid=PID, gpu=gpu, memory=MiB(memory), utilization=utilization)
        for gpu, memory in (processes or {}).items()
    )
    return RegionView(opened=opened, live=live, node_pids={7: PID}, use=DriverUse(seen, answered))


@pytest.mark.parametrize(
    ("case", "moved"),
    [
        pytest.param(view((5, 0), processes={OTHER: 5}), {0: OTHER}, id="counted-on-another"),
        pytest.param(view((5, 0), processes={GPU: 5}), {}, id="counted-where-it-is"),
        pytest.param(view((5, 5), processes={OTHER: 5}), {}, id="counted-there-too"),
        pytest.param(view((5, 0), processes={GPU: 5, OTHER: 5}), {}, id="uses-both"),
        pytest.param(view((0, 0), processes={OTHER: 5}), {}, id="counts-nothing-yet"),
        pytest.param(view((5, 0)), {}, id="not-on-a-gpu-yet"),
        pytest.param(
            view((5, 0), processes={OTHER: 5}, live=frozenset()), {}, id="its-slot-is-dead"
        ),
        pytest.param(
            view((5, 0), processes={OTHER: 5}, answered=frozenset({OTHER})),
            {},
            id="one-gpu-does-not-answer",
        ),
        pytest.param(
            view((5,), processes={OTHER: 5}, gpus=(GPU,), uuids=(GPU,)), {}, id="one-gpu-promised"
        ),
        pytest.param(
            view((-5, 0), processes={OTHER: 5}), {0: OTHER}, id="counted-below-zero-on-another"
        ),
        pytest.param(
            view((5, 0), (5, 0), processes={OTHER: 5}), {0: OTHER}, id="the-other-is-unknown"
        ),
        pytest.param(view((5, 0), processes={"GPU-x": 5}), {}, id="on-one-that-was-not-promised"),
    ],
)
def test_who_is_counted_on_the_wrong_gpu(case: RegionView, moved: dict[int, str]) -> None:
    """Only a process that is on exactly one GPU, and counts nothing there."""
    assert misnumbered_slots(case) == moved


@pytest.mark.parametrize(
    ("processes", "answered", "utilization", "expected"),
    [
        pytest.param({}, {GPU, OTHER}, 7, 0, id="no-process"),
        pytest.param({GPU: 1, OTHER: 1}, {GPU, OTHER}, 7, 14, id="both"),
        pytest.param({GPU: 1}, {GPU}, 7, None, id="one-gpu-does-not-answer"),
        pytest.param({GPU: 1}, {GPU, OTHER}, None, None, id="no-figure"),
        pytest.param({"GPU-x": 1}, {GPU, OTHER}, 7, 0, id="elsewhere"),
        pytest.param({}, set(), 7, None, id="no-driver"),
    ],
)
def test_a_figure_is_known_where_the_driver_tells_all(
    processes: dict[str, int],
    answered: set[str],
    *,
    utilization: int | None,
    expected: int | None,
) -> None:
    """Compute by all processes on all GPUs of the container, or nothing is known."""
    use = view(processes=processes, answered=frozenset(answered), utilization=utilization).use

    assert use.utilization({GPU, OTHER}) == expected


def test_each_process_has_what_its_slots_count() -> None:
    """On all devices, in all regions; a counter below zero is no debt, and no slot is 0."""
    counting = view((5, 6), (9, 0))
    below = view((-3, 6))

    assert counted_memory([counting, below]) == {PID: 17, 0: 9}
    assert counted_memory([view(live=frozenset())]) == {PID: 0}
    assert below.used == (0, 6)
    assert by_container([counting, below]) == {("u", "main"): [counting, below]}


@pytest.mark.parametrize(
    ("case", "found"),
    [
        pytest.param(view((5, 0), processes={GPU: 5}), [], id="has-a-slot"),
        pytest.param(view((5, 0), processes={GPU: 9000}), [], id="counts-too-little"),
        pytest.param(view(processes={GPU: 5}), [GPU], id="has-no-slot"),
        pytest.param(view((5, 0), processes={GPU: 5}, live=frozenset()), [GPU], id="dead-slot"),
        pytest.param(view(processes={GPU: 5, OTHER: 6}), [GPU, OTHER], id="on-both"),
        pytest.param(view(processes={"GPU-x": 5}), [], id="not-promised-which-is-worse"),
        pytest.param(view(processes={GPU: 0}), [], id="holds-nothing"),
        pytest.param(view(), [], id="nobody"),
        pytest.param(
            view(processes={GPU: 5}, live=frozenset({255})), [], id="not-all-slots-are-read"
        ),
    ],
)
def test_who_is_in_no_region(case: RegionView, found: list[str]) -> None:
    """A process that holds memory and has no slot is not held to any limit."""
    assert [process.gpu for process in uncounted_processes([case])] == found


def test_one_region_of_two_is_enough() -> None:
    """Each process has a slot in the one that it has open, under either of its numbers."""
    elsewhere = view((5, 0), processes={GPU: 5})
    other = view(processes={GPU: 5})

    assert uncounted_processes([other, elsewhere]) == ()
    assert len(uncounted_processes([other])) == 1
