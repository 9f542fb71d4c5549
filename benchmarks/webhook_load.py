"""Load on one server, which runs on a core of its own; wrk runs on another."""

import json
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.webhook_reviews import OWNER_UID, REVIEW_UID, SIZE
from benchmarks.webhook_server import HOST, ServerKind

CONNECTIONS: Final = 16
PATH: Final = "/mutate/pods"
SCRIPT: Final = Path(__file__).with_name("webhook.lua")
_ROUNDS: Final = 10_000  # of the file; more than one load sends
PATIENCE: Final = 30  # seconds for a server to start or to end


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What one run of wrk saw; latencies are in milliseconds."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failed: int
    cpu_seconds: float  # of the server

    @property
    def cpu_us(self) -> float:
        """Return the processor time that a review takes, in microseconds."""
        return self.cpu_seconds / self.requests * 1e6

    @property
    def throughput(self) -> float:
        """Return the reviews answered in a second."""
        return self.requests / self.seconds


def join_loads(loads: Sequence[LoadResult]) -> LoadResult:
    """Return one or more *loads* of one server as one; latencies are the medians of theirs."""
    return LoadResult(
        requests=sum(load.requests for load in loads),
        seconds=sum(load.seconds for load in loads),
        p50_ms=median(load.p50_ms for load in loads),
        p99_ms=median(load.p99_ms for load in loads),
        failed=sum(load.failed for load in loads),
        cpu_seconds=sum(load.cpu_seconds for load in loads),
    )


@contextmanager
def review_file(reviews: Iterable[bytes]) -> Iterator[Path]:
    """Lend *reviews* as one file, for wrk to read."""
    with tempfile.NamedTemporaryFile(prefix="reviews-") as file:
        file.writelines(reviews)
        file.flush()
        yield Path(file.name)


@dataclass(slots=True)
class ServerProcess:
    """A running server process."""

    process: subprocess.Popen[bytes]
    port: int
    bundle: str
    loads: int = 0  # that it has had; each sends owners of its own

    def answers(self, reviews: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the answer to each of *reviews*, over one verified connection."""
        context = ssl.create_default_context(cadata=self.bundle)
        connection = HTTPSConnection(HOST, self.port, context=context, timeout=PATIENCE)
        for review in reviews:
            connection.request("POST", PATH, review, {"Content-Type": "application/json"})
            yield connection.getresponse().read()
        connection.close()

    def load(self, reviews: Path, *, core: int, seconds: int) -> LoadResult:
        """Let wrk send *reviews* from *core*, again and again, with owners of each round's own."""
        url = f"https://{HOST}:{self.port}"
        wrk = ["wrk", "--threads=1", f"--connections={CONNECTIONS}", f"--duration={seconds}s"]
        script = [
            f"--script={SCRIPT}",
            url,
            "--",
            str(reviews),
            str(SIZE),
            PATH,
            REVIEW_UID,
            OWNER_UID,
            str(self.loads * _ROUNDS),
        ]
        self.loads += 1
        before = self._cpu_seconds()
        told = subprocess.run(
            ["taskset", "--cpu-list", str(core), *wrk, *script],
            check=True,
            capture_output=True,
            timeout=seconds + PATIENCE,
        )
        cpu = self._cpu_seconds() - before
        return LoadResult(**json.loads(told.stdout.splitlines()[-1]), cpu_seconds=cpu)

    def _cpu_seconds(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop_and_count(self) -> int:
        """End the process and return how many decisions it recorded."""
        out, _ = self.process.communicate(timeout=PATIENCE)
        return int(json.loads(out)["recorded"])


@contextmanager
def serve(kind: ServerKind, core: int, other: int, *, tree: Path) -> Iterator[ServerProcess]:
    """Run a server of the checkout, or compiled copy of one, at *tree* on *core*.

    Ours delivers its records to a console on the core *other*.
    """
    with ExitStack() as stack:
        options = [kind, str(core)]
        if kind is ServerKind.OURS:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="records-"))
            console = _program("webhook_console", folder, str(other), tree=tree)
            _, told = stack.enter_context(console)
            options += [f"https://{HOST}:{told['port']}", folder]
        server = _program("webhook_server", *options, tree=tree)
        process, told = stack.enter_context(server)
        yield ServerProcess(process, told["port"], told["bundle"])


@contextmanager
def _program(
    name: str, *options: str, tree: Path
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """Run a benchmark's program; yield it and the first line that it said."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tree, stdin=pipe, stdout=pipe) as process:
        try:
            yield process, json.loads(process.stdout.readline() if process.stdout else b"")
        finally:
            process.kill()  # nothing where it has ended
