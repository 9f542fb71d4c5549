"""What a broken or hostile agent may say of its node: as much as is read, and more than that.

Each status within our bounds is as dear as can be: a node that its agent, or who stole its token,
describes as expensively as it can. Those by chance are new to every table and cache each time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Any, Final

import orjson

from allocator.ledger.schema import MOST_BOARDS, MOST_GPUS, MOST_INSTANCES
from allocator.mig.board_bounds import MOST_PLAIN, MOST_PLAIN_STARTS, MOST_PROFILES
from allocator.mig.slot_policy import MOST_UNITS

Json = dict[str, Any]
MakeStatus = Callable[[Random], Json]
NAME: Final = "node"
NAMED: Final = "1g.100gb+x0"  # a profile of every board by chance


def gpu_node(status: Json) -> bytes:
    """Return the GPUNode with *status* as the API server sends it."""
    metadata = {"name": NAME, "uid": "u", "resourceVersion": "1", "generation": 1}
    known = {"inventory": f"sha256:{'0' * 64}", "driver": "1", "observedGeneration": 1}
    content = {"metadata": metadata, "spec": {"entries": []}, "status": {**known, **status}}
    return orjson.dumps(content)


def _gpu(number: int, **more: object) -> Json:
    shown = {"uuid": f"GPU-{number}", "index": number, "memoryMiB": 80000, "healthy": True}
    return {**shown, "slots": 8, **more}


def _board(name: str, slots: int, profiles: Iterable[Json]) -> Json:
    numbered = [
        {**profile, "id": n, "memoryMiB": 1000 + n, "sms": 1 + n}
        for n, profile in enumerate(profiles)
    ]
    return {"name": name, "slots": slots, "profiles": numbered}


def _profile(name: str, starts: Iterable[int], *, size: int = 1) -> Json:
    return {"name": name, "size": size, "starts": list(starts)}


def _cut(boards: Sequence[Json]) -> Json:
    """Return a status of the most GPUs in mode mig, which are cut as *boards* say."""
    gpus = [_gpu(n, mode="mig", board=n % len(boards)) for n in range(MOST_GPUS)]
    return {"boards": list(boards), "gpus": gpus}


def costly_board(chance: Random) -> Json:
    """Return a board of the most units, profiles and starts, none of them in the same place."""
    units = range(MOST_UNITS)
    each = MOST_PLAIN_STARTS // MOST_PLAIN
    plain = [
        _profile(f"{n + 1}g.{n + 1}gb", sorted(chance.sample(units, each)))
        for n in range(MOST_PLAIN)
    ]
    variants = [
        _profile(f"{n % MOST_PLAIN + 1}g.{100 + n}gb+x{n}", units)
        for n in range(MOST_PROFILES - MOST_PLAIN)
    ]
    return _board(f"board {chance.getrandbits(32)}", MOST_UNITS, [*plain, *variants])


def cut_gpus(chance: Random) -> Json:
    """Return a status of GPUs in mode mig on all the boards that there may be."""
    instances = [
        {
            "gpu": f"GPU-{n % MOST_GPUS}",
            "profile": f"{n % MOST_PLAIN + 1}g.{n % MOST_PLAIN + 1}gb",
            "start": n % MOST_UNITS,
        }
        for n in range(MOST_INSTANCES)
    ]
    boards = [costly_board(chance) for _ in range(MOST_BOARDS)]
    return {**_cut(boards), "instances": instances}


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


# Starts of each plain profile by the kind of a board, in the parts that its slots have.
STARTS: Final[Mapping[str, Sequence[Sequence[int]]]] = {
    "few profiles of many starts": [range(8)] * 4,
    "many profiles of few starts": [range(first, first + 4) for first in (0, 1, 2, 3, 4, 0, 2, 4)],
    "as wide as can be": [range(8), range(7), range(6), range(5), range(4), range(2)],
}


def _largest_board(slots: int, kind: str, number: int) -> Json:
    """Return a board at our bounds; each *number* has another shape."""
    part = slots // MOST_UNITS or 1
    wide = kind.startswith("as wide")
    plain = [
        _profile(
            f"{at + 1}g.{at + 1}gb",
            [start * part for start in starts],
            size=(at + 1 if wide else 1) * part,
        )
        for at, starts in enumerate(STARTS[kind])
    ]
    if slots % MOST_UNITS:  # 12 slots have four parts of three
        part = 3
        plain = [
            _profile(f"{at + 1}g.{at + 1}gb", [0, 3, 6, 9], size=3) for at in range(MOST_PLAIN)
        ]
    places = [start * part for start in range(slots // part)]
    rare = [
        _profile(f"1g.{at + 20}gb+a{at}", places, size=part)
        for at in range(MOST_PROFILES - len(plain))
    ]
    rare[0]["starts"] = places[: 1 + number % len(places)]
    return _board(f"b{number}", slots, [*plain, *rare])


def _large_boards(slots: int, kind: str, _: Random) -> Json:
    return _cut([_largest_board(slots, kind, number) for number in range(MOST_BOARDS)])


def _larger_boards(slots: int, profiles: int, _: Random, *, boards: int = 1) -> Json:
    made = [_profile(f"{1 + n % 7}g.{n + 1}gb", range(slots)) for n in range(profiles)]
    return _cut([_board(f"b{number}", slots, made) for number in range(boards)])


# By chance, and within our bounds.
STATUSES: Final[tuple[MakeStatus, ...]] = (
    cut_gpus,
    unreadable_instances,
    linked_gpus,
    many_devices,
)
# Always the same, and within our bounds.
LARGEST: Final[Mapping[str, MakeStatus]] = {
    f"{slots} slots, {kind}": partial(_large_boards, slots, kind)
    for slots, kind in product((8, 12, 16), STARTS)
}
# What no hardware has; it must not be read.
BEYOND: Final[Mapping[str, MakeStatus]] = {
    **{
        f"{slots} slots, {profiles} profiles": partial(_larger_boards, slots, profiles)
        for slots, profiles in product((8, 12, 16), (16, 64))
    },
    "64 boards": partial(_larger_boards, 8, 4, boards=64),
}
