"""Simulated boards: whatever is done to them, they stay as a driver would keep them."""

from dataclasses import replace
from functools import reduce
from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.driver.driver import DriverEvent, Fault, MigMode, Process
from agent.driver.simulated_machine import (
    Created,
    DriverRefusal,
    State,
    add_event,
    change_gpu,
    create_compute,
    create_instance,
    destroy_compute,
    destroy_instance,
    devices,
    events_since,
    find_gpu,
    reboot,
    refit,
    set_mode,
    usage,
)
from allocator.model.board import Placement
from allocator.model.units import MiB
from tests.fakes.driver import A30, A100, H200, PRO_6000, T4, floor_swept, machine

MACHINES = [machine(A100), machine(A30), machine(H200), machine(PRO_6000), floor_swept()]
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 15), st.integers(0, 15)), max_size=40)


def gpu_of(state: State) -> str:
    return state.gpus[0].chip.uuid


def with_process(state: State, process: Process) -> State:
    return change_gpu(state, process.gpu, lambda g: replace(g, processes=(*g.processes, process)))


def create_whole_instance(state: State, profile: int, start: int) -> Created:
    """Create an instance with its compute."""
    created = create_instance(state, gpu_of(state), profile=profile, start=start)
    assert isinstance(created, Created)
    both = create_compute(created.state, gpu_of(state), created.instance.id)
    assert isinstance(both, Created)
    return both


def step(state: State, kind: int, first: int, *, second: int) -> State:
    """Return the state after one call, or the same after a refusal."""
    board = state.gpus[0].chip.board
    assert board is not None
    profile = board.profiles[first % len(board.profiles)]
    start = profile.starts[second % len(profile.starts)]
    gpu = gpu_of(state)
    match kind:
        case 0:
            answer: Created | State | DriverRefusal = create_instance(
                state, gpu, profile=profile.id, start=start
            )
        case 1:
            answer = create_compute(state, gpu, first)
        case 2:
            answer = destroy_compute(state, gpu, number=first, compute=0)
        case _:
            answer = destroy_instance(state, gpu, first)
    if isinstance(answer, DriverRefusal):
        return state
    return answer.state if isinstance(answer, Created) else answer


@given(state=st.sampled_from(MACHINES), steps=STEPS)
def test_instances_never_overlap(state: State, steps: list[tuple[int, int, int]]) -> None:
    """After any calls they have slots, numbers and UUIDs of their own, at listed placements."""
    board = state.gpus[0].chip.board
    assert board is not None
    by_id = {profile.id: profile for profile in board.profiles}

    ever: set[str] = set()
    for kind, first, second in steps:
        before = {i.uuid for i in state.gpus[0].instances if i.uuid}
        state = step(state, kind, first, second=second)
        instances = state.gpus[0].instances
        placed = [Placement(by_id[i.profile], i.start) for i in instances]

        assert all(each.start in each.profile.starts for each in placed)
        taken = reduce(or_, (each.mask for each in placed), 0)
        assert taken.bit_count() == sum(each.mask.bit_count() for each in placed)
        assert len({i.id for i in instances}) == len(instances)
        assert all((i.uuid is None) == (i.compute is None) for i in instances)
        new = {i.uuid for i in instances if i.uuid} - before
        assert not new & ever
        ever |= new | before


@pytest.mark.parametrize(
    ("model", "ids"),
    [
        (A100, {(19, 0): 7, (19, 6): 13, (14, 4): 5, (15, 6): 6, (9, 4): 2, (5, 0): 1, (0, 0): 0}),
        (A30, {(14, 3): 6, (5, 2): 2, (0, 0): 0}),
        (PRO_6000, {(14, 0): 3, (14, 9): 6, (5, 6): 2, (0, 0): 0}),
    ],
)
def test_numbers_are_nodes_of_the_tree_over_memory(
    model: str, ids: dict[tuple[int, int], int]
) -> None:
    """As the driver numbers them: the whole is 0, its halves 1 and 2, and so on."""
    state = machine(model)

    for (profile, start), number in ids.items():
        assert create_whole_instance(state, profile, start).instance.id == number


def test_a_reboot_ends_everything_and_hopper_forgets_the_mode() -> None:
    """Ampere takes up the mode it was asked for; nothing made before has its UUID again."""
    state = machine(A100, H200, T4)
    before = create_whole_instance(state, 9, 4)
    busy = with_process(before.state, Process(pid=1, gpu=gpu_of(state), memory=None))

    after = reboot(add_event(busy, DriverEvent(gpu=None, xid=79)), "boot-2")

    assert [(d.mig, d.model) for d in devices(after)] == [
        (MigMode(current=True, pending=True), A100),
        (MigMode(current=False, pending=False), H200),
        (None, T4),
    ]
    assert not any(gpu.instances or gpu.processes for gpu in after.gpus)
    assert events_since(after, 0) == ()
    assert create_whole_instance(after, 9, 4).instance.uuid != before.instance.uuid


def test_the_mode_waits_on_ampere_alone() -> None:
    """A busy A100 changes with its next reset; a busy H200 refuses, as do GPUs that are cut."""
    state = machine(A100, H200, T4, mig=False)
    uuids = [gpu.chip.uuid for gpu in state.gpus]
    for uuid in uuids:
        state = with_process(state, Process(pid=1, gpu=uuid, memory=MiB(5)))

    ampere, hopper, plain = (set_mode(state, uuid, on=True) for uuid in uuids)

    assert isinstance(ampere, State)
    assert ampere.gpus[0].mig == MigMode(current=False, pending=True)
    assert reboot(ampere, "boot-2").gpus[0].mig == MigMode(current=True, pending=True)
    assert isinstance(hopper, DriverRefusal)
    assert hopper.fault is Fault.IN_USE
    assert isinstance(plain, DriverRefusal)
    assert plain.fault is Fault.NOT_SUPPORTED
    with_instance = create_whole_instance(machine(A100), 0, 0).state
    assert isinstance(set_mode(with_instance, gpu_of(with_instance), on=False), DriverRefusal)
    idle = set_mode(machine(H200, mig=False), gpu_of(machine(H200)), on=True)
    assert isinstance(idle, State)
    assert idle.gpus[0].mig == MigMode(current=True, pending=True)


def test_a_changed_fleet_keeps_what_is_alike() -> None:
    """GPUs that were built otherwise, added or taken away lose nothing of the others."""
    old = create_whole_instance(machine(A100, A30), 9, 4).state

    kept = refit(old, machine(A100, H200, T4))

    assert kept.gpus[0] == old.gpus[0]
    assert [gpu.chip.model for gpu in kept.gpus] == [A100, H200, T4]
    assert kept.births == old.births


def test_a_changed_fleet_decides_which_gpus_are_faulty() -> None:
    """An operator who writes so of a GPU at work sees it leave service, with what runs on it."""
    old = create_whole_instance(machine(A100), 9, 4).state
    fresh = machine(A100)
    faulty = replace(fresh, gpus=(replace(fresh.gpus[0], faulty=True),))

    kept = refit(old, faulty)

    assert kept.gpus == (replace(old.gpus[0], faulty=True),)
    assert reboot(kept, "boot-2").gpus[0].faulty


def test_events_are_kept_for_late_readers_up_to_a_bound() -> None:
    """A reader gets what it has not seen; one that was away for too long gets the newest."""
    state = machine(T4)
    for xid in range(1000):
        state = add_event(state, DriverEvent(gpu=None, xid=xid))

    assert [e.xid for e in events_since(state, 997)] == [997, 998, 999]
    assert events_since(state, 1000) == ()
    assert events_since(state, 5000) == ()
    assert 100 <= len(events_since(state, 0)) < 1000
    assert events_since(state, 0)[-1].xid == 999


def test_usage_never_exceeds_the_gpu() -> None:
    """Neither memory nor compute, whatever processes claim; unknown memory counts nothing."""
    state = machine(T4)
    gpu = gpu_of(state)
    for pid, memory in ((1, MiB(9000)), (2, MiB(9000)), (3, None)):
        state = with_process(state, Process(pid=pid, gpu=gpu, memory=memory, utilization=80))

    answer = find_gpu(state, gpu)

    assert not isinstance(answer, DriverRefusal)
    assert (usage(answer).memory, usage(answer).utilization) == (15360, 100)
