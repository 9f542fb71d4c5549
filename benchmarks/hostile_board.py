"""What one node's status may cost: decoding it, and the first questions about the node.

``python -m benchmarks.hostile_board NAME`` measures one of :func:`boards` and prints milliseconds.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final

import orjson

from allocator.config.settings import DEFAULTS
from allocator.extender.index import IndexBuilder
from allocator.extender.score import scorer
from allocator.ledger.decode import decode_text
from allocator.ledger.schema import MOST_BOARDS
from allocator.mig.board_bounds import MOST_PLAIN, MOST_PROFILES
from allocator.mig.slot_policy import MOST_UNITS
from allocator.model.request import FillPolicy, Mode
from allocator.placement.choose import choose
from benchmarks.extender import POD
from benchmarks.extender_server import ChangingFleet, our_extender
from tests.builders.model import ask, pod

Json = dict[str, Any]
NAME: Final = "bad"
GPUS: Final = 64
LIMIT: Final = 30.0  # seconds for one board; whatever takes longer counts as that


def boards() -> Mapping[str, bytes]:
    """Return GPUNodes in JSON: as large as is read, larger ones, and texts that no driver has."""
    within = {
        f"within bounds, {slots} slots, {kind}": _node(
            [_largest(slots, kind, number) for number in range(MOST_BOARDS)]
        )
        for slots, kind in product((8, 12, 16), STARTS)
    }
    beyond = {
        f"{slots} slots, {count} profiles": _node([_board(slots, count)])
        for slots, count in product((8, 12, 16), (16, 64))
    }
    beyond["64 boards"] = _node([_board(8, 16, name=f"b{n}") for n in range(64)])
    beyond["control characters"] = _node([_board(8, 8)], model="A\x1b[31m100\n")
    return within | beyond


# Starts of each plain profile by the kind of a board, in the parts that its slots have.
STARTS: Final[Mapping[str, Sequence[Sequence[int]]]] = {
    "few profiles of many starts": [range(8)] * 4,
    "many profiles of few starts": [range(first, first + 4) for first in (0, 1, 2, 3, 4, 0, 2, 4)],
    "as wide as can be": [range(8), range(7), range(6), range(5), range(4), range(2)],
}


def _largest(slots: int, kind: str, number: int) -> Json:
    """Return a board at our bounds; each *number* has another shape."""
    part = slots // MOST_UNITS or 1
    wide = kind.startswith("as wide")
    plain = [
        _profile(
            f"{at + 1}g.{at + 1}gb", (at + 1 if wide else 1) * part, [s * part for s in starts]
        )
        for at, starts in enumerate(STARTS[kind])
    ]
    if slots % MOST_UNITS:  # 12 slots have four parts of three
        part = 3
        plain = [_profile(f"{at + 1}g.{at + 1}gb", 3, [0, 3, 6, 9]) for at in range(MOST_PLAIN)]
    places = [start * part for start in range(slots // part)]
    rare = [
        _profile(f"1g.{at + 20}gb+a{at}", part, places) for at in range(MOST_PROFILES - len(plain))
    ]
    rare[0]["starts"] = places[: 1 + number % len(places)]
    return {"name": f"b{number}", "slots": slots, "profiles": _numbered([*plain, *rare])}


def _board(slots: int, count: int, *, name: str = "b") -> Json:
    profiles = [
        _profile(f"{1 + number % 7}g.{number + 1}gb", 1, range(slots)) for number in range(count)
    ]
    return {"name": name, "slots": slots, "profiles": _numbered(profiles)}


def _profile(name: str, size: int, starts: Iterable[int]) -> Json:
    return {"name": name, "size": size, "starts": list(starts)}


def _numbered(profiles: Sequence[Json]) -> list[Json]:
    return [
        {**profile, "id": number, "memoryMiB": 1000 + number, "sms": 14 + number}
        for number, profile in enumerate(profiles)
    ]


def _node(made: Sequence[Json], *, model: str = "NVIDIA H100 80GB HBM3") -> bytes:
    gpus = [
        {
            "uuid": f"GPU-{number:08d}-0000-0000-0000-000000000000",
            "index": number,
            "memoryMiB": 80_000,
            "slots": 7,
            "mode": "mig",
            "healthy": True,
            "model": model,
            "board": number % len(made),
        }
        for number in range(GPUS)
    ]
    node = {
        "apiVersion": "vgpu-admission.io/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": NAME, "uid": "u", "resourceVersion": "1"},
        "spec": {"entries": []},
        "status": {"bootID": "b", "boards": list(made), "gpus": gpus},
    }
    return json.dumps(node).encode()


def cost_ms(text: bytes, *, within: bool = False) -> float:
    """Return the milliseconds of decoding a GPUNode, and of the first questions about it.

    Raises ``RuntimeError`` where one *within* our bounds is not read.
    """
    began = time.thread_time()
    decoded = decode_text(text)
    node = decoded.node
    fleet = ChangingFleet.__new__(ChangingFleet)
    builder = IndexBuilder()
    builder.put(node)
    scorers = [scorer(packing, DEFAULTS.score_weights) for packing in FillPolicy]
    fleet.folded = builder.index(version="1", complete=True, scorers=scorers)
    extender = our_extender(fleet)
    body = orjson.dumps({"Pod": POD, "Nodes": None, "NodeNames": [NAME]})
    extender.filter(body)
    extender.prioritize(body)
    choose(fleet.folded.snapshot, pod(ask(2000), mode=Mode.MIG), node=NAME)
    spent = (time.thread_time() - began) * 1e3
    if within and (decoded.problems or not node.gpus):
        raise RuntimeError(f"a board within our bounds is not read: {decoded.problems[:1]}")
    return spent


def worst_boards() -> dict[str, float]:
    """Return the milliseconds of each board, every one in a process of its own."""
    return {name: _cost_apart(name) for name in boards()}


def _cost_apart(name: str) -> float:
    command = [sys.executable, "-m", "benchmarks.hostile_board", name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT, check=True)
    except subprocess.TimeoutExpired:
        return LIMIT * 1e3
    return float(done.stdout)


def main(arguments: Sequence[str]) -> int:
    """Measure the board that is named."""
    (name,) = arguments
    cost_ms(boards()["control characters"])  # so that nothing is loaded for the first time
    print(cost_ms(boards()[name], within=name.startswith("within")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
