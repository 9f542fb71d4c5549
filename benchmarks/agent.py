"""Latency of Allocate, PreStartContainer and owner lookups over the real socket.

A kubelet of ours, on real gRPC sockets and with kubelet's rate limit, admits pods one by one and
starts them; our device plugin, its identity, slots, CDI documents and regions are the real ones.
The ledger and the MIG instances answer from memory: an instance that is there is what the bar is
for.

Whether an owner is the right one is read from the slot's document in the moment that its start was
granted, as a container runtime would. What the agent costs is `benchmarks/agent_node.py`'s to
tell, of the program itself.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from typing import Final

import orjson

from agent.deviceplugin.cdi import file_name
from agent.node.process_files import Processes
from agent.region.library_files import install_simulated
from agent.region.region_files import RegionFiles
from allocator.catalog.injection import HOST_ROOT
from allocator.model.allocation import Grant
from benchmarks.agent_node import Cost, cost
from benchmarks.report import Bar, conclude, p99, parser, table
from tests.builders.model import mig_grant, soft_grant
from tests.fakes.kubelet_list import Held
from tests.integration.agent.starting import Site, running

PODS: Final = 200  # whose calls are timed, one after the other
STARTS: Final = 1000  # at once, as many as slots in each of so many rounds
ROUNDS: Final = 5
ALLOCATE: Final = 20.0  # milliseconds
PRESTART: Final = 50.0
RSS: Final = 120.0  # MB
CPU: Final = 1.0  # percent of one core
PROFILES: Final = (("1g.5gb", range(7)), ("2g.10gb", (0, 2, 4)), ("3g.20gb", (0, 4)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWaits:
    """Milliseconds that kubelet waited, call by call."""

    allocate: tuple[float, ...]
    prestart: tuple[float, ...]


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, judge; return the exit code."""
    command = parser(
        "Measure Allocate, PreStartContainer, owner lookups and what the agent itself costs."
    )
    command.add_argument(
        "--seconds", type=float, default=40, help="how long to measure the agent (40)"
    )
    options = command.parse_args(arguments)
    waits = asyncio.run(time_calls())
    wrong = asyncio.run(count_wrong())
    spent = asyncio.run(cost(options.seconds))
    print(_render(waits, spent))
    figures = {"waits": asdict(waits), "starts": STARTS, "cost": asdict(spent)}
    return conclude(bars(waits, wrong, spent), figures, options.json)


def bars(waits: StartWaits, wrong: int, spent: Cost) -> list[Bar]:
    """Judge what kubelet waited, how many owners were wrong, and what the agent cost."""
    return [
        Bar(name="allocate_p99_ms", value=p99(waits.allocate), limit=ALLOCATE, at_most=True),
        Bar(name="prestart_p99_ms", value=p99(waits.prestart), limit=PRESTART, at_most=True),
        Bar(name="wrong_owner", value=wrong, limit=0, at_most=True),
        Bar(name="rss_mb", value=spent.rss_mb, limit=RSS, at_most=True),
        Bar(name="cpu_pct", value=spent.cpu_pct, limit=CPU, at_most=True),
    ]


async def time_calls() -> StartWaits:
    """Time the calls of pods that come one after the other and stay."""
    chance = Random(5)
    allocate, prestart = [], []
    async with running(count=PODS) as site:
        _with_regions(site)
        for i in range(PODS):
            promise(site, f"uid-{i}", chance)
            held = await site.kubelet.admit(f"uid-{i}", f"uid-{i}")
            began = time.perf_counter()
            await site.kubelet.prestart(held.slots)
            prestart.append((time.perf_counter() - began) * 1e3)
            allocate.append(held.waited * 1e3)
            _check(site, held)
    return StartWaits(allocate=tuple(allocate), prestart=tuple(prestart))


async def count_wrong() -> int:
    """Start many at once, hand their slots on, and count who found another's content."""
    chance = Random(7)
    slots = STARTS // ROUNDS
    wrong = 0
    async with running(count=slots) as site:
        _with_regions(site)
        for turn in range(ROUNDS):
            helds = []
            for i in range(slots):
                uid = f"uid-{turn}-{i}"
                promise(site, uid, chance)
                helds.append(await site.kubelet.admit(uid, uid))
            wrong += sum(await asyncio.gather(*(_is_wrong(site, held) for held in helds)))
            for held in helds:
                site.kubelet.forget(held.uid)
    return wrong


async def _is_wrong(site: Site, held: Held) -> bool:
    await site.kubelet.run(held)
    return not right(site, held)


def _check(site: Site, held: Held) -> None:
    if not right(site, held):
        raise RuntimeError(f"{held.pod} got the share of another pod")


def right(site: Site, held: Held) -> bool:
    """Say whether the document of a container's slot has what the container was promised."""
    path = site.root / "cdi" / file_name(min(held.slots))
    (device,) = orjson.loads(path.read_bytes())["devices"]
    env = dict(entry.split("=", 1) for entry in device["containerEdits"]["env"])
    (grant,) = site.ledger.shares[held.uid, held.container]
    if grant.placed is not None:
        return bool(env["NVIDIA_VISIBLE_DEVICES"] == f"MIG-{grant.gpu}-{grant.placed.start}")
    mounts = device["containerEdits"].get("mounts", ())
    own = f"/{held.uid}_{held.container}/"
    return (
        bool(env["NVIDIA_VISIBLE_DEVICES"] == grant.gpu)
        and env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{grant.memory}m"
        and any(own in mount["hostPath"] for mount in mounts)
    )


def promise(site: Site, uid: str, chance: Random) -> None:
    """Promise one of few shapes, so that many are equal, on a GPU that is this pod's alone."""
    site.ledger.promise(uid, uid, _grant(f"GPU-{uid}", chance))


def _grant(gpu: str, chance: Random) -> Grant:
    if chance.random() < 0.5:  # noqa: PLR2004 -- half of them
        return soft_grant(chance.choice((2000, 4000, 6000)), chance.choice((0, 25)), gpu=gpu)
    name, starts = chance.choice(PROFILES)
    return mig_grant(name, chance.choice(tuple(starts)), gpu=gpu)


def _with_regions(site: Site) -> None:
    """Seed real regions below the site's folder."""
    folder = site.root / HOST_ROOT.lstrip("/")
    site.ledger.regions = RegionFiles(folder, Processes(), library=install_simulated(folder))


def _render(waits: StartWaits, spent: Cost) -> str:
    measured = {
        "Allocate": waits.allocate,
        "PreStartContainer": waits.prestart,
        "PreStartContainer, whole program": spent.starts,
    }
    rows = [
        (name, f"{median(of):.2f}", f"{p99(of):.2f}", f"{max(of):.2f}")
        for name, of in measured.items()
    ]
    return table(("call", "p50 ms", "p99 ms", "max ms"), rows) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
