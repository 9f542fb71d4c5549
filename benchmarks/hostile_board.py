"""What the first question about a node costs whose status is the worst that is accepted, or worse.

``python -m benchmarks.hostile_board NAME`` measures one of :data:`MEASURED`, prints milliseconds.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from statistics import median
from time import thread_time
from typing import Final

from structlog.testing import capture_logs

from allocator.cluster.objects import decode_gpu_node
from allocator.config.settings import DEFAULTS
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import IndexBuilder
from allocator.extender.pod import SchedulingPod
from allocator.extender.prioritize import score_nodes
from allocator.extender.score import scorer
from allocator.ledger.assign import PodClaim, assign
from allocator.ledger.ledger import Ledger
from allocator.ledger.schema import MOST_GPUS
from allocator.model.request import ContainerRequest, FillPolicy, Mode, PodRequest, Stage
from allocator.model.units import MiB
from allocator.placement.choose import PlacementPolicy
from benchmarks.hostile_status import (
    BEYOND,
    LARGEST,
    NAME,
    NAMED,
    STATUSES,
    Json,
    MakeStatus,
    gpu_node,
)

RUNS: Final = 5  # of a status by chance, each with boards and links of its own; the median counts
LIMIT: Final = 30.0  # seconds for one status; whatever takes longer counts as that
BY_CHANCE: Final[Mapping[str, MakeStatus]] = {status.__name__: status for status in STATUSES}
MEASURED: Final[Mapping[str, MakeStatus]] = {**BY_CHANCE, **LARGEST, **BEYOND}


def requests(mode: Mode) -> Iterator[PodRequest]:
    """Yield what is asked about each: one GPU, several, a named profile, and more than there is."""
    for count, memory in ((1, 900), (MOST_GPUS // 2, 900), (1, 10**6)):
        yield _request(mode, count=count, memory=memory)
    if mode is Mode.MIG:
        yield _request(mode, count=1, memory=None, profile=NAMED)


def mode_of(status: Json) -> Mode:
    """Return the mode of the GPUs of *status*."""
    return Mode(status["gpus"][0]["mode"])


def _request(
    mode: Mode, *, count: int, memory: int | None, profile: str | None = None
) -> PodRequest:
    amount = None if memory is None else MiB(memory)
    asked = ContainerRequest(name="c", index=0, stage=Stage.APP, count=count, memory=amount)
    return PodRequest(vocabulary="volcano", containers=(asked,), mode=mode, profile=profile)


def first_question(raw: bytes, request: PodRequest) -> Ledger:
    """Read a GPUNode, ask whether its node takes a pod, and bind the pod there."""
    ledger = decode_gpu_node(raw, lambda _: None)
    builder = IndexBuilder()
    if ledger.node.gpus:
        builder.put(ledger.node, ledger.entries, closed=bool(ledger.closed))
    claim = PodClaim(uid="p", request=request)
    pod = SchedulingPod(uid="p", namespace="n", name="p", claim=claim)
    scorers = [scorer(packing, DEFAULTS.score_weights) for packing in FillPolicy]
    index = builder.index(version="1", complete=True, scorers=scorers)
    filter_nodes(index, pod, [NAME], context=FilterContext(policy=PlacementPolicy()))
    fill_policy = DEFAULTS.node_policy
    score_nodes(index, pod, [NAME], weights=DEFAULTS.score_weights, fill_policy=fill_policy)
    assign(ledger, claim, policy=PlacementPolicy())
    return ledger


def cost_ms(name: str) -> float:
    """Return the milliseconds of the most expensive first question about one of MEASURED.

    A status that is always the same is new only once, so its first run counts. Raises
    ``RuntimeError`` where one within our bounds is not read, or one beyond them is.
    """
    chance, status = Random(15), MEASURED[name]
    runs = RUNS if name in BY_CHANCE else 1
    worst = 0.0
    with capture_logs():  # what is malformed is logged, and nobody reads it here
        for request in requests(mode_of(status(chance))):
            raws = [gpu_node(status(chance)) for _ in range(runs)]
            worst = max(worst, median(_milliseconds(raw, request, name) for raw in raws))
    return worst


def _milliseconds(raw: bytes, request: PodRequest, name: str) -> float:
    began = thread_time()
    ledger = first_question(raw, request)
    spent = 1000 * (thread_time() - began)
    if bool(ledger.node.gpus) is (name in BEYOND):
        raise RuntimeError(f"{name}: {len(ledger.node.gpus)} GPUs are read")
    return spent


def worst_boards() -> dict[str, float]:
    """Return the milliseconds of each of MEASURED, every one in a process of its own."""
    return {name: _cost_apart(name) for name in MEASURED}


def _cost_apart(name: str) -> float:
    command = [sys.executable, "-m", "benchmarks.hostile_board", name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT, check=True)
    except subprocess.TimeoutExpired:
        return LIMIT * 1e3
    return float(done.stdout)


def main(arguments: Sequence[str]) -> int:
    """Measure the status that is named."""
    (name,) = arguments
    cost_ms("linked_gpus")  # so that nothing is loaded for the first time
    print(cost_ms(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
