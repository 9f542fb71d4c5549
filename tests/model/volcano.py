"""Volcano's scheduler: it binds a whole gang in one go, and says which GPUs each member shall have.

What it says may be wrong, as its own account is: within a cycle it gives one place to several pods,
its tables may be older than the node's, and its lists outlive a gang that was rolled back. Older
versions write on the pod before they bind it, newer ones on the Binding.
"""

from dataclasses import dataclass
from typing import Final

from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.volcano.device_list import LIST_ANNOTATION, LIST_NODE_ANNOTATION
from tests.builders.gpunodes import Json
from tests.model.cluster import World
from tests.model.device_lists import positions
from tests.model.requests import names_of
from tests.model.schedulers import Schedulers, binding_of

SCHEDULER: Final = "volcano"
GANG: Final = 3  # members at most
_NOWHERE: Final = ("GPU-n0-0[group9-0]", "GPU-n0-0[group1-17]", "GPU-nowhere", "GPU-n1-7")


@dataclass(slots=True)
class Volcano:
    """Binds pods that name it; it asks no extender, because it believes its own account."""

    world: World
    schedulers: Schedulers

    def bind_gang(self) -> None:
        """Begin to bind some pods, all to one node."""
        rng = self.world.rng
        ours = [p for p in self.schedulers.waiting() if p["spec"]["schedulerName"] == SCHEDULER]
        node, outdated = rng.choice(names_of(self.world)), rng.random() < 0.5
        gang = rng.sample(ours, min(GANG, len(ours)))
        places = [self._place(node, self._memory(pod)) for pod in gang]
        if rng.random() < 0.5:
            places = places[:1] * len(gang)
        for pod, place in zip(gang, places, strict=True):
            self._bind(pod, node, _written(place, node), outdated=outdated)

    def _bind(self, pod: Json, node: str, written: dict[str, str], *, outdated: bool) -> None:
        """Bind one member; on the Binding go all annotations of the pod, as they were."""
        binding, metadata = binding_of(pod, node), pod["metadata"]
        annotations = {**metadata.get("annotations", {}), **written}
        if outdated:
            self.world.place({**pod, "metadata": {**metadata, "annotations": annotations}})
        else:
            binding["metadata"]["annotations"] = annotations
        self.schedulers.begin(self.schedulers.attempt(binding))

    def _memory(self, pod: Json) -> int:
        """Return what the first container of a pod asks for; lists name one GPU for each member."""
        return self.world.asked[pod["metadata"]["uid"]].containers[0].memory or 0

    def _place(self, node: str, memory: int) -> str:
        """Return the name of a place on a node where so much may fit, or of no place."""
        rng = self.world.rng
        gpus = self.world.decoded(node).node.gpus if node in self.world.gpu_nodes else ()
        places = [place for gpu in gpus for place in _places(gpu, memory)]
        return rng.choice(places if places and rng.random() < 0.8 else _NOWHERE)


def _places(gpu: Gpu, memory: int) -> list[str]:
    """Return what Volcano may name on a GPU: all of it, or the smallest instances that do."""
    names = positions(gpu) if gpu.mode is Mode.MIG else None
    if names is None:
        return [gpu.uuid]
    found = [
        (placed.profile.memory, f"{gpu.uuid}[{group}-{number}]")
        for group, numbers in names.groups.items()
        for placed, number in numbers.items()
        if placed.profile.memory >= memory
    ]
    least = min((size for size, _ in found), default=0)
    return [place for size, place in found if size == least]


def _written(place: str, node: str) -> dict[str, str]:
    """Return what it writes for a member; nobody reads the amounts in a list."""
    return {
        LIST_NODE_ANNOTATION: node,
        LIST_ANNOTATION: f"{place},NVIDIA,1,0:",
        "volcano.sh/vgpu-time": "1767225600",
        "volcano.sh/bind-phase": "allocating",
    }
