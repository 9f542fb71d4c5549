"""The control plane under random schedules: a GPU is promised once, and used once, whoever binds.

Hook, reconciler, watches, caches, extender, election and waker are the production code; a seeded
scheduler decides after every await of every replica which call goes on, and when each watch learns
what is new. A failure names its seed; ``VGPU_SCHEDULES`` asks for more of them, ``VGPU_FIRST_SEED``
for others.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from msgspec import structs

from allocator.cluster.inventory import Inventory
from allocator.extender.pod import SchedulingPod
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Grant
from allocator.model.units import NO_CORES, WHOLE_GPU
from allocator.request.pod_fields import WatchedPod
from kube.client import ApiClient
from kube.leases import Timing
from kube.watch import PublishUpdates, WatchSource
from tests.model.agents import Bold
from tests.model.cluster import World
from tests.model.faulty_transport import (
    alone,
    blind,
    forgetful,
    hopeful,
    slotless,
    sociable,
    stale,
    uncut,
    uninventoried,
    unshut,
    untested,
    untested_commit,
    unversioned,
)
from tests.model.invariants import BrokenError
from tests.model.mutants import Moody, Rash, Trusting, Undead, Unmoved
from tests.model.pending_calls import StillLoop
from tests.model.quiescence import go
from tests.model.replica_caches import reader
from tests.model.replicas import Fault, Task, Wiring
from tests.model.schedule import Run
from tests.model.seeds import SCHEDULES, SEEDS, SOUND
from tests.model.tenants import gullible
from webhook.admission.context import AdmissionContext
from webhook.binding.batch import Outcome
from webhook.binding.binding_server import BindingHandler
from webhook.binding.decide import BindRequest

PATIENT = pytest.mark.timeout(max(600, SCHEDULES))  # some 80 ms each, where nobody else is busy
FAULTLESS = Fault()
ENDLESS = Timing(duration=10_000)
METAX = 4  # every so many schedules have a node of MetaX's
T = TypeVar("T")
REACHED = (
    "landed",
    "preempted",
    "followed",
    "exchanged",
    "late commits",
    "rebuilt",
    "removed by age",
    "wake-ups",
    "504s",
    "mig chosen",
    "hami-core chosen",
    "of several GPUs",
    "in two containers",
    "full slots",
    "beside foreign memory",
    "shared by gpushare",
    "whole by gpushare",
    "shared by metax",
)


def scheduled(seeds: Sequence[int], wiring: Wiring, fault: Fault = FAULTLESS) -> Counter[str]:
    """Run one schedule for each seed and return how often they came to see what."""
    reached = Counter[str]()

    async def everything() -> None:
        loop: Any = asyncio.get_running_loop()
        for seed in seeds:
            rng = random.Random(seed)  # noqa: S311 -- a schedule that can be repeated
            world = World(
                rng=rng, loop=loop, replaces=fault.most_entries == 1, metax=seed % METAX == 0
            )
            run = Run(world, wiring, fault)
            try:
                await go(run)
            except Exception as error:
                raise BrokenError(f"seed {seed}: {error}") from error
            finally:
                await ended(run)
            reached.update(run.world.past.reached)
            reached.update(run.schedulers.tally)

    with asyncio.Runner(loop_factory=StillLoop) as runner:
        runner.run(everything())
    return reached


async def ended(run: Run) -> None:
    """Leave no task behind."""
    tasks: list[Task] = [*run.schedulers.attempts]
    for one in run.replicas:
        one.die()
        tasks += [*one.tasks, *one.sight.tasks]
    for task in run.schedulers.attempts:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def honest(world: World) -> ApiClient:
    return world


class Blinking(Inventory):
    """Does not notice that something is gone."""

    async def _follow(self, source: WatchSource[T], publish: PublishUpdates[T], kind: str) -> None:
        def seen(changes: Mapping[str, T | None]) -> None:
            publish({key: found for key, found in changes.items() if found is not None})

        await super()._follow(source, seen, kind)


def ranked_anew(found: WatchedPod, raw: bytes) -> SchedulingPod:
    """Read a pod as one that matters less than all others."""
    return replace(reader(found, raw), priority=-1)


def undying(found: WatchedPod, raw: bytes) -> SchedulingPod:
    """Do not see that a pod was deleted."""
    return replace(reader(found, raw), deleting=False)


class Wet(BindingHandler):
    """Commits in dry runs too."""

    async def _commit_or_preview(self, wish: BindRequest, around: AdmissionContext) -> Outcome:
        return await self.commit(wish, around)


class Coreless(BindingHandler):
    """Does not add up the cores that others were promised."""

    def __post_init__(self) -> None:
        known, self.cached_ledger = self.cached_ledger, lambda name: without_cores(known(name))
        super().__post_init__()


def without_cores(ledger: Ledger | None) -> Ledger | None:
    """Return a ledger whose entries are as they are, and whose shared GPUs have all their cores."""
    if ledger is None:
        return None
    gpus = tuple(replace(gpu, grants=tuple(map(_coreless, gpu.grants))) for gpu in ledger.node.gpus)
    return replace(ledger, node=replace(ledger.node, gpus=gpus))


def _coreless(grant: Grant) -> Grant:
    return grant if grant.cores == WHOLE_GPU else structs.replace(grant, cores=NO_CORES)


@PATIENT
def test_every_pod_is_promised_once(reaching: Callable[[Mapping[str, int]], None]) -> None:
    """No schedule breaks an invariant: crashes, losses, rivals, reboots, bypasses, forgeries."""
    reached = scheduled(SOUND, honest)
    reaching(reached)

    assert reached["landed"] > len(SOUND)  # far from every schedule ends in refusals
    assert not [what for what in REACHED if not reached[what]]


@PATIENT
def test_the_oldest_entry_of_an_unbound_pod_is_replaced() -> None:
    """As a third bind does it, by every second one: whose Binding lands all the same starts late.

    Everything else holds as ever, so it starts on GPUs that nobody else has.
    """
    reached = scheduled(SOUND[::4], honest, Fault(most_entries=1))

    assert reached["landed"] > len(SOUND) // 4
    assert reached["replaced"]


@PATIENT
@pytest.mark.parametrize(
    ("wiring", "fault", "invariant"),
    [
        pytest.param(untested, FAULTLESS, "S([12358]|10) ", id="no-test-in-the-patch"),
        pytest.param(untested_commit, FAULTLESS, "S[1238] ", id="no-test-in-a-commit"),
        pytest.param(honest, Fault(reconciler=untested), "S[89] ", id="no-test-in-a-removal"),
        pytest.param(honest, Fault(reconciler=unversioned), "S9 ", id="removal-of-what-has-moved"),
        pytest.param(uninventoried, FAULTLESS, "S(4|10) ", id="commit-on-what-GPUs-were"),
        pytest.param(honest, Fault(binder=Coreless), "S1 ", id="cores-not-added-up"),
        pytest.param(honest, Fault(seen=sociable), "S(2|13) ", id="whole-GPU-shared"),
        pytest.param(honest, Fault(seen=slotless), "S1 ", id="slots-not-counted"),
        pytest.param(honest, Fault(seen=alone), "S1 .* others hold", id="foreign-memory-not-seen"),
        pytest.param(honest, Fault(seen=uncut), "S4 ", id="mode-not-looked-at"),
        pytest.param(honest, Fault(seen=hopeful), "S10 .* ill", id="health-not-looked-at"),
        pytest.param(honest, Fault(agent=Bold), "S6 ", id="start-without-an-entry"),
        pytest.param(honest, Fault(binder=Wet), "S12 ", id="dry-run-that-commits"),
        pytest.param(forgetful, FAULTLESS, "(S[135]|L[25]) ", id="own-entry-not-reused"),
        pytest.param(
            honest, Fault(reconciler=stale), "S[57] ", id="removal-without-the-second-get"
        ),
        pytest.param(honest, Fault(reconciler=unshut), "S7", id="free-where-nobody-can-tell"),
        pytest.param(blind, FAULTLESS, "S(1|3|13) ", id="in-use-without-an-entry-not-seen"),
        pytest.param(honest, Fault(hasty=True), "S7", id="free-before-held-is-clear"),
        pytest.param(honest, Fault(tidy=True), "S5 ", id="release-on-the-other-node"),
        pytest.param(honest, Fault(careless=True), "S5 .* with 0 entries", id="no-uid"),
        pytest.param(honest, Fault(ageless=True), "L[25] n", id="promises-that-do-not-age"),
        pytest.param(honest, Fault(timing=ENDLESS), "L5 nobody", id="lease-that-does-not-end"),
        pytest.param(honest, Fault(termless=True), "L4 ", id="new-leader-that-wakes-nobody"),
        pytest.param(honest, Fault(seen=gullible), "S(1|3|13|14) ", id="annotations-believed"),
        pytest.param(honest, Fault(inventory=Blinking), "S14 ", id="index-that-misses-an-end"),
        pytest.param(honest, Fault(read=ranked_anew), "S15 .* of priority", id="anybody-evicted"),
        pytest.param(honest, Fault(read=undying), "S15 .* is coming", id="evicted-twice"),
        pytest.param(honest, Fault(greedy=True), "S15 .* need not", id="more-evicted-than-needed"),
        pytest.param(honest, Fault(reckless=True), "S15 .* budgets", id="more-budgets-broken"),
        pytest.param(honest, Fault(pods=Undead), "L2 n", id="promises-to-who-has-ended-not-seen"),
        pytest.param(honest, Fault(late=Trusting), "L2 n", id="bypassed-pods-not-seen"),
        pytest.param(honest, Fault(upkeep=Unmoved), "L2 n. is open", id="reboot-not-seen"),
        pytest.param(honest, Fault(binder=Rash), "L1 ", id="refused-on-a-cached-ledger"),
        pytest.param(honest, Fault(binder=Moody), "L1 p. was not bound", id="refused-for-nothing"),
    ],
)
def test_what_is_broken_is_noticed(wiring: Wiring, fault: Fault, invariant: str) -> None:
    """The same schedules catch an implementation that gets one thing wrong."""
    with pytest.raises(BrokenError, match=rf"seed \d+: {invariant}"):
        scheduled(SEEDS, wiring, fault)
