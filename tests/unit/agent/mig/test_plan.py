"""Cutting: promises get their places, what is not ours or in use is not touched, little goes."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from agent.driver import simulated_machine
from agent.driver.driver import Instance
from agent.driver.simulated_machine import Created, DriverRefusal, State
from agent.mig.instance_state import GpuSituation, LiveInstance, place_of
from agent.mig.journal import Mark
from agent.mig.plan import (
    BlockedBy,
    Create,
    CreateCompute,
    DestroyCompute,
    DestroyInstance,
    Reconfiguration,
    plan,
)
from allocator.model.board import Placement
from tests.builders.model import A100_40, PRO_6000, board, placed
from tests.fakes.driver import machine
from tests.harness.simulated_boards import GPU, Scene, made, on, placements, scenes


def perform(state: State, reconfigurations: tuple[Reconfiguration, ...]) -> State:
    """Perform the steps on simulated hardware, which must not refuse any."""
    for reconfiguration in reconfigurations:
        without_compute: Instance | None = None
        for step in reconfiguration.steps:
            answer: State | Created | DriverRefusal
            match step:
                case DestroyCompute(instance):
                    assert instance.compute is not None
                    answer = simulated_machine.destroy_compute(
                        state, GPU, number=instance.id, compute=instance.compute
                    )
                case DestroyInstance(instance):
                    answer = simulated_machine.destroy_instance(state, GPU, instance.id)
                case Create(place):
                    profile = place.profile.id
                    answer = simulated_machine.create_instance(
                        state, GPU, profile=profile, start=place.start
                    )
                case CreateCompute(_, instance):
                    target = instance or without_compute
                    assert target is not None
                    answer = simulated_machine.create_compute(state, GPU, target.id)
            assert not isinstance(answer, DriverRefusal), (step, answer)
            if isinstance(answer, Created):
                without_compute, state = answer.instance, answer.state
            else:
                state = answer
    return state


def instance_at(state: State, place: Placement) -> Instance | None:
    at = (place.profile.id, place.start)
    return next((i for i in on(state) if (i.profile, i.start) == at), None)


def is_immovable(live: LiveInstance) -> bool:
    """Say, in other words than the code, whether an instance must survive."""
    return not live.ours or bool(live.pids) or live.held or live.promised


def is_obstructed(situation: GpuSituation, place: Placement) -> bool:
    """Say by the rules alone whether a promise has to wait."""
    exact = situation.instance_at(place)
    if exact is not None:
        return not exact.ours
    kept = [live for live in situation.live_instances if is_immovable(live)]
    alike = [live for live in kept if live.placed and live.placed.profile == place.profile]
    limit = place.profile.limit
    exhausted = limit is not None and len(alike) >= limit
    return exhausted or any(live.mask(situation.board) & place.mask for live in kept)


@given(scenes())
def test_every_promise_gets_its_place_unless_it_is_obstructed(scene: Scene) -> None:
    """After the steps a promised place has a whole instance, exactly if nothing fixed was there."""
    planned = plan(scene.situation)

    state = perform(scene.state, planned.reconfigurations)

    blocked = {live.placed for live in planned.blocked}
    event(f"{len(blocked)} of {len(scene.situation.promised)} blocked")
    assert blocked == {p for p in scene.situation.promised if is_obstructed(scene.situation, p)}
    for place in scene.situation.promised - blocked:
        there = instance_at(state, place)
        assert there is not None
        assert there.uuid is not None


@given(scenes())
def test_what_is_fixed_is_never_touched(scene: Scene) -> None:
    """Instances of others, in use, held or promised are afterwards as they were."""
    state = perform(scene.state, plan(scene.situation).reconfigurations)

    for live in scene.situation.live_instances:
        whole = live.instance.uuid is not None
        if is_immovable(live) and (whole or not live.promised):
            assert live.instance in on(state)


@given(scenes())
def test_what_is_ready_is_what_stood_there(scene: Scene) -> None:
    """An instance that stands where it is promised keeps its UUID, and is told as ready."""
    planned = plan(scene.situation)

    for place, instance in planned.ready.items():
        assert instance_at(scene.state, place) == instance
        assert instance.uuid is not None


@given(scenes())
def test_no_more_is_destroyed_than_must_be(scene: Scene) -> None:
    """No smaller set of idle instances makes room for the same promises."""
    planned = plan(scene.situation)
    doomed = {
        s.instance
        for c in planned.reconfigurations
        for s in c.steps
        if isinstance(s, DestroyInstance)
    }
    unfinished = {o.instance for o in scene.situation.live_instances if o.unfinished and o.idle}
    wanted = [
        cut.placed
        for cut in planned.reconfigurations
        if cut.placed is not None and any(isinstance(s, Create) for s in cut.steps)
    ]
    idle = [
        o.instance
        for o in scene.situation.live_instances
        if o.idle and o.instance not in unfinished
    ]

    fewest = next(
        n
        for n in range(len(idle) + 1)
        if any(fits(scene.state, {*gone, *unfinished}, wanted) for gone in combinations(idle, n))
    )

    assert len(doomed - unfinished) == fewest
    assert unfinished <= doomed


def fits(state: State, gone: set[Instance], wanted: list[Placement]) -> bool:
    """Say whether simulated hardware creates *wanted* once *gone* are destroyed."""
    remaining = tuple(i for i in on(state) if i not in gone)
    grown: State | None = simulated_machine.change_gpu(
        state, GPU, lambda running: replace(running, instances=remaining)
    )
    for place in wanted:
        grown = grown and made(grown, GPU, place)
    return grown is not None


@given(scenes(), st.data())
def test_overlapping_promises_are_not_both_served(scene: Scene, data: st.DataObject) -> None:
    """Whatever the ledger says, two ready or created places share no slot."""
    places = placements(scene.situation.board)
    promised = data.draw(st.frozensets(st.sampled_from(places), max_size=6))

    planned = plan(replace(scene.situation, promised=promised))

    served = [*planned.ready, *(c.placed for c in planned.reconfigurations if c.placed is not None)]
    told = {live.placed for live in planned.blocked}
    assert sum(p.mask for p in served).bit_count() == sum(p.mask.bit_count() for p in served)
    assert len(served) == len(set(served))
    assert told | set(served) == promised


def situation_of(
    *present: tuple[Placement, Mark | None], promised: Placement, held: Placement | None = None
) -> GpuSituation:
    """Build what an agent finds on an A100, where instances are whole."""
    state = machine(A100_40)
    for place, _ in present:
        grown = made(state, GPU, place)
        assert grown is not None
        state = grown
    marks = {
        place_of(instance): replace(mark, uuid=mark.uuid or instance.uuid)
        for instance, (_, mark) in zip(on(state), present, strict=True)
        if mark is not None
    }
    return GpuSituation(
        board=board(A100_40),
        present=on(state),
        marks=marks,
        promised=frozenset({promised}),
        held=frozenset() if held is None else frozenset({held}),
    )


OURS = Mark(pending=False)


@pytest.mark.parametrize(
    ("situation", "cause", "words"),
    [
        pytest.param(
            situation_of((placed("2g.10gb", 0), None), promised=placed("1g.5gb", 0)),
            BlockedBy.FOREIGN,
            "2g.10gb at slot 0) was not created by this agent",
            id="somebody-elses",
        ),
        pytest.param(
            situation_of(
                (placed("2g.10gb", 0), OURS),
                promised=placed("1g.5gb", 0),
                held=placed("2g.10gb", 0),
            ),
            BlockedBy.BUSY,
            "held by a container that may still be running",
            id="held",
        ),
        pytest.param(
            situation_of(
                (placed("1g.5gb", 0), Mark(pending=False, uuid="MIG-x")),
                promised=placed("1g.5gb", 0),
            ),
            BlockedBy.FOREIGN,
            "was not created by this agent",
            id="replaced-by-hand",
        ),
        pytest.param(
            situation_of(promised=placed("1g.24gb", 3, PRO_6000)),
            BlockedBy.IMPOSSIBLE,
            "no such place",
            id="of-another-board",
        ),
    ],
)
def test_a_blocked_promise_names_its_cause(
    situation: GpuSituation, cause: BlockedBy, words: str
) -> None:
    """A promise that has to wait says what stands in its way."""
    (blocked,) = plan(situation).blocked

    assert blocked.cause is cause
    assert words in blocked.why


def test_an_instance_in_use_is_named_with_its_processes() -> None:
    """Who waits for a process is told its pid."""
    situation = situation_of((placed("2g.10gb", 0), OURS), promised=placed("1g.5gb", 0))
    uuid = situation.present[0].uuid
    assert uuid is not None

    (blocked,) = plan(replace(situation, pids_by_instance={uuid: (17, 18)})).blocked

    assert blocked.why.endswith("is still in use by pid 17, 18")
    assert not blocked.is_lasting


def test_without_room_for_engines_all_that_is_idle_makes_way() -> None:
    """Where the driver found no room though slots are free, idle instances elsewhere go too."""
    wanted = placed("1g.5gb", 6)
    situation = situation_of((placed("2g.10gb", 0), OURS), promised=wanted)

    kept = plan(situation).reconfigurations
    cleared = plan(replace(situation, engines_exhausted=frozenset({wanted}))).reconfigurations

    assert [type(step) for step in kept[0].steps] == [Create, CreateCompute]
    assert [type(step) for step in cleared[0].steps] == [
        DestroyCompute,
        DestroyInstance,
        Create,
        CreateCompute,
    ]
