"""How a tenant tries for a wider share, and what a container has that is held to its own."""

from typing import Final

from tests.builders.pods import MEMORY
from tests.cluster.api import Json
from tests.cluster.installation import Installation
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import (
    CACHE,
    LIBRARY,
    LOST_CACHE,
    PRELOAD,
    SOFT,
    VISIBLE,
    Inside,
    device_of,
    inside,
    looking,
    soft,
)

FORGED: Final = {
    VISIBLE: "all",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "0",
    "CUDA_DISABLE_CONTROL": "true",
}


def by_variables() -> Json:
    """Write a pod that names them itself."""
    env = [{"name": name, "value": value} for name, value in FORGED.items()]
    return soft(looking(limits=SOFT, env=env))


def by_config_map(site: Installation, team: str) -> Json:
    """Write a pod whose variables come from a ConfigMap, which nobody sees at CREATE."""
    maps = f"/api/v1/namespaces/{team}/configmaps"
    site.api.create(maps, {"metadata": {"name": "wide"}, "data": FORGED})
    return soft(looking(limits=SOFT, envFrom=[{"configMapRef": {"name": "wide"}}]))


def held_to_its_share(found: GpuNode, what: Json) -> Inside:
    """Return what a container tells that has what it was promised, library and region with it."""
    assert device_of(found, what)
    seen = inside(found.node, what)
    ((size, magic),) = (line.split() for line in seen.told(f"bytes {CACHE}:"))
    assert int(size) > 1_000_000
    assert magic.startswith("4ef72f01")  # 19920718, as the library writes it
    assert seen.told(f"bytes {LOST_CACHE}:") == seen.told(f"bytes {CACHE}:")
    assert seen.told("list /tmp/vgpu:") == ["vgpu.cache"]  # and nobody else's
    assert seen.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{SOFT[MEMORY]}m"
    assert seen.env["CUDA_DISABLE_CONTROL"] == "false"
    assert seen.told(f"read {PRELOAD}:") == [LIBRARY]
    for path in (PRELOAD, LIBRARY):
        assert seen.told(f"write {path}:") == ["Read-only file system"]
    return seen
