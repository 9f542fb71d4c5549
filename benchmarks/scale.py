"""One replica on a large cluster: when it knows everything, what it takes, how long binds take.

Everything is run twice, on a small and on a large cluster, on the real etcd and kube-apiserver.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.control_plane import control_plane
from benchmarks.report import Bar, conclude, p99, parser, table
from benchmarks.scale_cluster import Fleet, large_cluster, restart
from benchmarks.scale_load import at_rest, bind_seconds, cpu_percent, cpu_seconds, memory_mb
from compiled import apart
from tests.cluster.api import wait_for
from tests.cluster.control_plane import API_SERVER
from tests.cluster.installation import GPU_NODES, Installation, Replica

CANNOT_RUN: Final = 2
PATIENCE: Final = 180.0  # seconds until everything is known
STARTS: Final = 3
SETTLED: Final = 15.0  # seconds after a start before it counts as idle
IDLE: Final = 60.0  # seconds
BINDS: Final = 200
KNOWN: Final = "everything known"
LISTED: Final = (GPU_NODES, "/api/v1/nodes", "/api/v1/pods")
LIMITS: Final = {"ready_s": 5, "rss_mb": 300, "idle_cpu_pct": 3, "bind_p99_ms": 50}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRun:
    """What one replica was seen to do and to take on one cluster."""

    nodes: int
    pods: int
    ready_s: float
    ready_cpu_s: float
    rss_mb: float
    highest_rss_mb: float
    idle_cpu_pct: float
    bind_p50_ms: float
    bind_p99_ms: float
    relist_s: float
    relisted_bind_p50_ms: float
    relisted_bind_p99_ms: float


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, judge; return the exit code."""
    command = parser("Measure one replica on a large cluster, with the extender on.")
    command.add_argument("--nodes", type=int, default=5000, help="nodes of 8 GPUs (5000)")
    command.add_argument("--pods", type=int, default=72_000, help="pods in all (72000)")
    command.add_argument("--small", type=int, default=1000, help="nodes of the small one (1000)")
    command.add_argument("--interpreted", action="store_true", help="do not compile the hot path")
    options = command.parse_args(arguments)
    programs = control_plane()
    if programs is None:
        return CANNOT_RUN
    tree = Path(__file__).parents[1] if options.interpreted else apart()
    large = Fleet(nodes=options.nodes, pods=options.pods)
    small = Fleet(nodes=options.small, pods=options.pods * options.small // options.nodes)
    fleets = [fleet for fleet in (small, large) if fleet.nodes]
    runs = [measure(programs, fleet, tree=tree) for fleet in fleets]
    print(_render(runs))
    return conclude(bars(runs), {"runs": [asdict(run) for run in runs]}, options.json)


def measure(programs: Mapping[str, Path], fleet: Fleet, *, tree: Path) -> ScaleRun:
    """Measure one replica on a cluster of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="scale-", ignore_cleanup_errors=True) as folder,
        large_cluster(programs, Path(folder), fleet, tree=tree) as site,
    ):
        run = _measured(site, fleet)
        print(run, flush=True)
        return run


def _measured(site: Installation, fleet: Fleet) -> ScaleRun:
    api, replica = site.api, site.first
    _start(replica)  # writes what is due in a cluster that it sees for the first time
    site.wait_until_called()
    time.sleep(SETTLED)
    starts = []
    for _ in range(STARTS):
        seconds = _start(replica)
        starts.append((seconds, cpu_seconds(replica.process.pid)))
        print(f"ready after {seconds:.1f} s", flush=True)
    site.wait_until_called()
    with at_rest(api, fleet):
        time.sleep(SETTLED)
        idle = cpu_percent(replica.process.pid, IDLE)
        print(f"idle {idle:.1f} %, {memory_mb(replica.process.pid)}", flush=True)
        count = min(BINDS, fleet.pending // 2)
        binds = bind_seconds(api, fleet, first=0, count=count)
    relist = _relist(site)
    site.wait_until_called()
    with at_rest(api, fleet):
        again = bind_seconds(api, fleet, first=count, count=count)
    rss, highest = memory_mb(replica.process.pid)
    return ScaleRun(
        nodes=fleet.nodes,
        pods=fleet.pods,
        ready_s=median(seconds for seconds, _ in starts),
        ready_cpu_s=median(cpu for _, cpu in starts),
        rss_mb=rss,
        highest_rss_mb=highest,
        idle_cpu_pct=idle,
        bind_p50_ms=median(binds) * 1000,
        bind_p99_ms=p99(binds) * 1000,
        relist_s=relist,
        relisted_bind_p50_ms=median(again) * 1000,
        relisted_bind_p99_ms=p99(again) * 1000,
    )


def _start(replica: Replica) -> float:
    return restart(replica, lambda line: KNOWN in line, within=PATIENCE)


def _relist(site: Installation) -> float:
    """Restart the API server, whose watches have expired then; return the seconds of the lists.

    A watch that saw the very last write of all would go on where it was. So the last write is of
    a kind that is not in :data:`LISTED`.
    """
    replica = site.first
    before = _lists(replica)
    mark = {"metadata": {"annotations": {"example.com/relist": str(time.time())}}}
    site.api.patch("/api/v1/namespaces/default", mark)
    site.plane.kill(API_SERVER)
    site.plane.start(API_SERVER)
    began = time.monotonic()
    try:
        wait_for(lambda: not _awaited(replica, before), within=PATIENCE)
    except TimeoutError:
        print("\n".join(map(str, replica.lines()[-50:])), file=sys.stderr)
        raise
    return time.monotonic() - began


def _awaited(replica: Replica, before: Mapping[str, int]) -> list[str]:
    """Return which collections have not been listed again."""
    lists = _lists(replica)
    return [path for path in LISTED if lists[path] <= before[path]]


def _lists(replica: Replica) -> Counter[str]:
    """Return how often each collection was listed so far."""
    return Counter(line["path"] for line in replica.lines() if line.get("event") == "listed")


def bars(runs: Sequence[ScaleRun]) -> list[Bar]:
    """Judge the last of *runs*, and that its replica is no busier at rest than the first's."""
    large = asdict(runs[-1])
    worst = max(large["bind_p99_ms"], large["relisted_bind_p99_ms"])
    values = {**large, "bind_p99_ms": worst}
    return [
        Bar(name=name, value=values[name], limit=limit, at_most=True)
        for name, limit in LIMITS.items()
    ]


def _render(runs: Sequence[ScaleRun]) -> str:
    columns = [asdict(run) for run in runs]
    rows = [
        (
            name,
            *(f"{column[name]:.3g}" for column in columns),
            f"{columns[-1][name] / columns[0][name]:.2f}" if columns[0][name] else "",
        )
        for name in columns[0]
    ]
    return table(("", *(f"{run.nodes} nodes" for run in runs), "ratio"), rows) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
