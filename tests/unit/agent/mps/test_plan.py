"""The steps of one GPU into mode mps, in it and out of it."""

from dataclasses import replace

import pytest

from agent.driver.driver import ComputeMode
from agent.mps.commands import ServerState
from agent.mps.limits import NOBODY, ServerLimits
from agent.mps.plan import (
    FAULT_GRACE,
    FAULT_LIMIT,
    LINGER_LIMIT,
    ForgetMode,
    KillDaemon,
    MpsDesired,
    MpsIdle,
    MpsMemory,
    MpsObservation,
    MpsServer,
    QuitDaemon,
    Ready,
    RecordMode,
    SetLimits,
    SetMode,
    StartDaemon,
    StartServer,
    TerminateClients,
    Waiting,
    memory_after,
    next_step,
)
from allocator.model.units import CorePercent, MiB

LIMITS = ServerLimits(memory=MiB(4096), threads=CorePercent(50))
WANTED = MpsDesired(mps=True, limits=LIMITS)
NOT_WANTED = MpsDesired()
FREE = MpsObservation(compute=ComputeMode.DEFAULT)
OURS = MpsMemory(before=ComputeMode.DEFAULT)
SERVER = MpsServer(pid=17, state=ServerState.ACTIVE, clients=(18,))
SERVING = MpsObservation(
    compute=ComputeMode.EXCLUSIVE_PROCESS, alive=True, servers=(SERVER,), strangers=()
)
TOLD = MpsMemory(
    before=ComputeMode.DEFAULT, daemon_limits=LIMITS, server_limits={SERVER.pid: LIMITS}
)


def step(
    seen: MpsObservation, wanted: MpsDesired, memory: MpsMemory, *, now: float = 0.0
) -> object:
    return next_step(seen, wanted, memory, now=now)


def test_a_gpu_enters_the_mode_in_this_order() -> None:
    """The journal comes before the compute mode, and that before any process of ours."""
    exclusive = replace(FREE, compute=ComputeMode.EXCLUSIVE_PROCESS)
    alive = replace(exclusive, alive=True)
    told = replace(OURS, daemon_limits=LIMITS)
    assert step(FREE, WANTED, MpsMemory()) == RecordMode(ComputeMode.DEFAULT)
    assert step(FREE, WANTED, OURS) == SetMode(ComputeMode.EXCLUSIVE_PROCESS)
    assert step(exclusive, WANTED, OURS) == StartDaemon()
    assert step(alive, WANTED, OURS) == SetLimits(LIMITS, ())
    assert step(alive, WANTED, told) == StartServer()
    assert step(SERVING, WANTED, TOLD) == Ready(LIMITS)


def test_limits_stand_before_there_is_a_server() -> None:
    """No client ever meets a server without limits, not even after a restart of the agent."""
    alive = MpsObservation(compute=ComputeMode.EXCLUSIVE_PROCESS, alive=True)
    assert isinstance(step(alive, WANTED, OURS), SetLimits)
    assert step(SERVING, WANTED, OURS) == SetLimits(LIMITS, (17,))


def test_another_promise_is_told_to_the_running_server_too() -> None:
    """A change of the default alone reaches only the next server."""
    more = replace(WANTED, limits=ServerLimits(memory=MiB(8192), threads=CorePercent(50)))
    assert step(SERVING, more, TOLD) == SetLimits(more.limits, (17,))


def test_a_server_that_nobody_has_told_is_told() -> None:
    """The daemon's default may be right where a server that it started before it is not."""
    old = replace(TOLD, server_limits={SERVER.pid: NOBODY})
    assert step(SERVING, WANTED, old) == SetLimits(LIMITS, (17,))
    assert step(SERVING, WANTED, replace(TOLD, server_limits={})) == SetLimits(LIMITS, (17,))


def test_a_server_that_is_starting_takes_nobody() -> None:
    """A start goes on only once the server works."""
    starting = replace(SERVER, state=ServerState.INITIALIZING)
    assert isinstance(step(replace(SERVING, servers=(starting,)), WANTED, TOLD), Waiting)


def test_a_gpu_in_use_is_not_taken() -> None:
    """Neither processes nor entries of another mode are cut off."""
    busy = replace(FREE, strangers=(5, 6))
    assert "pid 5, 6" in str(step(busy, WANTED, MpsMemory()))
    others = replace(WANTED, others=True)
    assert isinstance(step(FREE, others, MpsMemory()), Waiting)
    prohibited = step(replace(FREE, compute=ComputeMode.PROHIBITED), WANTED, MpsMemory())
    assert isinstance(prohibited, Waiting)
    assert "PROHIBITED" in prohibited.why


def test_a_compute_mode_that_somebody_reset_is_set_again() -> None:
    """Without the guard a client that misses the daemon would run without limits."""
    reset = replace(SERVING, compute=ComputeMode.DEFAULT)
    assert step(reset, WANTED, TOLD) == SetMode(ComputeMode.EXCLUSIVE_PROCESS)


def test_a_server_recovers_from_a_fault_within_bounds() -> None:
    """First its clients may end by themselves, then they are terminated, then the daemon is."""
    faulty = replace(SERVING, servers=(replace(SERVER, state=ServerState.FAULT),))
    since = replace(TOLD, fault_since=100.0)
    assert isinstance(step(faulty, WANTED, since, now=100.0 + FAULT_GRACE - 1), Waiting)
    ended = step(faulty, WANTED, since, now=100.0 + FAULT_GRACE)
    assert isinstance(ended, TerminateClients)
    assert ended.clients == ((17, 18),)
    assert isinstance(step(faulty, WANTED, since, now=100.0 + FAULT_LIMIT), KillDaemon)
    empty = replace(faulty, servers=(replace(SERVER, state=ServerState.FAULT, clients=()),))
    assert isinstance(step(empty, WANTED, since, now=100.0 + FAULT_GRACE), Waiting)


def test_a_daemon_that_does_not_answer_is_not_ready() -> None:
    """Nobody starts on a daemon that is only there."""
    assert step(replace(SERVING, why_silent="no answer"), WANTED, TOLD) == Waiting("no answer")


def test_a_gpu_leaves_the_mode_in_this_order() -> None:
    """The compute mode is put back when the daemon is gone, and the journal is cleared last."""
    idle = replace(SERVING, servers=(replace(SERVER, clients=()),))
    dead = MpsObservation(compute=ComputeMode.EXCLUSIVE_PROCESS)
    assert step(idle, NOT_WANTED, TOLD) == QuitDaemon()
    assert isinstance(step(idle, NOT_WANTED, replace(TOLD, refused_quit=True)), KillDaemon)
    assert step(dead, NOT_WANTED, OURS) == SetMode(ComputeMode.DEFAULT)
    assert step(FREE, NOT_WANTED, OURS) == ForgetMode()
    assert step(FREE, NOT_WANTED, MpsMemory()) == MpsIdle()


def test_clients_without_an_entry_may_end_by_themselves_for_a_while() -> None:
    """A pod that ends is not hit by the end of its daemon."""
    since = replace(TOLD, leaving_since=100.0)
    assert isinstance(step(SERVING, NOT_WANTED, since, now=100.0 + LINGER_LIMIT - 1), Waiting)
    assert step(SERVING, NOT_WANTED, since, now=100.0 + LINGER_LIMIT) == QuitDaemon()


@pytest.mark.parametrize("before", [ComputeMode.PROHIBITED, ComputeMode.EXCLUSIVE_PROCESS])
def test_what_is_put_back_is_what_was_there(before: ComputeMode) -> None:
    """The node's owner may have chosen another compute mode than the default."""
    dead = MpsObservation(compute=ComputeMode.EXCLUSIVE_PROCESS)
    memory = MpsMemory(before=before)
    expected = ForgetMode() if before is ComputeMode.EXCLUSIVE_PROCESS else SetMode(before)
    assert step(dead, NOT_WANTED, memory) == expected


def test_a_gpu_that_was_never_ours_is_left_alone() -> None:
    """An EXCLUSIVE_PROCESS that somebody else has set stays."""
    foreign = MpsObservation(compute=ComputeMode.EXCLUSIVE_PROCESS, strangers=(5,))
    assert step(foreign, NOT_WANTED, MpsMemory()) == MpsIdle()
    assert NOT_WANTED.limits == NOBODY


def test_one_server_that_works_is_enough() -> None:
    """Another one may be starting beside it."""
    starting = MpsServer(pid=27, state=ServerState.INITIALIZING, clients=())
    both = replace(SERVING, servers=(starting, SERVER))
    told = replace(TOLD, server_limits={17: LIMITS, 27: LIMITS})

    assert step(both, WANTED, told) == Ready(LIMITS)


def test_four_processes_in_the_way_are_named() -> None:
    """Of a hundred, the first ones are enough to find the others."""
    found = step(replace(FREE, strangers=tuple(range(101, 201))), WANTED, MpsMemory())

    assert isinstance(found, Waiting)
    assert "(pid 101, 102, 103, 104)" in found.why


def test_a_daemon_that_does_not_answer_is_not_asked_to_quit() -> None:
    """It would not hear that either."""
    silent = replace(SERVING, servers=(), why_silent="no answer within 5 seconds")

    assert isinstance(step(silent, NOT_WANTED, TOLD), KillDaemon)
    assert step(replace(silent, why_silent=""), NOT_WANTED, TOLD) == QuitDaemon()


def test_what_begins_is_dated_once_and_what_is_over_is_forgotten() -> None:
    """Otherwise a fault or a client that lingers would never have lasted long enough."""
    fault = replace(SERVING, servers=(replace(SERVER, state=ServerState.FAULT),))

    def after(memory: MpsMemory, seen: MpsObservation, now: float) -> MpsMemory:
        wanted = NOT_WANTED if seen is fault else WANTED
        return memory_after(memory, seen, wanted, before=memory.before, now=now)

    first = after(TOLD, fault, 100.0)
    later = after(first, fault, 170.0)
    well = after(later, SERVING, 180.0)

    assert (first.leaving_since, first.fault_since) == (100.0, 100.0)
    assert (later.leaving_since, later.fault_since) == (100.0, 100.0)
    assert (well.leaving_since, well.fault_since) == (None, None)
    assert well.daemon_limits == LIMITS
    assert well.server_limits == {17: LIMITS}
    dead = after(well, FREE, 190.0)
    assert (dead.daemon_limits, dict(dead.server_limits)) == (None, {})
