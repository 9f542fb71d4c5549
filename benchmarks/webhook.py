"""Reviews per second on one core, compared with a handler that decodes and allows each.

The servers take turns, so that whatever else the machine does meets both, and each ratio is
that of two neighbours. With records and without is compared second by second, because the two
differ less than a busy machine does from one moment to the next. Needs two cores: one for the
server, one for wrk. The hot path is compiled, as it is in the image; ``--interpreted`` measures
the checkout.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.report import Bar, conclude, parser, table
from benchmarks.webhook_answers import apply_patch, check_idempotent
from benchmarks.webhook_load import LoadResult, join_loads, review_file, serve
from benchmarks.webhook_reviews import replica_reviews, reviews
from benchmarks.webhook_server import ServerKind
from compiled import ROOT, apart

THROUGHPUT: Final = 0.5  # at least this share of the baseline's
P99: Final = 4.0  # at most this many times the baseline's
AUDITED: Final = 0.95  # at least this share of the throughput without records
WARM_UP: Final = 1  # seconds, not counted
CANNOT_RUN: Final = 2


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of each server."""

    baseline: LoadResult
    ours: LoadResult
    unaudited: LoadResult  # ours without records
    ours_distinct: LoadResult  # of pods of which none is a replica of another
    unaudited_distinct: LoadResult


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, judge; return the exit code."""
    command = parser(
        "Measure reviews per second on one core over TLS, against a handler that allows all."
    )
    command.add_argument("--turns", type=int, default=5, help="rounds per server (5)")
    command.add_argument("--seconds", type=int, default=4, help="seconds per round (4)")
    command.add_argument("--interpreted", action="store_true", help="do not compile the hot path")
    options = command.parse_args(arguments)
    missing = _missing_tool()
    if missing:
        print(missing, file=sys.stderr)
        return CANNOT_RUN
    replicas, distinct = tuple(replica_reviews()), tuple(reviews())
    tree = ROOT if options.interpreted else apart()
    check(replicas, tree)
    check(distinct, tree)
    with review_file(replicas) as file, review_file(distinct) as distinct_file:
        turns = [
            _turn(file, distinct_file, seconds=options.seconds, tree=tree)
            for _ in range(options.turns)
        ]
    print(_render(turns))
    ratios = audited_ratios(turns)
    print("".join(f"{name}: {value:.3f}\n" for name, value in ratios.items()))
    figures = {
        "compiled": not options.interpreted,
        **ratios,
        "turns": [asdict(turn) for turn in turns],
    }
    return conclude(bars(turns), figures, options.json)


def _missing_tool() -> str | None:
    """Say what this machine lacks."""
    if shutil.which("wrk") is None:
        return "wrk is not installed; on Debian: apt-get update && apt-get install -y wrk"
    if len(os.sched_getaffinity(0)) < 2:  # noqa: PLR2004 -- server and load
        return "this process may use only one core; allow it two, for the server and wrk"
    return None


def check(bodies: Sequence[bytes], tree: Path) -> None:
    """Raise unless the server rewrites the pod of each review, and a second pass leaves it."""
    core, other = _cores()
    with serve(ServerKind.OURS, core, other, tree=tree) as server:
        second = [
            apply_patch(body, answer)
            for body, answer in zip(bodies, server.answers(bodies), strict=True)
        ]
        for body, answer in zip(second, server.answers(second), strict=True):
            check_idempotent(body, answer)
    print(f"{len(bodies)} reviews of {len(bodies[0])} bytes: each patched, each sent once\n")


def _turn(replicas: Path, distinct: Path, *, seconds: int, tree: Path) -> Turn:
    baseline = _loads([ServerKind.BASELINE], replicas, seconds, tree=tree)
    pair = (ServerKind.OURS, ServerKind.UNAUDITED)
    of_replicas = _loads(pair, replicas, seconds, tree=tree)
    of_distinct = _loads(pair, distinct, seconds, tree=tree)
    return Turn(
        baseline=baseline[ServerKind.BASELINE],
        ours=of_replicas[ServerKind.OURS],
        unaudited=of_replicas[ServerKind.UNAUDITED],
        ours_distinct=of_distinct[ServerKind.OURS],
        unaudited_distinct=of_distinct[ServerKind.UNAUDITED],
    )


def _loads(
    kinds: Sequence[ServerKind], file: Path, seconds: int, *, tree: Path
) -> dict[ServerKind, LoadResult]:
    """Load a fresh server of each of *kinds*, all on one core, for one second at a time.

    Raises ``RuntimeError`` where what one did is not what was counted.
    """
    core, other = _cores()
    with ExitStack() as stack:
        servers = [stack.enter_context(serve(kind, core, other, tree=tree)) for kind in kinds]
        warm = [server.load(file, core=other, seconds=WARM_UP) for server in servers]
        loads: list[list[LoadResult]] = [[] for _ in servers]
        for at in seconds_in_turn(len(servers), seconds):
            loads[at].append(servers[at].load(file, core=other, seconds=1))
        joined = dict(zip(kinds, map(join_loads, loads), strict=True))
        for (kind, load), server, first in zip(joined.items(), servers, warm, strict=True):
            recorded, answered = server.stop_and_count(), first.requests + load.requests
            if load.failed or (kind is ServerKind.OURS and recorded < answered):
                raise RuntimeError(
                    f"{answered} reviews sent, {load.failed} failed, {recorded} recorded"
                )
    return joined


def seconds_in_turn(servers: int, seconds: int) -> Iterator[int]:
    """Yield which of *servers* is loaded in each second, so that each is for *seconds*.

    The order turns around each time: over an even number of seconds, what grows meanwhile weighs
    on all alike.
    """
    for number in range(seconds):
        order = range(servers)
        yield from reversed(order) if number % 2 else order


def _cores() -> tuple[int, int]:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return first, second


def bars(turns: Sequence[Turn]) -> list[Bar]:
    """Judge the medians of the turns' ratios."""
    throughput = median(turn.ours.throughput / turn.baseline.throughput for turn in turns)
    audited = median(turn.ours.throughput / turn.unaudited.throughput for turn in turns)
    p99 = median(turn.ours.p99_ms / turn.baseline.p99_ms for turn in turns)
    return [
        Bar(name="throughput_ratio", value=throughput, limit=THROUGHPUT),
        Bar(name="audited_ratio", value=audited, limit=AUDITED),
        Bar(name="p99_ratio", value=p99, limit=P99, at_most=True),
    ]


def audited_ratios(turns: Sequence[Turn]) -> dict[str, float]:
    """Return what has no bar: the ratio where no pod is a replica, and those of processor time.

    The latter say on a busy machine what the former say on an idle one.
    """
    pairs = {
        "": [(turn.ours, turn.unaudited) for turn in turns],
        "_distinct": [(turn.ours_distinct, turn.unaudited_distinct) for turn in turns],
    }
    return {
        "audited_ratio_distinct": median(
            ours.throughput / without.throughput for ours, without in pairs["_distinct"]
        ),
        **{
            f"audited_cpu_ratio{name}": median(
                without.cpu_us / ours.cpu_us for ours, without in loads
            )
            for name, loads in pairs.items()
        },
    }


def _render(turns: Sequence[Turn]) -> str:
    sides: Mapping[str, list[LoadResult]] = {
        "decode and allow": [turn.baseline for turn in turns],
        "vgpu webhook": [turn.ours for turn in turns],
        "without records": [turn.unaudited for turn in turns],
        "all different": [turn.ours_distinct for turn in turns],
        "the same without records": [turn.unaudited_distinct for turn in turns],
    }
    rows = [
        (
            name,
            f"{median(load.throughput for load in loads):,.0f}",
            f"{median(load.cpu_us for load in loads):.1f}",
            f"{median(load.p50_ms for load in loads):.2f}",
            f"{median(load.p99_ms for load in loads):.2f}",
        )
        for name, loads in sides.items()
    ]
    header = (f"medians of {len(turns)} rounds", "reviews/s", "µs of CPU", "p50 ms", "p99 ms")
    return table(header, rows) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
