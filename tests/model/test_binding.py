"""Hook and reconciler under random schedules: a GPU is promised once, and used once, whoever binds.

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
from tests.model.lines import blind, forgetful, stale, unshut, untested
from tests.model.replicas import Fault, Task, Wiring
from tests.model.run import Run
from tests.model.world import Api, StillLoop, World

FAULTLESS = Fault()
SCHEDULES = int(os.environ.get("VGPU_SCHEDULES", "1000"))


def scheduled(seeds: Sequence[int], wiring: Wiring, fault: Fault = FAULTLESS) -> int:
    """Run one schedule for each seed and return how many Bindings landed."""
    landed = 0

    async def everything() -> None:
        nonlocal landed
        loop: Any = asyncio.get_running_loop()
        for seed in seeds:
            rng = random.Random(seed)  # noqa: S311 -- a schedule that can be repeated
            run = Run(World(rng=rng, loop=loop), wiring, fault)
            run.start()
            try:
                await run.go()
            except Exception as error:
                raise BrokenError(f"seed {seed}: {error}") from error
            finally:
                await ended(run)
            landed += run.landed

    with asyncio.Runner(loop_factory=StillLoop) as runner:
        runner.run(everything())
    return landed


async def ended(run: Run) -> None:
    """Leave no task behind."""
    tasks: list[Task] = [*run.attempts, *(t for one in run.replicas for t in one.tasks)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def honest(world: World) -> Api:
    return world


@pytest.mark.timeout(max(300, SCHEDULES))  # about 20 ms each, and the machine may be busy
def test_every_pod_is_promised_once() -> None:
    """No schedule breaks an invariant: crashes, losses, rivals, reboots, lost ledgers, bypasses."""
    landed = scheduled(range(SCHEDULES), honest)

    assert landed > SCHEDULES  # far from every schedule ends in refusals


@pytest.mark.parametrize(
    ("wiring", "fault", "invariant"),
    [
        pytest.param(untested, FAULTLESS, "S[135] ", id="no-test-in-the-patch"),
        pytest.param(forgetful, FAULTLESS, "(S[135]|L2) ", id="own-entry-not-reused"),
        pytest.param(
            honest, Fault(reconciler=stale), "S[57] ", id="removal-without-the-second-get"
        ),
        pytest.param(honest, Fault(reconciler=unshut), "S7", id="free-where-nobody-can-tell"),
        pytest.param(blind, FAULTLESS, "S[13] ", id="in-use-without-an-entry-not-seen"),
        pytest.param(honest, Fault(hasty=True), "S7", id="free-before-held-is-clear"),
        pytest.param(honest, Fault(tidy=True), "S5 ", id="release-on-the-other-node"),
        pytest.param(honest, Fault(careless=True), "S5 .* with 0 entries", id="no-uid"),
    ],
)
def test_what_is_broken_is_noticed(wiring: Wiring, fault: Fault, invariant: str) -> None:
    """The same schedules catch an implementation that gets one thing wrong."""
    with pytest.raises(BrokenError, match=rf"seed \d+: {invariant}"):
        scheduled(range(SCHEDULES), wiring, fault)
