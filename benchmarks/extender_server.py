"""The two servers of the extender benchmark; each is a process that owns one core.

Both are the product's own server on uvloop. ``ours`` is the product's own extender over a fleet of
which one node changes ten times a second. ``echo`` is the least that an extender could do: decode
the question, as fast as untyped JSON can be decoded in Python, and give the same names back.
"""

import asyncio
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import orjson
import uvloop
from starlette.applications import Starlette

from allocator.catalog.boards import MODELS
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cli.http_server import App, Listen
from allocator.config.settings import DEFAULTS
from allocator.extender.filter import FilterContext
from allocator.extender.index import Index, IndexBuilder
from allocator.extender.score import scorer
from allocator.model.allocation import Grant
from allocator.model.board import Placement
from allocator.model.gpu import Gpu, Node
from allocator.model.request import METAX, FillPolicy, Mode
from allocator.model.units import CorePercent, MiB
from allocator.placement.choose import PlacementPolicy
from webhook.binding.scheduler_pod import unbound_pod
from webhook.serve import extender_routes
from webhook.serve.extender_verbs import Extender
from webhook.serve.http import AtOnce, serve_app

HOST: Final = "127.0.0.1"
SWAP_SECONDS: Final = 0.1
SEED: Final = 20261121
GPUS: Final = 8
BUSY: Final = 6
AMOUNTS: Final = (1000, 2000, 3000, 4000, 5000, 6000, 8000, 10000, 12000)  # MiB
CORES: Final = (0, 10, 20, 30)
SCORERS: Final = [scorer(packing, DEFAULTS.score_weights) for packing in FillPolicy]
MODEL: Final = MODELS["NVIDIA A100-SXM4-40GB"]
METAX_MEMORY: Final = MiB(65536)  # of a C500
METAX_SLOTS: Final = 16


class ExtenderKind(StrEnum):
    """Which server."""

    OURS = "ours"
    ECHO = "echo"


class FleetKind(StrEnum):
    """Whose GPUs the nodes have."""

    NVIDIA = "nvidia"
    MIXED = "mixed"  # a third of the nodes have MetaX's, shared


def names(count: int) -> list[str]:
    """Return what the nodes of a fleet are called."""
    return [f"gpu-node-{i:05d}" for i in range(count)]


def fleet(count: int, kind: FleetKind = FleetKind.NVIDIA) -> Iterator[Node]:
    """Yield nodes with 8 GPUs of which 6 are busy, every third cut by MIG, no two much alike."""
    rng = random.Random(SEED)
    last = Mode.SGPU if kind is FleetKind.MIXED else Mode.HAMI_CORE
    modes = (Mode.MIG, Mode.HAMI_CORE, last)
    for number, name in enumerate(names(count)):
        mode = modes[number % len(modes)]
        busy = set(rng.sample(range(GPUS), BUSY))
        gpus = (_gpu(f"GPU-{name}-{i}", i, mode) for i in range(GPUS))
        yield Node(
            name=name,
            gpus=tuple(_with_grants(gpu, rng) if gpu.index in busy else gpu for gpu in gpus),
        )


def _gpu(uuid: str, index: int, mode: Mode) -> Gpu:
    if mode is Mode.SGPU:
        return Gpu(
            uuid=uuid,
            index=index,
            model="C500",
            memory=METAX_MEMORY,
            mode=mode,
            slots=METAX_SLOTS,
            family=METAX,
        )
    return Gpu(
        uuid=uuid,
        index=index,
        model=MODEL.name,
        memory=MODEL.memory,
        mode=mode,
        slots=10,
        board=MODEL.board if mode is Mode.MIG else None,
    )


def _with_grants(gpu: Gpu, rng: random.Random) -> Gpu:
    """Return *gpu* with one to three grants that fit beside each other."""
    if gpu.board is not None:
        profile = rng.choice(gpu.board.plain)
        placed = Placement(profile, rng.choice(profile.starts))
        cut = Grant(
            gpu=gpu.uuid, mode=Mode.MIG, memory=profile.memory, cores=CorePercent(0), placed=placed
        )
        return replace(gpu, grants=(cut,))
    grants = (
        Grant(
            gpu=gpu.uuid,
            mode=gpu.mode,
            memory=MiB(rng.choice(AMOUNTS)),
            cores=CorePercent(rng.choice(CORES)),
        )
        for _ in range(rng.randint(1, 3))
    )
    return replace(gpu, grants=tuple(grants))


@dataclass(slots=True)
class ChangingFleet:
    """A fleet of which one GPU falls ill or recovers at every turn."""

    nodes: list[Node]
    indexer: IndexBuilder = field(default_factory=IndexBuilder)
    turns: int = 0
    folded: Index | None = None

    def __post_init__(self) -> None:
        for node in self.nodes:
            self.indexer.put(node)

    def change_node(self) -> None:
        """Change one node."""
        self.turns += 1
        at = self.turns % len(self.nodes)
        first, *others = self.nodes[at].gpus
        changed = replace(first, healthy=not first.healthy)
        self.nodes[at] = replace(self.nodes[at], gpus=(changed, *others))
        self.indexer.put(self.nodes[at])
        self.folded = None

    async def run(self) -> None:
        """Turn for ever."""
        while True:
            await asyncio.sleep(SWAP_SECONDS)
            self.change_node()

    def index(self) -> Index:
        """Return the fleet as it is now."""
        if self.folded is None:
            self.folded = self.indexer.index(
                version=str(self.turns), complete=True, scorers=SCORERS
            )
        return self.folded


def our_extender(fleet: ChangingFleet) -> Extender:
    """Return the product's extender over *fleet*."""
    circumstances = FilterContext(policy=PlacementPolicy())
    return Extender(
        index=fleet.index,
        read_pod=lambda raw: unbound_pod(raw, VOCABULARIES),
        settings=lambda: DEFAULTS,
        context_of=lambda _: circumstances,
    )


def echo(body: bytes) -> tuple[int, bytes]:
    """Give the names of a question back."""
    found = orjson.loads(body)["NodeNames"]
    answer = {
        "Nodes": None,
        "NodeNames": found,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    return 200, orjson.dumps(answer)


async def run(kind: ExtenderKind, count: int, gpus: FleetKind) -> None:
    """Serve until standard input ends; say the port first."""
    async with asyncio.TaskGroup() as group:
        tasks = []
        answers: Mapping[bytes, AtOnce] = {b"/extender/filter": echo}
        rest: App = Starlette()
        if kind is ExtenderKind.OURS:
            changing = ChangingFleet(list(fleet(count, gpus)))
            found = our_extender(changing)
            answers, rest = extender_routes.immediate_answers(found), extender_routes.app(found)
            tasks = [group.create_task(changing.run())]
        listen = Listen(HOST, 0)
        most = extender_routes.LARGEST_AT_ONCE
        async with serve_app(rest, listen, at_once=answers.get, largest=most) as port:
            sys.stdout.buffer.write(orjson.dumps({"port": port}, option=orjson.OPT_APPEND_NEWLINE))
            sys.stdout.buffer.flush()
            await asyncio.to_thread(sys.stdin.buffer.read)
        for task in tasks:
            task.cancel()


def main(arguments: Sequence[str]) -> int:
    """Run ``KIND NODES CORE GPUS``."""
    kind, count, core, gpus = arguments
    os.sched_setaffinity(0, {int(core)})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(ExtenderKind(kind), int(count), FleetKind(gpus)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
