"""Checks with PyTorch, whose libraries launch kernels in ways that no program of ours does.

They are made where a Python of this machine has PyTorch and sees a GPU by it.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.gpu.container import MIB, PATIENCE, Bench, CudaProcess
from tests.gpu.enforcement import CORES, TOLERANCE, new_slice, pace, watched
from tests.gpu.hardware import pids_hidden
from tests.gpu.report import FailedError, Figures, SkippedError

PROGRAM: Final = Path(__file__).with_name("torch_tenant.py")
LIMITED: Final = ("bfloat16", "float32", "elementwise")  # kinds of work that a limit must hold
GRAPH: Final = "graph"  # the library does not intercept CUDA graphs
ALL: Final = (*LIMITED, GRAPH)
# Kinds of work that a cap on multiprocessors holds: few of them can use most of the bandwidth.
COMPUTING: Final = ("bfloat16", "float32", GRAPH)
_SETTLING: Final = 1.5  # times the length of a check, until the agent has stepped in
_FREE_SECONDS: Final = 2.0  # of each kind of work, on a free GPU
_TRY: Final = "import torch; print(torch.__version__ if torch.cuda.is_available() else '')"


def check_memory(bench: Bench, library: Path, figures: Figures) -> None:
    """Expect PyTorch to see the slice as the whole memory, and to be refused what is beyond."""
    words = torch_words(figures)
    with new_slice(bench, library) as container:
        program = container.start(words)
        told = program.figures("info")
        limit = container.limit * MIB
        figures["totals_mib"] = [str(told[name] // MIB) for name in ("total", "device_total")]
        filled = program.figures("fill", most=2 * limit)
        figures |= {"slice_mib": int(container.limit), "given_mib": filled["given"] // MIB}
        if {told["total"], told["device_total"]} != {limit}:
            raise FailedError(f"PyTorch does not see the slice of {container.limit} MiB")
        if not limit // 2 <= filled["given"] <= limit or "out of memory" not in filled["refused"]:
            raise FailedError(f"{filled['given'] // MIB} MiB were given: {filled['refused']}")


def check_compute(bench: Bench, library: Path, figures: Figures, *, seconds: float) -> None:
    """Expect kernels of PyTorch's to run at about the promised share of a free GPU's pace."""
    words = torch_words(figures)
    if pids_hidden():
        raise SkippedError("NVML lists pids of the node, so the library cannot find its own here")
    full = free_paces(bench, words)
    with new_slice(bench, library) as container:
        program = container.start(words)
        watched(container, program, "compute", seconds=_SETTLING * seconds, work=LIMITED[0])
        shares = {
            work: 100 * pace(watched(container, program, "compute", seconds=seconds, work=work)[0])
            / full[work]
            for work in ALL
        }  # fmt: skip
    judge(shares, LIMITED, figures)


def free_paces(bench: Bench, words: Sequence[str]) -> dict[str, float]:
    """Return the operations per second of each kind of work, without any limit."""
    with bench.program(words) as program:
        return _paces(program)


def shares_of(program: CudaProcess, full: Mapping[str, float]) -> dict[str, float]:
    """Return the pace of *program* at each kind of work, in percent of *full*."""
    return {work: 100 * each / full[work] for work, each in _paces(program).items()}


def _paces(program: CudaProcess) -> dict[str, float]:
    for work in ALL:  # the first of each kind loads its code
        program.figures("compute", seconds=0.1, work=work)
    return {
        work: pace(program.figures("compute", seconds=_FREE_SECONDS, work=work)) for work in ALL
    }


def judge(shares: Mapping[str, float], judged: Sequence[str], figures: Figures) -> None:
    """Note *shares* in percent; raise FailedError where a *judged* one is beyond the promise."""
    figures |= {"promised_percent": CORES}
    figures["pace_percent"] = {work: round(share) for work, share in shares.items()}
    beyond = [work for work in judged if shares[work] > CORES + TOLERANCE]
    if beyond:
        told = ", ".join(f"{work} at {shares[work]:.0f} %" for work in beyond)
        raise FailedError(f"beyond {CORES} % of a free GPU's pace: {told}")


def torch_words(figures: Figures) -> Sequence[str]:
    """Return the words that start the program; skips the check where there is no PyTorch."""
    python, version = _python_with_torch()
    figures["pytorch"] = version
    return (python, "-I", str(PROGRAM))


@cache
def _python_with_torch() -> tuple[str, str]:
    """Return a Python that has PyTorch, and PyTorch's version."""
    for python in dict.fromkeys((shutil.which("python3"), sys.executable)):
        if python is None:
            continue
        tried = subprocess.run(
            [python, "-I", "-c", _TRY],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        if tried.returncode == 0 and tried.stdout.strip():
            return python, tried.stdout.strip()
    raise SkippedError("no python3 here has PyTorch and sees a GPU by it")
