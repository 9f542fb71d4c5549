"""A storm of pods on real components: pods bound per second with and without vgpu-admission.

Each turn runs every arm once, on a cluster of its own that is made the same way and warmed up by a
small storm. A ratio is that of two arms of one turn, and the median of the turns is judged. All of
it shares the machine's cores, which is why ratios say more than rates.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.control_plane import control_plane
from benchmarks.report import Bar, conclude, parser, table
from benchmarks.storm_cluster import Arm, StormCluster, cluster, node_names
from benchmarks.storm_door import pace, summary, writes
from benchmarks.storm_metrics import NO_CALLS, Hooks, hooks
from benchmarks.storm_run import Storm, storm
from benchmarks.storm_truth import ALL_WELL, Truth, truth
from tests.cluster.installation import GPU_NODES, PODS

WARM_UP: Final = 100  # pods
RATIOS: Final = {Arm.HOOK: ("bound_ratio_hook", 0.55), Arm.EXTENDER: ("bound_ratio", 0.4)}
CONFLICTS: Final = 2.0  # percent of all binds
WRITES: Final = 8  # for 64 binds to one node at once
P99: Final = 20.0  # milliseconds
SETTLED: Final = 110.0  # seconds for promises of binds that failed to age and go, if there are any
CANNOT_RUN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What the door was seen to do beside a storm."""

    writes: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StormRun:
    """One arm of one turn; ``hooks`` and ``truth`` are of its storm, where we took part."""

    arm: Arm
    storm: Storm
    hooks: Hooks = NO_CALLS
    truth: Truth = ALL_WELL
    door: Door | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StormPlan:
    """How large a storm is, and on which programs."""

    programs: Mapping[str, Path]
    nodes: int
    pods: int


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, judge; return the exit code."""
    command = parser(
        "Measure pods bound per second by kube-scheduler, with and without vgpu-admission."
    )
    command.add_argument("--nodes", type=int, default=1000, help="nodes, with 8 GPUs each (1000)")
    command.add_argument("--pods", type=int, default=1000, help="pods per storm (1000)")
    command.add_argument("--turns", type=int, default=3, help="rounds over all arms (3)")
    command.add_argument(
        "--minutes", type=float, default=5, help="start no round after this many minutes (5)"
    )
    options = command.parse_args(arguments)
    programs = control_plane()
    if programs is None:
        return CANNOT_RUN
    plan = StormPlan(programs=programs, nodes=options.nodes, pods=options.pods)
    until = time.monotonic() + options.minutes * 60
    turns: list[list[StormRun]] = []
    while not turns or (len(turns) < options.turns and time.monotonic() < until):
        turns.append([_run(plan, arm, door=not turns and arm is Arm.HOOK) for arm in Arm])
    print(_render(turns))
    figures = {"turns": [[asdict(run) for run in turn] for turn in turns]}
    return conclude(bars(turns), figures, options.json)


def _run(plan: StormPlan, arm: Arm, *, door: bool) -> StormRun:
    """Run one arm on a new cluster."""
    with (
        tempfile.TemporaryDirectory(prefix="storm-", ignore_cleanup_errors=True) as folder,
        cluster(plan.programs, Path(folder), arm=arm, nodes=plan.nodes) as found,
    ):
        storm(found, WARM_UP)
        before = _hooks(found)
        seen = storm(found, plan.pods)
        run = StormRun(arm=arm, storm=seen)
        if found.site is not None:
            counted = _hooks(found).difference(before)
            told = _wait_settled(found, seen)
            measured = _door(found, plan.nodes) if door else None
            run = StormRun(arm=arm, storm=seen, hooks=counted, truth=told, door=measured)
    print(f"{arm}: {seen.rate:.1f} pods/s, CPU ms per pod: {dict(seen.cpu)}", flush=True)
    return run


def _hooks(found: StormCluster) -> Hooks:
    return hooks(found.api.get("/metrics")["message"])


def _wait_settled(found: StormCluster, seen: Storm) -> Truth:
    """Return what the API objects say, once all is well; a storm that failed is not waited for."""
    until = time.monotonic() + (SETTLED if seen.bound == seen.pods else 0)
    while True:
        pods = found.api.get(PODS.format(seen.namespace))["items"]
        told = truth(pods, found.api.get(GPU_NODES)["items"])
        if not told.wrong_count or time.monotonic() > until:
            return told
        time.sleep(1)


def _door(found: StormCluster, nodes: int) -> Door:
    if found.site is None:
        raise ValueError("the arm without vgpu-admission has no hook to measure")
    names = node_names(nodes)
    crowded = writes(found, names[0])
    p50, p99 = summary(pace(found, found.site, names))
    return Door(writes=crowded, p50_ms=p50, p99_ms=p99)


def bars(turns: Sequence[Sequence[StormRun]]) -> list[Bar]:
    """Judge the medians of the turns' ratios, and the sums of what may not happen.

    Conflicts are judged by the arm that has most of them.
    """
    runs = [run for turn in turns for run in turn if run.arm is not Arm.NOTHING]
    conflicts = max(_conflicts([run for run in runs if run.arm is arm]) for arm in Arm)
    unanswered = sum(run.hooks.unanswered for run in runs)
    wrong = sum(run.truth.wrong_count for run in runs)
    door = next(run.door for run in runs if run.door is not None)
    return [
        *(
            Bar(name=name, value=_ratio(turns, arm), limit=limit)
            for arm, (name, limit) in RATIOS.items()
        ),
        Bar(name="conflict_pct", value=conflicts, limit=CONFLICTS, at_most=True),
        Bar(name="timeouts", value=unanswered, limit=0, at_most=True),
        Bar(name="lost_or_doubled", value=wrong, limit=0, at_most=True),
        Bar(name="writes_for_64", value=door.writes, limit=WRITES, at_most=True),
        Bar(name="hook_p99_ms", value=door.p99_ms, limit=P99, at_most=True),
    ]


def _conflicts(runs: Sequence[StormRun]) -> float:
    """Return the share of binds that were refused for conflict, in percent."""
    binds = sum(run.hooks.binds for run in runs)
    return 100 * sum(run.hooks.conflicts for run in runs) / max(1, binds)


def _ratio(turns: Sequence[Sequence[StormRun]], arm: Arm) -> float:
    rates = [{run.arm: run.storm.rate for run in turn} for turn in turns]
    return median(rate[arm] / rate[Arm.NOTHING] for rate in rates)


def _render(turns: Sequence[Sequence[StormRun]]) -> str:
    rows = [
        (
            arm,
            f"{median(run.storm.rate for run in runs):.0f}",
            f"{_ratio(turns, arm):.2f}",
            f"{median(sum(run.storm.cpu.values()) for run in runs):.1f}",
            sum(run.hooks.conflicts for run in runs),
            sum(run.hooks.unanswered for run in runs),
            sum(run.truth.wrong_count for run in runs),
        )
        for arm in Arm
        for runs in [[run for turn in turns for run in turn if run.arm is arm]]
    ]
    head = (f"medians of {len(turns)} rounds", "pods/s", "ratio", "ms CPU/pod")
    return table((*head, "conflicts", "unanswered", "wrong"), rows) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
