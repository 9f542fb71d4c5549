"""How much more the cluster can take: the largest request that fits, and what nobody can get."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from allocator.extender.equivalence import GpuGroup, NodeClass
from allocator.extender.index import Index
from allocator.mig.profiles import profiles_of
from allocator.model.gpu import Gpu
from allocator.model.request import ContainerRequest, Mode, Stage
from allocator.model.units import MiB
from allocator.placement.fit import headroom, shortfall
from allocator.placement.mig import MigOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCapacity:
    """What is free; a mode and model of which no GPU takes anything has 0."""

    largest: Mapping[tuple[Mode, str], MiB]  # that one container can have on one GPU
    stranded: MiB  # free on GPUs that take no container: out of service, or without a slot


def free_capacity(index: Index, options: MigOptions) -> FreeCapacity:
    """Return what the nodes of *index* can take now; equal nodes are looked at once."""
    largest: dict[tuple[Mode, str], MiB] = {}
    stranded = 0
    classes = Counter(map(_identity, index.node_classes.values()))
    by_identity = {_identity(one): one for one in index.node_classes.values()}
    for identity, nodes in classes.items():
        node_class = by_identity[identity]
        for group in (*node_class.mig_groups, *node_class.shared_groups):
            fits = _largest_in(node_class, group, options)
            gpu = group.gpu_class.headroom.gpu
            key = gpu.mode, gpu.model
            largest[key] = max(largest.get(key, MiB(0)), fits or MiB(0))
            if fits is None:
                stranded += nodes * group.count * max(0, group.gpu_class.headroom.memory)
    return FreeCapacity(largest=largest, stranded=MiB(stranded))


def _identity(node_class: NodeClass) -> int:
    return id(node_class)  # equal nodes share one object


def _largest_in(node_class: NodeClass, group: GpuGroup, options: MigOptions) -> MiB | None:
    return None if node_class.closed else largest_free(group.gpu_class.headroom.gpu, options)


def largest_free(gpu: Gpu, options: MigOptions) -> MiB | None:
    """Return the most MiB that one more container can have, ``None`` where none fits."""
    if not gpu.healthy:
        return None
    gpu_headroom = headroom(gpu)
    if gpu.mode is Mode.MIG:
        profiles = sorted(profiles_of(gpu.board), key=lambda profile: -profile.memory)
        requests = (_memory_request(profile.memory) for profile in profiles)
        return next(
            (
                container_request.memory
                for container_request in requests
                if options.options(container_request, (gpu_headroom,))
            ),
            None,
        )
    return None if shortfall(_memory_request(MiB(1)), gpu_headroom) else gpu_headroom.memory


def _memory_request(memory: MiB) -> ContainerRequest:
    return ContainerRequest(name="", index=0, stage=Stage.APP, count=1, memory=memory)
