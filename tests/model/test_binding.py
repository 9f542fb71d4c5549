"""The binding hook under random schedules: a pod's GPU is promised exactly once, whoever binds it.

The production code runs as it is; a seeded scheduler decides after every await of every replica
which call goes on. A failure names its seed; ``VGPU_SCHEDULES`` asks for more of them.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.model.invariants import BrokenError
from tests.model.lines import Forgetful, Stale, Untested
from tests.model.run import Run, Task, Wiring
from tests.model.world import StillLoop, World

SCHEDULES = int(os.environ.get("VGPU_SCHEDULES", "1000"))


def scheduled(
    seeds: Sequence[int], wiring: Wiring, *, careless: bool = False, agent: bool = True
) -> int:
    """Run one schedule for each seed and return how many Bindings landed."""
    landed = 0

    async def everything() -> None:
        nonlocal landed
        loop: Any = asyncio.get_running_loop()
        for seed in seeds:
            rng = random.Random(seed)  # noqa: S311 -- a schedule that can be repeated
            world = World(rng=rng, loop=loop)
            run = Run(world=world, wiring=wiring, careless=careless, agent=agent)
            run.start()
            try:
                await run.go()
            except BrokenError as error:
                raise BrokenError(f"seed {seed}: {error}") from error
            finally:
                await ended(run)
            landed += run.landed

    with asyncio.Runner(loop_factory=StillLoop) as runner:
        runner.run(everything())
    return landed


async def ended(run: Run) -> None:
    """Leave no task behind."""
    tasks: list[Task] = [*run.attempts, *(t for replica in run.replicas for t in replica.tasks)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_every_pod_is_promised_once() -> None:
    """No schedule of crashes, losses, doubled reviews and rival schedulers breaks an invariant."""
    landed = scheduled(range(SCHEDULES), lambda world: world)

    assert landed > SCHEDULES  # far from every schedule ends in refusals


@pytest.mark.parametrize(
    ("wiring", "invariant"),
    [
        pytest.param(Untested, "S[135] ", id="no-test-in-the-patch"),
        pytest.param(Forgetful, "S[135] ", id="own-entry-not-reused"),
    ],
)
def test_a_broken_ledger_is_noticed(wiring: Wiring, invariant: str) -> None:
    """The same schedules catch a commit that tests nothing, or that forgets its own entry."""
    with pytest.raises(BrokenError, match=rf"seed \d+: {invariant}"):
        scheduled(range(SCHEDULES), wiring)


def test_a_removal_from_a_cache_is_noticed() -> None:
    """A pod that is not read past all caches may have been bound since."""
    with pytest.raises(BrokenError, match=r"seed \d+: S[57] "):
        scheduled(range(SCHEDULES), Stale)


def test_what_is_freed_too_early_is_noticed() -> None:
    """A pod that is gone from the API server may still have containers on its node."""
    with pytest.raises(BrokenError, match=r"seed \d+: S7"):
        scheduled(range(SCHEDULES), lambda world: world, agent=False)


def test_a_binding_without_uid_is_noticed() -> None:
    """Without the precondition that the hook writes, a pod made anew takes another's place."""
    with pytest.raises(BrokenError, match=r"seed \d+: S5 .* with 0 entries"):
        scheduled(range(SCHEDULES), lambda world: world, careless=True)
