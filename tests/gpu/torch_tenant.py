"""A PyTorch program that does what it is told: run as a script by a Python that has PyTorch.

It obeys as ``tenant.py`` does, with orders of its own. What it asks of the GPU is what PyTorch and
its libraries ask, which is the point: they launch kernels in ways that no program of ours does.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found] # of the machine that is checked

Answer = dict[str, Any]
OUT_OF_MEMORY = 2  # code, as the driver's
EDGE = 4096  # rows and columns of a matrix: a product takes about 0.2 ms on a fast GPU
AT_ONCE = 20  # operations between two looks at the clock
STEP = 1 << 30  # bytes of one tensor
Work = Callable[[], object]


def info(_: Answer) -> Answer:
    """Return what PyTorch says of the device's memory."""
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    return {"free": free, "total": total, "device_total": properties.total_memory}


def fill(order: Answer) -> Answer:
    """Make tensors of one GiB until PyTorch raises its error, or ``most`` bytes are held."""
    held: list[torch.Tensor] = []
    refused = ""
    try:
        while len(held) * STEP < order["most"]:
            held.append(torch.empty(STEP, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        refused = str(error)[:200]
    given = len(held) * STEP
    held.clear()
    torch.cuda.empty_cache()
    return {"given": given, "refused": refused}


def compute(order: Answer) -> Answer:
    """Compute without a pause for ``seconds``, and return how many operations that were."""
    work = WORK[order["work"]]()
    launches, began = 0, time.monotonic()
    while time.monotonic() - began < order["seconds"]:
        for _ in range(AT_ONCE):
            work()
        torch.cuda.synchronize()
        launches += AT_ONCE
    return {"launches": launches, "seconds": time.monotonic() - began}


def _product(dtype: torch.dtype) -> Work:
    matrix = torch.randn(EDGE, EDGE, device="cuda", dtype=dtype)
    return lambda: matrix @ matrix


def _elementwise() -> Work:
    values = torch.ones(1 << 27, device="cuda", dtype=torch.float16)
    return lambda: values.mul_(1.0)


def _graph() -> Work:
    """Return the replay of a recorded product, which launches no kernel by itself."""
    matrix = torch.randn(EDGE, EDGE, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        matrix @ matrix
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        matrix @ matrix
    replay: Work = graph.replay
    return replay


WORK: dict[str, Callable[[], Work]] = {
    "bfloat16": lambda: _product(torch.bfloat16),
    "float32": lambda: _product(torch.float32),
    "elementwise": _elementwise,
    "graph": _graph,
}
ORDERS = {"info": info, "fill": fill, "compute": compute}


def main() -> None:
    """Obey until the input ends; a parent that dies takes this process along."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"code": 0, **ORDERS[order["order"]](order)}
        except torch.cuda.OutOfMemoryError as error:
            answer = {"code": OUT_OF_MEMORY, "call": str(error)[:200]}
        except RuntimeError as error:  # whatever else the driver refuses
            answer = {"code": -1, "call": str(error)[:200]}
        print(json.dumps({**answer, "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main()
