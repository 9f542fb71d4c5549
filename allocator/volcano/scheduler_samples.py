"""What is promised on each GPU, under the metric names of Volcano's scheduler.

Names, units and labels are kept, so that dashboards go on working on clusters without it. Its
labels have no namespace, so amounts of pods with equal names on one GPU are added up.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from allocator.model.allocation import Entry
from allocator.model.gpu import Gpu, Node
from allocator.model.usage import peak_grants

_GPU: Final = ("devID", "NodeName")
_POD: Final = (*_GPU, "podName")


@dataclass(frozen=True, slots=True)
class SampleFamily:
    """One metric."""

    name: str
    documentation: str
    labels: tuple[str, ...] = _GPU


SHARED: Final = SampleFamily(
    "volcano_vgpu_device_shared_number", "The number of vgpu tasks sharing this card"
)
MEMORY: Final = SampleFamily(
    "volcano_vgpu_device_allocated_memory", "The number of vgpu memory allocated in this card"
)
CORES: Final = SampleFamily(
    "volcano_vgpu_device_allocated_cores",
    "The percentage of gpu compute cores allocated in this card",
)
LIMIT: Final = SampleFamily(
    "volcano_vgpu_device_memory_limit", "The number of total device memory in this card"
)
POD_MEMORY: Final = SampleFamily(
    "volcano_vgpu_device_memory_allocation_for_a_certain_pod",
    "The vgpu device memory allocated for a certain pod",
    _POD,
)
POD_CORES: Final = SampleFamily(
    "volcano_vgpu_device_core_allocation_for_a_certain_pod",
    "The vgpu device core allocated for a certain pod",
    _POD,
)
FAMILIES: Final = (SHARED, MEMORY, CORES, LIMIT, POD_MEMORY, POD_CORES)


@dataclass(frozen=True, slots=True)
class SchedulerSample:
    """One value of a metric."""

    family: SampleFamily
    labels: tuple[str, ...]
    value: int  # memory in units of the site's gpuMemoryFactor, cores in percent


def samples_of(node: Node, entries: Iterable[Entry], *, factor: int) -> Iterator[SchedulerSample]:
    """Yield what is promised on *node* by *entries*; *factor* is the site's gpuMemoryFactor."""
    held = list(entries)
    for gpu in node.gpus:
        place = gpu.uuid, node.name
        yield SchedulerSample(SHARED, place, len(gpu.grants))
        yield SchedulerSample(MEMORY, place, gpu.memory_promised // factor)
        yield SchedulerSample(CORES, place, gpu.cores_promised)
        yield SchedulerSample(LIMIT, place, gpu.memory // factor)
        memory, cores = _by_pod(gpu, held)
        for pod, amount in memory.items():
            yield SchedulerSample(POD_MEMORY, (*place, pod), amount // factor)
            yield SchedulerSample(POD_CORES, (*place, pod), cores[pod])


def _by_pod(gpu: Gpu, entries: Iterable[Entry]) -> tuple[Counter[str], Counter[str]]:
    memory: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    for entry in entries:
        for grant in (g for g in peak_grants(entry.containers) if g.gpu == gpu.uuid):
            memory[entry.pod] += grant.memory
            cores[entry.pod] += grant.cores
    return memory, cores
