"""Latency of filter and prioritize, compared with a server that echoes the same names.

Names only, 8 GPUs a node of which 6 are busy, no two nodes much alike, and one node changes ten
times a second. One scheduler asks, as schedulers do: one question after the other on one
connection. The two servers take turns question by question, so that whatever else the machine
does meets both. Needs two cores: one for the servers, one for the scheduler.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from statistics import median
from typing import Final

import orjson

from benchmarks.extender_server import HOST, ExtenderKind, FleetKind, names
from benchmarks.report import Bar, conclude, p99, parser, table

SIZES: Final = (500, 1000, 5000, 10000)  # nodes
JUDGED: Final = 5000
P50: Final = 8.0  # at most this many times the echo's
P99: Final = 15.0
WARM_UP: Final = 20  # pairs of questions, not counted
CANNOT_RUN: Final = 2
PATIENCE: Final = 60  # seconds for a server to start

POD: Final = {
    "metadata": {"name": "train-0", "namespace": "team-a", "uid": "6a7d", "annotations": {}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "example.com/train:1",
                "env": [{"name": f"VARIABLE_{i}", "value": "x" * 60} for i in range(40)],
                "resources": {
                    "limits": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "6000"}
                },
            }
        ]
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWaits:
    """Milliseconds waited at one size of fleet: for one echo, and for filter and prioritize."""

    nodes: int
    echo: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def p50_ratio(self) -> float:
        """Return how many times longer than an echo both questions take, at the median."""
        return median(self.ours) / median(self.echo)

    @property
    def p99_ratio(self) -> float:
        """Return the same at the 99th percentile."""
        return p99(self.ours) / p99(self.echo)


class Scheduler:
    """Asks one server, one question after the other, on one connection."""

    def __init__(self, port: int) -> None:
        """Connect to *port*."""
        self._connection = HTTPConnection(HOST, port, timeout=PATIENCE)

    def ask(self, verb: str, body: bytes) -> bytes:
        """Return the answer; raises ``RuntimeError`` where there is none."""
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"/extender/{verb}", body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:  # noqa: PLR2004 -- HTTP
            raise RuntimeError(f"{verb}: {answer.status} {content[:200]!r}")
        return content


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, judge; return the exit code."""
    command = parser(
        "Measure filter and prioritize by node names, against a server that echoes them."
    )
    command.add_argument(
        "--pairs", type=int, default=400, help="pairs of calls per cluster size (400)"
    )
    command.add_argument(
        "--fleet",
        choices=[kind.value for kind in FleetKind],
        default=FleetKind.NVIDIA.value,
        help="whose GPUs the nodes have; mixed: MetaX's on a third of them (nvidia)",
    )
    options = command.parse_args(arguments)
    if len(os.sched_getaffinity(0)) < 2:  # noqa: PLR2004 -- servers and scheduler
        print("this process may use only one core; allow it two", file=sys.stderr)
        return CANNOT_RUN
    found = [waits(size, options.pairs, FleetKind(options.fleet)) for size in SIZES]
    print(_render(found))
    figures = {
        "fleet": options.fleet,
        "sizes": [
            {"nodes": w.nodes, "p50_ratio": w.p50_ratio, "p99_ratio": w.p99_ratio} for w in found
        ],
        "waits": [asdict(w) for w in found],
    }
    return conclude(bars(found), figures, options.json)


def waits(size: int, pairs: int, gpus: FleetKind) -> AnswerWaits:
    """Ask both servers over a fleet of *size* nodes in turn."""
    first, second, *_ = sorted(os.sched_getaffinity(0))
    body = orjson.dumps({"Pod": POD, "Nodes": None, "NodeNames": names(size)})
    with (
        serve(ExtenderKind.ECHO, size, first, gpus=gpus) as other,
        serve(ExtenderKind.OURS, size, first, gpus=gpus) as port,
    ):
        os.sched_setaffinity(0, {second})
        try:
            echo, ours = Scheduler(other), Scheduler(port)
            check(ours, body, size)
            samples = [_pair(echo, ours, body) for _ in range(WARM_UP + pairs)][WARM_UP:]
        finally:
            os.sched_setaffinity(0, {first, second})
    return AnswerWaits(
        nodes=size, echo=tuple(s[0] for s in samples), ours=tuple(s[1] for s in samples)
    )


def check(ours: Scheduler, body: bytes, size: int) -> None:
    """Raise unless every node has a verdict, most fit, and those that do are not all alike."""
    answer = json.loads(ours.ask("filter", body))
    fitting = answer["NodeNames"]
    failed = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
    scores = {found["Score"] for found in json.loads(ours.ask("prioritize", body))}
    if len(fitting) + len(failed) != size or len(fitting) < size // 2 or len(scores) < 2:  # noqa: PLR2004 -- not all the same
        raise RuntimeError(f"{len(fitting)} of {size} fit, {len(failed)} do not; scores {scores}")


def _pair(echo: Scheduler, ours: Scheduler, body: bytes) -> tuple[float, float]:
    began = time.perf_counter()
    echo.ask("filter", body)
    between = time.perf_counter()
    ours.ask("filter", body)
    ours.ask("prioritize", body)
    return (between - began) * 1e3, (time.perf_counter() - between) * 1e3


@contextmanager
def serve(kind: ExtenderKind, size: int, core: int, *, gpus: FleetKind) -> Iterator[int]:
    """Run a server on *core* while the block runs; yield its port."""
    command = [sys.executable, "-m", "benchmarks.extender_server", kind, str(size), str(core), gpus]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield json.loads(process.stdout.readline() if process.stdout else b"")["port"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def bars(found: Sequence[AnswerWaits]) -> list[Bar]:
    """Judge the largest fleet that a bar is set for."""
    judged = next(waits for waits in found if waits.nodes == JUDGED)
    return [
        Bar(name="p50_ratio_5000", value=judged.p50_ratio, limit=P50, at_most=True),
        Bar(name="p99_ratio_5000", value=judged.p99_ratio, limit=P99, at_most=True),
    ]


def _render(found: Sequence[AnswerWaits]) -> str:
    rows = [
        (
            f"{w.nodes:,}",
            f"{median(w.echo):.2f}",
            f"{median(w.ours):.2f}",
            f"{w.p50_ratio:.1f}",
            f"{p99(w.echo):.2f}",
            f"{p99(w.ours):.2f}",
            f"{w.p99_ratio:.1f}",
        )
        for w in found
    ]
    header = ("nodes", "echo p50 ms", "ours p50 ms", "ratio", "echo p99", "ours p99", "ratio")
    return table(header, rows) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
