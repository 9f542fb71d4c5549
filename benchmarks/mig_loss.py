"""The share of random arrivals that a fleet of A100s accepts, by policy.

Ours starts cold in each run and learns as it goes; capacity loss is told the true mix. Within a
run all policies see the same pods.
"""

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from math import sqrt
from multiprocessing import get_context
from statistics import fmean, stdev
from typing import Final

from benchmarks.baselines import hami
from benchmarks.baselines.greedy import Greedy
from benchmarks.baselines.scores import capacity_loss, lowest_start, reach
from benchmarks.baselines.volcano import StickyGroup
from benchmarks.loss_system import MIXES, AcceptedShare, Setting, arrivals, offer_pods, weights
from benchmarks.mig import A100, Ours, Policy
from benchmarks.report import Bar, conclude, parser, table

GRID: Final = tuple(
    Setting(mix=mix, gpus=gpus, load=load)
    for mix, gpus, load in product(MIXES, (8, 32), (0.85, 1.1))
)
CROWDED: Final = GRID[0]  # the cell in which every policy runs
SEEDS: Final = range(12)
JOBS: Final = 20_000
QUICK_SEEDS: Final = range(2)
QUICK_JOBS: Final = 100
PROCESSES: Final = 2

OURS: Final = "ours"
HAMI: Final = "HAMi #2855"
GIVEN: Final = "capacity loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRun:
    """One seed of one cell: *jobs* arrivals."""

    cell: Setting
    seed: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds and its standard error, in percentage points."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:+.2f}±{self.error:.2f}"


Taken = Mapping[str, AcceptedShare]
"""By policy, what it took in of one run."""

Results = Mapping[Setting, Sequence[Taken]]
"""By cell, one entry for each seed."""


def main(arguments: Sequence[str]) -> int:
    """Run the grid, print what was taken in, judge ours; return the exit code."""
    command = parser("Measure the share of random arrivals that a fleet of A100s accepts.")
    command.add_argument("--quick", action="store_true", help="a tiny run without bars")
    options = command.parse_args(arguments)
    seeds, jobs = (QUICK_SEEDS, QUICK_JOBS) if options.quick else (SEEDS, JOBS)
    print(
        f"{jobs:,} arrivals for each of the seeds {seeds.start} to {seeds.stop - 1}\n", flush=True
    )
    results = run_all([SeedRun(cell=c, seed=s, jobs=jobs) for c in GRID for s in seeds])
    print(_grid(results) + "\n\n" + _crowded_table(results[CROWDED]) + "\n")
    figures = {"arrivals": jobs, "seeds": [*seeds], **_figures(results)}
    return conclude(() if options.quick else bars(results), figures, options.json)


def policies(cell: Setting) -> Mapping[str, Policy]:
    """Return the policies that run in *cell*, new and without memory of another."""
    compared: dict[str, Policy] = {
        OURS: Ours(A100, A100.plain),
        HAMI: Greedy(hami.regions(A100)),
        GIVEN: Greedy(capacity_loss(A100.plain, weights(cell.mix))),
    }
    if cell != CROWDED:
        return compared
    return compared | {
        "HAMi 2.10": Greedy(hami.release_2_10),
        "pure reach": Greedy(reach(A100.plain)),
        "lowest start": Greedy(lowest_start),
        "sticky group": StickyGroup(A100),
    }


def result(run: SeedRun) -> Taken:
    """Return what each policy took in during *run*."""
    pods = tuple(arrivals(run.cell, jobs=run.jobs, seed=run.seed))
    return {
        name: offer_pods(policy, pods, run.cell.gpus) for name, policy in policies(run.cell).items()
    }


def run_all(runs: Sequence[SeedRun]) -> Results:
    """Work off *runs* side by side; the outcome does not depend on how many processes there are."""
    found: dict[Setting, list[Taken]] = {run.cell: [] for run in runs}
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for run, taken in zip(runs, pool.map(result, runs), strict=True):
            found[run.cell].append(taken)
    return found


def bars(results: Results) -> list[Bar]:
    """Hold ours against HAMi #2855 on average, and against capacity loss where it is worst."""
    jobs, slots = zip(*(_gain(seeds, HAMI) for seeds in results.values()), strict=True)
    worst = min(m.value for seeds in results.values() for m in _gain(seeds, GIVEN))
    return [
        Bar(name="mean_jobs_vs_hami_2855", value=_overall(jobs).value, limit=0.4),
        Bar(name="mean_slots_vs_hami_2855", value=_overall(slots).value, limit=0.6),
        Bar(name="worst_cell_vs_capacity_loss", value=worst, limit=-0.5),
    ]


def _gain(seeds: Sequence[Taken], peer: str) -> tuple[Mean, Mean]:
    """Return by how many points of jobs and of slots ours is ahead of *peer*."""
    return (
        _mean([seed[OURS].jobs - seed[peer].jobs for seed in seeds]),
        _mean([seed[OURS].slots - seed[peer].slots for seed in seeds]),
    )


def _mean(values: Sequence[float]) -> Mean:
    return Mean(fmean(values), stdev(values) / sqrt(len(values)))


def _overall(cells: Sequence[Mean]) -> Mean:
    error = sqrt(sum(cell.error**2 for cell in cells)) / len(cells)
    return Mean(fmean(cell.value for cell in cells), error)


def _grid(results: Results) -> str:
    header = (
        "% accepted",
        *(f"{OURS}: jobs", "slots"),
        *(f"lead over {HAMI}: jobs", "slots"),
        *(f"lead over {GIVEN}: jobs", "slots"),
    )
    gains = [(*_gain(seeds, HAMI), *_gain(seeds, GIVEN)) for seeds in results.values()]
    rows = [
        (cell, *_level(seeds, OURS), *gain)
        for (cell, seeds), gain in zip(results.items(), gains, strict=True)
    ]
    return table(header, [*rows, ("mean", "", "", *map(_overall, zip(*gains, strict=True)))])


def _crowded_table(seeds: Sequence[Taken]) -> str:
    rows = [(name, *_level(seeds, name), *_gain(seeds, name)) for name in seeds[0]]
    return table((str(CROWDED), "jobs", "slots", "our lead: jobs", "slots"), rows)


def _level(seeds: Sequence[Taken], policy: str) -> tuple[str, str]:
    return (
        f"{fmean(seed[policy].jobs for seed in seeds):.2f}",
        f"{fmean(seed[policy].slots for seed in seeds):.2f}",
    )


def _figures(results: Results) -> Mapping[str, object]:
    return {
        "cells": {
            str(cell): {name: _description(seeds, name) for name in seeds[0]}
            for cell, seeds in results.items()
        }
    }


def _description(seeds: Sequence[Taken], policy: str) -> Mapping[str, float]:
    """Return what *policy* took in, and the standard errors of how far ours is ahead of it."""
    jobs, slots = _gain(seeds, policy)
    return {
        "jobs": fmean(seed[policy].jobs for seed in seeds),
        "slots": fmean(seed[policy].slots for seed in seeds),
        "jobs_behind_ours_error": jobs.error,
        "slots_behind_ours_error": slots.error,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
