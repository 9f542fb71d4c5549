"""A GPU leaves service when something means it, and returns only when that is over for good."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.driver.driver import DriverEvent, Fault, Recovery
from agent.health.health import (
    NO_CONDITIONS,
    Conditions,
    HealthObservation,
    HealthPolicy,
    HealthTiming,
    next_conditions,
)

A, B = "GPU-a", "GPU-b"
WELL: Mapping[str, Fault | None] = {A: None, B: None}
TIMING = HealthTiming(misses=3, quiet=300, well=30, longest=480, forgotten=3600)
POLICY = HealthPolicy(timing=TIMING)
STEP = 10.0  # seconds between rounds

Round = tuple[tuple[int, ...], Fault | None]  # XIDs and the answer of GPU A


def conditions_after(
    rounds: Sequence[Round], start: Conditions = NO_CONDITIONS, *, now: float = 0
) -> Conditions:
    return history(rounds, start, now=now)[-1]


def history(
    rounds: Sequence[Round], start: Conditions = NO_CONDITIONS, *, now: float = 0
) -> list[Conditions]:
    states = [start]
    for n, (xids, fault) in enumerate(rounds):
        events = tuple(DriverEvent(gpu=A, xid=xid) for xid in xids)
        probes = {A: fault, B: None}
        observation = HealthObservation(events=events, probes=probes)
        states.append(next_conditions(states[-1], observation, now=now + n * STEP, policy=POLICY))
    return states


def seconds(count: float) -> list[Round]:
    return [((), None)] * int(count / STEP + 1)


def test_a_gpu_that_answers_is_in_service() -> None:
    """Nothing seen is nothing wrong."""
    assert [
        c.why
        for c in next_conditions(NO_CONDITIONS, HealthObservation(probes=WELL), now=0).values()
    ] == [
        None,
        None,
    ]


@given(st.lists(st.sampled_from([13, 31, 43, 45, 68, 94, 109]), max_size=20))
def test_a_tenants_errors_take_nothing_out_of_service(xids: list[int]) -> None:
    """However many of them there are."""
    assert conditions_after([(tuple(xids), None)] * 3)[A].why is None


def test_a_reason_names_the_error_and_the_cure() -> None:
    """A person who reads it knows what to look up and what to do."""
    assert conditions_after([((79,), None)])[A].why == (
        "Xid 79 (GPU has fallen off the bus): the GPU needs a reset or the node a reboot"
    )
    assert (
        conditions_after([((74,), None)])[A].why
        == "Xid 74 (NVLink error): out of service until 5 min pass without another"
    )


def test_only_the_gpu_that_reported_is_concerned() -> None:
    """One GPU's error is not its neighbour's, unless the event names nobody."""
    assert conditions_after([((79,), None)])[B].why is None

    everybody = next_conditions(
        NO_CONDITIONS,
        HealthObservation(events=(DriverEvent(gpu=None, xid=119),), probes=WELL),
        now=0,
    )

    assert all(condition.why for condition in everybody.values())


def test_a_broken_gpu_stays_out_however_well_it_answers() -> None:
    """Time does not end what only a reset ends."""
    assert conditions_after([((95,), None), *seconds(100_000)])[A].why is not None


def test_a_reset_is_noticed_by_its_absence() -> None:
    """A GPU that was lost and answers again has been reset; after a trial it is in service."""
    rounds: list[Round] = [((79,), None), ((), Fault.LOST), ((), Fault.LOST)]

    states = history([*rounds, *seconds(TIMING.well)])

    assert states[-2][A].why is not None
    assert states[-1][A].why is None


def test_an_error_in_the_round_of_the_return_takes_it_out_again() -> None:
    """A GPU that answers again has been reset, which ends what was reported before, not now."""
    lost: list[Round] = [((79,), None), ((), Fault.LOST)]
    returned: list[Round] = [((95,), None), *seconds(10_000)]

    assert conditions_after([*lost, *seconds(TIMING.well)])[A].why is None
    assert conditions_after([*lost, *returned])[A].latched == 95
    assert conditions_after([*lost, *returned])[A].why is not None


def test_an_error_in_the_round_of_the_drivers_all_clear_takes_it_out_again() -> None:
    """The driver's word that nothing is needed ends what was reported before it, not with it."""
    state = NO_CONDITIONS
    for xids, needs, now in (((79,), Recovery.RESET, 0), ((95,), Recovery.NOTHING, 10)):
        events = tuple(DriverEvent(gpu=A, xid=xid) for xid in xids)
        observation = HealthObservation(events=events, probes=WELL, needs={A: needs})
        state = next_conditions(state, observation, now=now, policy=POLICY)

    assert state[A].latched == 95
    assert state[A].why is not None


@pytest.mark.parametrize("needed", [Recovery.RESET, Recovery.REBOOT])
def test_the_drivers_recovery_report_decides(needed: Recovery) -> None:
    """Out of service while it says that something is needed; then the error before is over too."""
    state = conditions_after([((95,), None)])
    for needs, now in ((needed, 10), (Recovery.NOTHING, 20), (Recovery.NOTHING, 50)):
        assert state[A].why is not None
        observation = HealthObservation(probes=WELL, needs={A: needs, B: None})
        state = next_conditions(state, observation, now=now, policy=POLICY)

    assert state[A].why is None


def test_a_driver_that_needs_nothing_does_not_end_an_error() -> None:
    """Not every error that only a reset ends makes it say so."""
    state = conditions_after([((119,), None)])

    for now in (1e6, 2e6):
        observation = HealthObservation(probes=WELL, needs={A: Recovery.NOTHING})
        state = next_conditions(state, observation, now=now, policy=POLICY)

    assert state[A].why is not None


def test_an_error_that_passes_is_over_when_it_is_quiet() -> None:
    """The quiet time begins anew with each further error."""
    once: list[Round] = [((74,), None), *seconds(TIMING.quiet - STEP)]

    assert conditions_after([*once, *seconds(TIMING.well)])[A].why is None
    assert (
        conditions_after([*once, ((74,), None), *seconds(TIMING.quiet - STEP)])[A].why is not None
    )


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.OTHER, Fault.ABSENT])
def test_one_missed_probe_is_forgiven(fault: Fault) -> None:
    """A driver may be busy once; three times in a row it is a failure."""
    missed: Round = ((), fault)

    assert conditions_after([missed, missed])[A].why is None
    assert conditions_after([missed, missed, ((), None), missed, missed])[A].why is None
    assert conditions_after([missed, missed, missed])[A].why is not None


@pytest.mark.parametrize("fault", [Fault.NOT_SUPPORTED, Fault.NO_PERMISSION])
def test_a_refusal_is_an_answer(fault: Fault) -> None:
    """A driver that cannot do what a probe asks for is well."""
    assert conditions_after([((), fault)] * 10)[A].why is None


def test_a_lost_gpu_is_out_at_once() -> None:
    """The driver says itself that it is gone: there is nothing to wait for."""
    assert conditions_after([((), Fault.LOST)])[A].why is not None


def test_time_outs_are_no_reset() -> None:
    """A broken GPU does not come back because the driver was slow for a while."""
    slow: list[Round] = [((), Fault.UNAVAILABLE)] * 10

    assert conditions_after([((95,), None), *slow, *seconds(10_000)])[A].why is not None


def test_a_missed_probe_begins_the_trial_anew() -> None:
    """Once is no failure, but it is not the good conduct that a trial asks for either."""
    almost: list[Round] = [((), Fault.LOST), *seconds(TIMING.well - STEP)]
    missed: Round = ((), Fault.UNAVAILABLE)

    assert conditions_after([*almost, ((), None)])[A].why is None
    assert conditions_after([*almost, missed])[A].why is not None
    assert conditions_after([*almost, missed, *seconds(TIMING.well - STEP)])[A].why is not None
    assert conditions_after([*almost, missed, *seconds(TIMING.well)])[A].why is None


def test_each_relapse_makes_the_trial_longer() -> None:
    """Until the longest; and a GPU that was well for an hour has a clean slate."""
    condition, waits, now = NO_CONDITIONS, [], 0.0
    for _ in range(7):
        condition = next_conditions(
            condition, HealthObservation(probes={A: Fault.LOST}), now=now, policy=POLICY
        )
        began = now
        while condition[A].why is not None:
            now += STEP
            condition = next_conditions(
                condition, HealthObservation(probes={A: None}), now=now, policy=POLICY
            )
        waits.append(now - began - STEP)

    rested = next_conditions(
        condition, HealthObservation(probes={A: None}), now=now + 3600, policy=POLICY
    )

    assert waits == [30, 60, 120, 240, 480, 480, 480]
    assert rested[A].relapses == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from([(), (), (), (74,), (13,), (79,)]),
            st.sampled_from([None, None, None, Fault.LOST, Fault.UNAVAILABLE, Fault.ABSENT]),
        ),
        max_size=60,
    )
)
def test_a_gpu_never_returns_in_less_than_its_trial(rounds: list[Round]) -> None:
    """Whatever happens, it was well in every round of the trial before it came back."""
    states = history(rounds)
    for n in range(1, len(states)):
        was, now = states[n - 1].get(A), states[n][A]
        if was is not None and was.why is not None and now.why is None:
            trial = rounds[max(0, n - 1 - int(TIMING.well / STEP)) : n]
            assert all(fault is None and xids in {(), (13,)} for xids, fault in trial)


@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.sampled_from([None, Fault.LOST])), min_size=20, max_size=40
    )
)
def test_a_flapping_gpu_hardly_flaps_the_inventory(runs: list[tuple[int, Fault | None]]) -> None:
    """In an hour of any ups and downs, service changes a few times only."""
    rounds: list[Round] = [((), fault) for count, fault in runs for _ in range(count)]
    shown = [state[A].why is None for state in history(rounds[:360])[1:]]

    changes = sum(before != now for before, now in pairwise(shown))

    assert changes <= 2 * 9


def test_a_gpu_that_is_not_probed_any_more_is_forgotten() -> None:
    """One that was taken out of the machine leaves nothing behind."""
    assert set(
        next_conditions(
            conditions_after([((79,), None)]), HealthObservation(probes={B: None}), now=0
        )
    ) == {B}


def test_the_clock_may_stand_still() -> None:
    """Rounds at the same moment add nothing to a trial."""
    state = conditions_after([((), Fault.LOST)])

    for _ in range(10):
        state = next_conditions(state, HealthObservation(probes=WELL), now=0, policy=POLICY)

    assert state[A].why is not None
    assert state[A] == replace(state[A], well_since=0)
