"""What strangers, tenants and a broken node can cost one replica, and which doors are open.

A fuzzer of raw connections for a minute, beside honest reviews; the reviews that cost most; a
thousand pods of 1.4 MB that wait; the worst board; every door of ``benchmarks.hostile_doors``.
Needs two cores: one for the replica, one for everybody else.
"""

import asyncio
import os
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

import orjson

from benchmarks.hostile_board import worst_boards
from benchmarks.hostile_door import TriedDoors
from benchmarks.hostile_doors import try_all_doors
from benchmarks.hostile_pending import pending_growth
from benchmarks.hostile_reviews import WORKLOADS, hostile_reviews
from benchmarks.hostile_site import HOST, HostileSite, hostile_site
from benchmarks.report import Bar, conclude, p99, parser, table
from benchmarks.webhook_reviews import reviews
from benchmarks.webhook_server import ChangingInventory, reviewer
from webhook.serve.admission import AdmissionApp
from webhook.serve.metrics import WebhookMetrics
from webhook.workload.workload_server import WorkloadHandler

HOOK: Final = "/mutate/pods"
PAUSE: Final = 0.01  # seconds between two honest reviews
FRESH: Final = 10  # every so many reviews come on a connection of their own
TIMES: Final = 3  # that each review is measured; the least counts, because others run here too
WATCH: Final = 0.2  # seconds between two looks at the memory
CANNOT_RUN: Final = 2
OK: Final = 200
ROWS: Final = 8  # of the table of reviews


@dataclass(slots=True)
class HonestCaller:
    """Sends reviews as an API server does, and notes how long each answer took."""

    site: HostileSite
    waits: list[float] = field(default_factory=list)  # milliseconds
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send until :meth:`stop` is called."""
        bodies, context = tuple(reviews()), self.site.context()
        connection = self._connection(context)
        number = 0
        while not self._stop.wait(PAUSE):
            number += 1
            body = bodies[number % len(bodies)]
            if number % FRESH:
                self._ask(connection, body)
            else:
                fresh = self._connection(context)
                self._ask(fresh, body)
                fresh.close()
        connection.close()

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()

    def _connection(self, context: ssl.SSLContext) -> HTTPSConnection:
        return HTTPSConnection(HOST, self.site.hooks, context=context, timeout=10)

    def _ask(self, connection: HTTPSConnection, body: bytes) -> None:
        began = time.perf_counter()
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", self.site.path(HOOK), body, headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, HTTPException) as error:
            connection.close()
            self.failures.append(repr(error))
            return
        if answer.status != OK:
            self.failures.append(str(answer.status))
        self.waits.append((time.perf_counter() - began) * 1e3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Siege:
    """What a minute of attacks did."""

    growth_mib: float  # at most, over what the replica had before
    waits: tuple[float, ...]  # milliseconds, of honest reviews
    failures: tuple[str, ...]  # of honest reviews
    attacks: Mapping[str, int]


async def siege(seconds: float) -> Siege:
    """Attack a replica on one core from another, with honest reviews beside that."""
    first, second, *_ = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        async with hostile_site(Path(folder), cores=(first,)) as site:
            os.sched_setaffinity(0, {second})
            try:
                await _calm(site)
                return await _attacked(site, seconds)
            finally:
                os.sched_setaffinity(0, {first, second})


async def _calm(site: HostileSite) -> None:
    """Let the replica answer some reviews, after which its memory is what it needs."""
    caller = HonestCaller(site)
    thread = threading.Thread(target=caller.run)
    thread.start()
    await asyncio.sleep(3)
    caller.stop()
    await asyncio.to_thread(thread.join)


async def _attacked(site: HostileSite, seconds: float) -> Siege:
    before = peak = site.rss_mib()
    command = ["-m", "benchmarks.hostile_fuzzer", str(site.hooks), str(site.status), str(seconds)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    caller = HonestCaller(site)
    thread = threading.Thread(target=caller.run)
    thread.start()
    ended = asyncio.create_task(process.communicate())
    while not ended.done():
        await asyncio.sleep(WATCH)
        peak = max(peak, site.rss_mib())
    caller.stop()
    await asyncio.to_thread(thread.join)
    return Siege(
        growth_mib=peak - before,
        waits=tuple(caller.waits),
        failures=tuple(caller.failures),
        attacks=orjson.loads((await ended)[0]),
    )


def review_costs() -> dict[str, float]:
    """Return the milliseconds for which each hostile review keeps everybody else waiting."""
    inventory = ChangingInventory()
    handler, _ = reviewer(inventory, ())
    workloads = WorkloadHandler(
        context_of=lambda namespace: inventory.view(namespace).context,
        count_review=WebhookMetrics(version="benchmark").count_workload,
        observe_seconds=lambda _: None,
    )
    app = AdmissionApp(handler, workloads=workloads)
    found: dict[str, float] = {}
    for made in hostile_reviews():
        answer = app.at_once(made.hook.encode())
        if answer is None:
            raise RuntimeError(f"nothing answers {made.hook}")
        costs = []
        for _ in range(TIMES):
            began = time.thread_time()
            answer(made.body)
            costs.append((time.thread_time() - began) * 1e3)
        hook = "workloads" if made.hook == WORKLOADS else made.hook
        found[f"{made.name}: {hook}"] = min(costs)
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure, print tables, judge; return the exit code."""
    command = parser("Measure what strangers, tenants and a broken node can cost one replica.")
    command.add_argument("--seconds", type=float, default=60, help="of raw connections (60)")
    command.add_argument("--pods", type=int, default=1000, help="that wait for a node (1000)")
    options = command.parse_args(arguments)
    if len(os.sched_getaffinity(0)) < 2:  # noqa: PLR2004 -- the replica, and all others
        print("this process may use only one core; allow it two", file=sys.stderr)
        return CANNOT_RUN
    besieged = asyncio.run(siege(options.seconds))
    if besieged.failures:
        raise RuntimeError(f"honest reviews failed: {besieged.failures[:5]}")
    costs, doors = review_costs(), try_all_doors()
    boards = worst_boards()
    growth = asyncio.run(pending_growth(options.pods))
    print(_render(costs, boards, doors))
    figures = {
        "attacks": besieged.attacks,
        "honest_reviews": len(besieged.waits),
        "honest_max_ms": max(besieged.waits),
        "first_pending_mib": growth.first_mib,
        "reviews_ms": costs,
        "boards_ms": boards,
        "doors": list(doors.breaches),
        "untried": doors.untried,
        "breaches": {name: found for name, found in doors.breaches.items() if found},
    }
    judged = [
        Bar(name="rss_growth_mib", value=besieged.growth_mib, limit=64, at_most=True),
        Bar(name="honest_p99_ms", value=p99(besieged.waits), limit=50, at_most=True),
        Bar(name="worst_review_ms", value=max(costs.values()), limit=50, at_most=True),
        Bar(name="worst_board_ms", value=max(boards.values()), limit=50, at_most=True),
        Bar(
            name="pending_mib_per_1000",
            value=growth.more_mib * 1000 / options.pods,
            limit=8,
            at_most=True,
        ),
        Bar(name="breaches", value=sum(map(len, doors.breaches.values())), limit=0, at_most=True),
    ]
    return conclude(judged, figures, options.json)


def _render(costs: Mapping[str, float], boards: Mapping[str, float], doors: TriedDoors) -> str:
    """Lay out what costs most, how many doors were tried, and which are open."""
    parts = []
    for title, found in (("review", costs), ("board", boards)):
        rows = sorted(found.items(), key=lambda row: -row[1])[:ROWS]
        parts.append(table((title, "ms"), [(name, f"{cost:.1f}") for name, cost in rows]))
    parts.append(f"{len(doors.breaches)} doors were tried")
    parts += [f"untried: {name}: {why}" for name, why in doors.untried.items()]
    parts += [f"open: {name}: {what}" for name, found in doors.breaches.items() for what in found]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
