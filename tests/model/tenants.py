"""Tenants, who write what they like on their pods at any time: it changes no accounting (S13).

Our policies refuse most of it. Here they are off, and everything lands.
"""

import copy
import re
from collections.abc import Callable
from typing import Final

import orjson

from allocator.catalog.keys import (
    ALLOCATION_KEYS,
    ASKED_KEY,
    ASSIGNMENT_KEY,
    MODE_KEY,
    MODE_SOURCE_KEY,
    PROFILE_KEY,
    SERVED_BY_KEY,
)
from allocator.catalog.vocabularies import OWN
from tests.builders.gpunodes import Json
from tests.builders.pods import MODE
from tests.model.cluster import World

HUGE: Final = 2**63
TEXTS: Final = ("", "null", "[]", "-1", str(HUGE), "{", "n1", "mig", "hami-core", "upstream", "∞")
KEYS: Final = (
    *sorted(ALLOCATION_KEYS),
    ASKED_KEY,
    ASSIGNMENT_KEY,
    MODE,
    MODE_KEY,
    MODE_SOURCE_KEY,
    PROFILE_KEY,
    SERVED_BY_KEY,
    f"{OWN}c0.visible",
    f"{OWN}c0.cores",
)
LISTS: Final = (
    "GPU-n1-0,NVIDIA,0,0:;",
    f"GPU-n1-1,NVIDIA,-{HUGE},-100:;",
    "GPU-n0-0[0-0],NVIDIA,24000,100:;",
    "GPU-nowhere,NVIDIA,1,1:;",
)


def forge(world: World) -> None:
    """Let a tenant write annotations and labels of one of the pods."""
    pod = copy.deepcopy(world.pods[world.rng.choice(sorted(world.pods))])
    ways: tuple[Callable[[World, Json], None], ...] = (_wipe, _anything, _anothers, _free, _list)
    world.rng.choice(ways)(world, pod["metadata"].setdefault("annotations", {}))
    pod["metadata"]["labels"] = {world.rng.choice(KEYS): world.rng.choice(TEXTS)}
    world.forged.add(pod["metadata"]["uid"])
    world.place(pod)


def _wipe(_world: World, annotations: Json) -> None:
    annotations.clear()


def _anything(world: World, annotations: Json) -> None:
    for key in world.rng.sample(KEYS, 3):
        annotations[key] = world.rng.choice(TEXTS)


def _anothers(world: World, annotations: Json) -> None:
    """Claim what another pod was told."""
    other = world.pods[world.rng.choice(sorted(world.pods))]["metadata"]
    annotations |= other.get("annotations", {})


def _free(_world: World, annotations: Json) -> None:
    """Claim to have nothing of one's own share."""
    told = annotations.get(ASSIGNMENT_KEY, "[]")
    annotations[ASSIGNMENT_KEY] = re.sub(r'"(memoryMiB|cores)":\d+', rf'"\1":-{HUGE}', told)


def _list(world: World, annotations: Json) -> None:
    for key in ("volcano.sh/vgpu-ids-new", "volcano.sh/devices-to-allocate"):
        annotations[key] = world.rng.choice(LISTS)


def gullible(world: World, found: Json) -> Json:
    """Read a GPUNode as who takes the pods' own word for what they were promised."""
    read = copy.deepcopy(found)
    told = {
        pod["metadata"]["uid"]: pod["metadata"].get("annotations", {}).get(ASSIGNMENT_KEY, "[]")
        for pod in world.pods.values()
    }
    for entry in read["spec"]["entries"]:
        try:
            entry["containers"] = orjson.loads(told[entry["pod"]["uid"]])
        except (KeyError, orjson.JSONDecodeError):
            continue
    return read
