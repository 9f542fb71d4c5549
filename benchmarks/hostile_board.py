"""What one node's status may cost: decoding it, and the first questions about the node.

``python -m benchmarks.hostile_board NAME`` measures one of :func:`boards` and prints milliseconds.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import orjson

from allocator.config.settings import DEFAULTS
from allocator.extender.index import IndexBuilder
from allocator.extender.score import scorer
from allocator.ledger.decode import decode_text
from allocator.model.request import FillPolicy, Mode
from allocator.placement.choose import choose
from benchmarks.extender import POD
from benchmarks.extender_server import ChangingFleet, our_extender
from tests.builders.model import ask, pod

Json = dict[str, Any]
NAME: Final = "bad"
GPUS: Final = 64
LIMIT: Final = 30.0  # seconds for one board; whatever takes longer counts as that
SLOTS: Final = (7, 8, 12, 16)
PROFILES: Final = (8, 16, 32, 64)


def boards() -> Mapping[str, bytes]:
    """Return GPUNodes in JSON: ever larger boards, odd ones, and texts that no driver has."""
    found = {
        f"{slots} slots, {count} profiles, {kind}": _node([_board(slots, count, kind)])
        for slots, count, kind in product(SLOTS, PROFILES, ("small", "mixed"))
    }
    found["64 boards"] = _node([_board(8, 16, "mixed", name=f"b{n}") for n in range(64)])
    found["control characters"] = _node([_board(8, 8, "mixed")], model="A\x1b[31m100\n")
    return found


def _board(slots: int, count: int, kind: str, *, name: str = "b") -> Json:
    profiles = [_profile(slots, number, kind) for number in range(count)]
    return {"name": name, "slots": slots, "profiles": profiles}


def _profile(slots: int, number: int, kind: str) -> Json:
    size = 1 if kind == "small" else 1 + number % slots
    return {
        "name": f"{1 + number % 7}g.{number + 1}gb",
        "id": number,
        "memoryMiB": 1000 + number,
        "sms": 14 + number,
        "size": size,
        "starts": list(range(slots - size + 1)),
    }


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


def cost_ms(text: bytes) -> float:
    """Return the milliseconds of decoding a GPUNode, and of the first questions about it."""
    began = time.thread_time()
    node = decode_text(text).node
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
    return (time.thread_time() - began) * 1e3


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
    cost_ms(boards()["7 slots, 8 profiles, small"])  # so that nothing is loaded for the first time
    print(cost_ms(boards()[name]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
