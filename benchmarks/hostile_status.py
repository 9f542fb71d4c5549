"""What the first question costs about a node whose status is the worst that is accepted.

Each status is new to every table and cache, and within all bounds: a node that its agent, or who
stole its token, describes as expensively as it can.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from statistics import median
from time import thread_time
from typing import Any, Final

import orjson
from structlog.testing import capture_logs

from allocator.cluster.objects import decode_gpu_node
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import IndexBuilder
from allocator.extender.pod import SchedulingPod
from allocator.ledger.assign import PodClaim, assign
from allocator.ledger.ledger import Ledger
from allocator.ledger.schema import MOST_BOARDS, MOST_GPUS, MOST_INSTANCES
from allocator.mig.board_bounds import MOST_PLAIN, MOST_PLAIN_STARTS, MOST_PROFILES
from allocator.mig.slot_policy import MOST_UNITS
from allocator.model.request import ContainerRequest, Mode, PodRequest, Stage
from allocator.model.units import MiB
from allocator.placement.choose import PlacementPolicy

Json = dict[str, Any]
RUNS: Final = 5  # of each status, each with boards and links of its own; the median counts
NAME: Final = "node"
NAMED: Final = "1g.100gb+x0"  # a profile of every board below


def costly_board(chance: Random) -> Json:
    """Return a board of the most units, profiles and starts, none of them in the same place."""
    units = range(MOST_UNITS)
    each = MOST_PLAIN_STARTS // MOST_PLAIN
    plain = [
        _profile(f"{n + 1}g.{n + 1}gb", n, sorted(chance.sample(units, each)))
        for n in range(MOST_PLAIN)
    ]
    variants = [
        _profile(f"{n % MOST_PLAIN + 1}g.{100 + n}gb+x{n}", MOST_PLAIN + n, list(units))
        for n in range(MOST_PROFILES - MOST_PLAIN)
    ]
    name = f"board {chance.getrandbits(32)}"
    return {"name": name, "slots": MOST_UNITS, "profiles": plain + variants}


def _profile(name: str, number: int, starts: Sequence[int]) -> Json:
    amounts = {"memoryMiB": 1000 + number, "sms": 1 + number}
    return {"name": name, "id": number, **amounts, "size": 1, "starts": starts}


def cut_gpus(chance: Random) -> Json:
    """Return a status of GPUs in mode mig on all the boards that there may be."""
    gpus = [_gpu(n, mode="mig", board=n % MOST_BOARDS) for n in range(MOST_GPUS)]
    instances = [
        {
            "gpu": f"GPU-{n % MOST_GPUS}",
            "profile": f"{n % MOST_PLAIN + 1}g.{n % MOST_PLAIN + 1}gb",
            "start": n % MOST_UNITS,
        }
        for n in range(MOST_INSTANCES)
    ]
    boards = [costly_board(chance) for _ in range(MOST_BOARDS)]
    return {"boards": boards, "gpus": gpus, "instances": instances}


def unreadable_instances(chance: Random) -> Json:
    """Return a status of which nearly nothing can be read."""
    status = cut_gpus(chance)
    lost = [{"gpu": f"GPU-{n}", "profile": "9g.99gb", "start": 0} for n in range(MOST_INSTANCES)]
    return {**status, "instances": lost}


def linked_gpus(chance: Random) -> Json:
    """Return a status of GPUs of which no two are linked alike."""
    ring = chance.sample(range(MOST_GPUS), MOST_GPUS)
    gpus = [_gpu(n, mode="hami-core", model="NVIDIA L4", numa=n % 2) for n in range(MOST_GPUS)]
    for place, index in enumerate(ring):
        ends = (ring[place - 1], ring[(place + 1) % MOST_GPUS])
        gpus[index]["links"] = [f"GPU-{other}" for other in ends]
    return {"gpus": gpus}


def many_devices(chance: Random) -> Json:
    """Return a status of pods without an entry whose init containers are all on other GPUs."""
    gpus = [_gpu(n, mode="hami-core", model="NVIDIA L4") for n in range(MOST_GPUS)]
    pods = [_unpromised(chance.getrandbits(64), devices=30, containers=64)]
    return {"gpus": gpus, "unpromised": pods}


def _unpromised(uid: int, *, devices: int, containers: int) -> Json:
    device = {"mode": "hami-core", "memoryMiB": 1, "cores": 0}
    return {
        "pod": {"namespace": "n", "name": "p", "uid": f"{uid:x}"},
        "since": "2026-11-21T17:00:00Z",
        "containers": [
            {
                "name": "c",
                "stage": "init",
                "devices": [{"gpu": f"{c}-{d}", **device} for d in range(devices)],
            }
            for c in range(containers)
        ],
    }


def _gpu(number: int, **more: object) -> Json:
    shown = {"uuid": f"GPU-{number}", "index": number, "memoryMiB": 80000, "healthy": True}
    return {**shown, "slots": 8, **more}


STATUSES: Final[tuple[Callable[[Random], Json], ...]] = (
    cut_gpus,
    unreadable_instances,
    linked_gpus,
    many_devices,
)


def gpu_node(status: Json) -> bytes:
    """Return the GPUNode with *status* as the API server sends it."""
    metadata = {"name": NAME, "uid": "u", "resourceVersion": "1", "generation": 1}
    known = {"inventory": f"sha256:{'0' * 64}", "driver": "1", "observedGeneration": 1}
    content = {"metadata": metadata, "spec": {"entries": []}, "status": {**known, **status}}
    return orjson.dumps(content)


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
    index = builder.index(version="1", complete=True)
    filter_nodes(index, pod, [NAME], context=FilterContext(policy=PlacementPolicy()))
    assign(ledger, claim, policy=PlacementPolicy())
    return ledger


def worst_status_ms() -> float:
    """Return the milliseconds of the most expensive first question, the median of its runs."""
    chance = Random(15)
    worst = 0.0
    with capture_logs():  # what is malformed is logged, and nobody reads it here
        for status in STATUSES:
            for request in requests(mode_of(status(chance))):
                raws = [gpu_node(status(chance)) for _ in range(RUNS)]
                worst = max(worst, median(_milliseconds(raw, request) for raw in raws))
    return worst


def _milliseconds(raw: bytes, request: PodRequest) -> float:
    began = thread_time()
    first_question(raw, request)
    return 1000 * (thread_time() - began)
