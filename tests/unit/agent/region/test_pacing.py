"""Pacing: a container that the library does not hold computes its promise on average."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.region.decode import Region
from agent.region.feedback import SharingContainer, flags_by_container
from agent.region.layout import BY_NAME
from agent.region.pacing import (
    CALM_SECONDS,
    LONGEST_LOOK,
    LONGEST_WAIT,
    PATIENCE,
    TOLERANCE,
    UNHELD_LOOKS,
    ComputeAccounts,
)
from allocator.model.request import Priority

LOOK = 1.8  # seconds between two looks
WINDOW = 2.0  # seconds that the driver's figure is an average of
TICK = 0.1


def container(used: int | None, promise: int | None = 30, *, layout: str = "E") -> SharingContainer:
    region = Region(
        layout=BY_NAME[layout],
        uuids=(),
        limits=(0,) * 16,
        cores=(promise or 100,) * 16,
        slots=(),
        utilization_switch=1,
        recent_kernel=0,
        priority=Priority.LOW,
        last_kernel=None,
    )
    return SharingContainer(
        gpus=frozenset({"0"}),
        priority=Priority.LOW,
        region=region,
        live=True,
        utilization=used,
        cores=promise,
    )


@dataclass
class Program:
    """A program that would use *demand* percent of a GPU, under looks of the agent."""

    promise: int
    demand: Callable[[float], float]
    held: bool = True  # whether its launches can be made to wait
    now: float = 1000.0
    accounts: ComputeAccounts = field(default_factory=ComputeAccounts)
    used: list[float] = field(default_factory=list)  # in each tick
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=int(WINDOW / TICK)))
    waited: int = 0  # looks

    def run(self, seconds: float) -> float:
        """Let time pass, and return the percent that it used on average."""
        self.used.clear()
        for tick in range(int(seconds / TICK)):
            waits = "a" in self.accounts.waiting and self.held
            now_used = 0.0 if waits else self.demand(self.now)
            self.used.append(now_used)
            self.recent.append(now_used)
            self.now += TICK
            if tick % int(LOOK / TICK) == 0:
                self.look(round(sum(self.recent) / len(self.recent)))
        return sum(self.used) / len(self.used)

    def look(self, told: int | None) -> None:
        self.accounts = self.accounts.advance({"a": container(told, self.promise)}, self.now)
        self.waited += "a" in self.accounts.waiting


@pytest.mark.parametrize("promise", [1, 5, 10, 25, 30, 50, 75, 90, 99])
def test_a_greedy_program_computes_its_promise_on_average(promise: int) -> None:
    """Over a minute, once the agent has lost its patience."""
    program = Program(promise, lambda _: 100.0)
    program.run(PATIENCE / (100 - promise) + 2 * LOOK + LONGEST_WAIT)

    average = program.run(120)

    assert promise - TOLERANCE <= average <= promise + TOLERANCE


@given(st.integers(1, 99), st.data())
def test_whoever_keeps_to_its_promise_never_waits(promise: int, data: st.DataObject) -> None:
    """Whatever it does below that."""
    program = Program(promise, lambda _: data.draw(st.integers(0, promise)))

    program.run(20)

    assert program.waited == 0


def test_bursts_that_the_library_evens_out_are_left_to_it() -> None:
    """Its limit is an average too: 1.3 seconds at full pace, and three without."""
    program = Program(30, lambda now: 100.0 if now % 4.3 < 1.3 else 0.0)

    program.run(300)

    assert program.waited == 0


def test_a_program_that_becomes_modest_is_left_to_the_library_again() -> None:
    """After a minute in which it did not wait; then the agent has patience anew."""
    greedy = True
    program = Program(80, lambda _: 100.0 if greedy else 20.0)
    program.run(60)
    assert program.waited > 0
    greedy = False
    program.run(CALM_SECONDS + LONGEST_WAIT)
    waited, greedy = program.waited, True

    program.run(PATIENCE / 20 - 2 * LOOK)

    assert program.waited == waited


def test_idle_time_is_not_saved_up() -> None:
    """A container that was idle for an hour waits as soon as any other."""
    idle = Program(30, lambda now: 0.0 if now < 4600 else 100.0)
    idle.run(3600)
    busy = Program(30, lambda _: 100.0)

    assert idle.run(30) == pytest.approx(busy.run(30), abs=2)


def test_a_program_that_cannot_be_held_is_told() -> None:
    """It replays CUDA graphs, which are launched past the library."""
    program = Program(30, lambda _: 100.0, held=False)
    program.run(PATIENCE / 70 + (UNHELD_LOOKS + 3) * LOOK)
    assert program.accounts.unheld == {"a"}

    program.held = True
    program.run(LONGEST_WAIT)

    assert not program.accounts.unheld


@pytest.mark.parametrize("promise", [30, 84])
def test_a_program_that_waits_is_not_told(promise: int) -> None:
    """What it launched before still shows in the driver's average for a look or two."""
    program = Program(promise, lambda _: 100.0)
    told = []
    for _ in range(100):
        program.run(LOOK)
        told.append(program.accounts.unheld)

    assert program.waited > 0
    assert not any(told)


@pytest.mark.parametrize(
    ("promise", "layout"), [(None, "E"), (30, "C")], ids=["no-limit", "runs-free-when-alone"]
)
def test_who_has_no_limit_or_another_one_is_not_paced(promise: int | None, layout: str) -> None:
    """A whole GPU's compute is nobody's promise, and older libraries are steered by the switch."""
    accounts = ComputeAccounts()
    for second in range(100):
        greedy = container(100, promise, layout=layout)
        accounts = accounts.advance({"a": greedy}, 1000.0 + second)

    assert not accounts.by_key


@pytest.mark.parametrize("step", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize("used", [0, 100])
def test_a_clock_that_is_set_proves_nothing(used: int, step: float) -> None:
    """One look stands for a few seconds at most."""
    accounts = ComputeAccounts()
    accounts = accounts.advance({"a": container(used)}, 10_000.0)
    accounts = accounts.advance({"a": container(used)}, 10_000.0 + step)

    assert not accounts.waiting
    [account] = accounts.by_key.values()
    assert 0 <= account.beyond <= max(0, used - 30) * LONGEST_LOOK


def test_two_looks_at_one_moment_hold_nobody() -> None:
    """Who has made up for everything goes on."""
    program = Program(30, lambda _: 100.0)
    program.run(60)
    program.demand = lambda _: 0.0
    program.run(LONGEST_WAIT + 2 * LOOK)
    for _ in range(2):
        program.look(0)

    assert not program.accounts.waiting


def test_nobody_waits_while_the_driver_is_silent() -> None:
    """It may be for hours. What was used before is not forgotten, and nothing is added."""
    program = Program(30, lambda _: 100.0)
    program.look(None)
    assert not program.accounts.waiting
    program.run(60)
    while "a" not in program.accounts.waiting:
        program.run(LOOK)
    before = program.accounts.by_key["a"].beyond
    for _ in range(3):
        program.now += LOOK
        program.look(None)
        assert not program.accounts.waiting
        assert program.accounts.by_key["a"].beyond == before
    program.now += LOOK
    program.look(100)

    assert program.accounts.waiting == {"a"}


def test_who_waits_may_not_launch() -> None:
    """Whoever is active beside it."""
    greedy = container(100)
    flags = flags_by_container({"a": greedy, "b": greedy}, {"a", "b"}, {"a"})

    assert [flags[key].recent < 0 for key in "ab"] == [True, False]
