"""Volcano's device lists on pods and Bindings, and what must be true of the one a pod ends with."""

from pathlib import Path
from typing import Final

from allocator.config.device_config import load_device_config
from allocator.metax.pod_devices import allocated_uuids
from allocator.mig.geometry import Geometries
from allocator.mig.positions import PositionTable, position_table
from allocator.model.allocation import Grant
from allocator.model.gpu import Gpu
from allocator.model.problem import Loaded
from allocator.model.request import METAX
from allocator.volcano.device_list import LIST_ANNOTATION, parse_device_list
from tests.builders.gpunodes import Json
from tests.model.cluster import World
from tests.model.invariants import BrokenError

Named = list[tuple[str, str | None]]  # GPUs, each with the position on it
_TABLE = Path(__file__).parents[1] / "golden" / "volcano" / "device-config-b.yaml"


def _shipped() -> Geometries:
    loaded = load_device_config(_TABLE.read_text())
    assert isinstance(loaded, Loaded)
    return loaded.value.geometries


GEOMETRIES: Final = _shipped()


def named(found: Json) -> Named:
    """Return what the list on a pod or Binding names, nothing where there is none to be read."""
    text = (found["metadata"].get("annotations") or {}).get(LIST_ANNOTATION, "")
    return [(device.uuid, device.position) for part in parse_device_list(text) for device in part]


def named_by_metax(found: Json) -> Named:
    """Return what MetaX's device plugin reads on a pod."""
    annotations = found["metadata"].get("annotations") or {}
    return [(uuid, None) for part in allocated_uuids(annotations) for uuid in part]


def positions(gpu: Gpu) -> PositionTable | None:
    """Return Volcano's names for the instances of a GPU."""
    return None if gpu.board is None else position_table(GEOMETRIES, gpu.model, gpu.board)


def told_truly(world: World, pod: Json) -> None:
    """Check that a pod that was just bound is told of what it is promised, whatever was wished."""
    uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
    elsewhere = world.past.displaced | world.past.exchanged
    if (node, uid) in elsewhere or node not in world.gpu_nodes:
        return
    decoded = world.decoded(node)
    entry = next((entry for entry in decoded.entries if entry.uid == uid), None)
    if entry is None:
        return
    listed = {container["name"] for container in pod["spec"]["containers"]}
    grants = [grant for held in entry.containers if held.name in listed for grant in held.grants]
    told = named_by_metax(pod) if world.asked[uid].family == METAX else named(pod)
    if told != [(grant.gpu, grant.position) for grant in grants]:
        raise BrokenError(f"S5 {uid} was told of {told}, promised {grants}")
    gpus = {gpu.uuid: gpu for gpu in decoded.node.gpus}
    for grant in grants:
        if grant.position is not None and not _sits_there(gpus[grant.gpu], grant):
            raise BrokenError(f"S5 {uid} was told {grant.position}, but has {grant.placed}")


def _sits_there(gpu: Gpu, grant: Grant) -> bool:
    """Say whether the position of a grant is Volcano's name for its place."""
    group, _, number = (grant.position or "").rpartition("-")
    names = positions(gpu)
    places = {} if names is None else names.groups.get(group, {})
    return grant.placed is not None and str(places.get(grant.placed)) == number
