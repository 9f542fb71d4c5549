"""Vocabularies: the names each ecosystem uses for the same request; a new one is data, not code."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from allocator.catalog.hami_keys import COUNT_RESOURCE
from allocator.model.request import METAX, Mode, ShareVariables, Vocabulary
from allocator.model.sharing import ShareKeys
from allocator.model.units import WHOLE_GPU

__all__ = [
    "CATALOGUE",
    "FOREIGN",
    "GPUSHARE",
    "HAMI",
    "LARGEST_FACTOR",
    "METAX_GPU",
    "METAX_SGPU",
    "OTHER_PLUGINS",
    "OTHER_WORDS",
    "OWN",
    "SLOT",
    "VOCABULARIES",
    "VOLCANO",
    "LostVocabulary",
    "Vocabulary",
    "configure_vocabulary",
    "foreign_prefixes",
    "lost_vocabularies",
    "unserved_vocabularies",
]

OWN: Final = "vgpu-admission.io/"
SLOT: Final = "volcano.sh/vgpu-number"  # the resource our device plugin registers
# Prefixes of GPU resources that we do not read; together with one of ours they count twice.
FOREIGN: Final = ("nvidia.com/gpu", "nvidia.com/mig-", "volcano.sh/gpu-")
# Prefixes of the resources by which a container gets its GPU from another device plugin: NVIDIA's
# (which since 0.12 ignores names of a site's own), HAMi's, Volcano's old one, gpushare's,
# Koordinator's, Tencent's and MetaX's. NVIDIA's network cards are under its domain, too.
OTHER_PLUGINS: Final = (
    "nvidia.com/gpu",
    "nvidia.com/mig-",
    "nvidia.com/vgpu",
    "volcano.sh/gpu-",
    "aliyun.com/gpu-",
    "koordinator.sh/gpu",
    "tencent.com/vcuda-",
    "metax-tech.com/",
)


VOLCANO: Final = Vocabulary(
    name="volcano",
    count=SLOT,
    memory="volcano.sh/vgpu-memory",
    percent="volcano.sh/vgpu-memory-percentage",
    cores="volcano.sh/vgpu-cores",
    mode_key="volcano.sh/vgpu-mode",
    use_models="nvidia.com/use-gputype",
    not_models="nvidia.com/nouse-gputype",
    use_uuids="volcano.sh/vgpu-use-gpuuuid",
    not_uuids="volcano.sh/vgpu-nouse-gpuuuid",
    prefixes=("volcano.sh/vgpu-",),
    slot=SLOT,
)
# Shares by memory, in GiB unless the cluster's plugin ran with --memory-unit=MiB; accounting
# without isolation unless the pod asks for it.
GPUSHARE: Final = Vocabulary(
    name="gpushare",
    count="aliyun.com/gpu-count",
    memory="aliyun.com/gpu-mem",
    cores="aliyun.com/gpu-core.percentage",
    memory_factor=1024,
    whole=True,
    mode=Mode.MEMORY_ONLY,
    isolate_key=f"{OWN}isolate",
    use_models="nvidia.com/use-gputype",
    not_models="nvidia.com/nouse-gputype",
    prefixes=("aliyun.com/gpu-",),
    share_variables=ShareVariables(
        container="ALIYUN_COM_GPU_MEM_CONTAINER",
        pod="ALIYUN_COM_GPU_MEM_POD",
        gpu="ALIYUN_COM_GPU_MEM_DEV",
        index="ALIYUN_COM_GPU_MEM_IDX",
    ),
    slot=SLOT,
)
# Whole GPUs of MetaX's; its device plugin serves them.
METAX_GPU: Final = Vocabulary(
    name="metax-gpu",
    count="metax-tech.com/gpu",
    memory=None,
    whole=True,
    mode=Mode.NATIVE,
    named_modes=(),
    family=METAX,
    prefixes=("metax-tech.com/gpu",),
    slot="metax-tech.com/gpu",
)
# Shares of MetaX's GPUs. Memory is in GiB, or in bytes where it has a suffix such as Gi.
METAX_SGPU: Final = Vocabulary(
    name="metax-sgpu",
    count="metax-tech.com/sgpu",
    memory="metax-tech.com/vmemory",
    cores="metax-tech.com/vcore",
    memory_factor=1024,
    memory_in_bytes=True,
    default_cores=WHOLE_GPU,
    mode=Mode.SGPU,
    named_modes=(),
    family=METAX,
    use_uuids="metax-tech.com/use-gpuuuid",
    not_uuids="metax-tech.com/nouse-gpuuuid",
    share_keys=ShareKeys("metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class"),
    topology_key="metax-tech.com/sgpu-topology-aware",
    prefixes=("metax-tech.com/sgpu", "metax-tech.com/vcore", "metax-tech.com/vmemory"),
    slot="metax-tech.com/sgpu",
)
# HAMi's. On a cluster with NVIDIA's device plugin the first name is that plugin's, so this
# vocabulary is served only where the setting ``vocabularies`` names it.
HAMI: Final = Vocabulary(
    name="hami",
    count=COUNT_RESOURCE,
    memory="nvidia.com/gpumem",
    percent="nvidia.com/gpumem-percentage",
    cores="nvidia.com/gpucores",
    priority="nvidia.com/priority",
    exclusive=True,
    modes_key="nvidia.com/vgpu-mode",
    numa_key="nvidia.com/numa-bind",
    use_models="nvidia.com/use-gputype",
    not_models="nvidia.com/nouse-gputype",
    use_uuids="nvidia.com/use-gpuuuid",
    not_uuids="nvidia.com/nouse-gpuuuid",
    prefixes=("nvidia.com/gpumem", "nvidia.com/gpucore"),
    slot=SLOT,
)
# Served unless the setting ``vocabularies`` says which are.
VOCABULARIES: Final = (VOLCANO, GPUSHARE, METAX_GPU, METAX_SGPU)
CATALOGUE: Final = (*VOCABULARIES, HAMI)
# Words of plugins whose pods may run on a node that we take over, or run past us. No request is
# read in them; what is in use is charged by them.
OTHER_WORDS: Final = (
    Vocabulary(  # HAMi's, and with the number alone NVIDIA's: whole GPUs
        name="hami",
        count="nvidia.com/gpu",
        memory="nvidia.com/gpumem",
        percent="nvidia.com/gpumem-percentage",
        cores="nvidia.com/gpucores",
        slot="nvidia.com/gpu",
    ),
    Vocabulary(  # Volcano's first plugin
        name="volcano-gpu-share",
        count="volcano.sh/gpu-number",
        memory="volcano.sh/gpu-memory",
        slot="volcano.sh/gpu-number",
    ),
)
LARGEST_FACTOR: Final = 1 << 20  # MiB per unit: a unit of 1 TiB


@dataclass(frozen=True, slots=True)
class LostVocabulary:
    """A vocabulary that the settings name and that is not served, because Volcano has its name."""

    vocabulary: Vocabulary  # with the names of this configuration
    name: str  # its resource that is one of Volcano's, too
    key: str  # of device-config.yaml, which gives Volcano that name


def unserved_vocabularies(served: Collection[Vocabulary]) -> tuple[Vocabulary, ...]:
    """Return the vocabularies of the catalogue that are not among *served*."""
    names = {vocabulary.name for vocabulary in served}
    return tuple(vocabulary for vocabulary in VOCABULARIES if vocabulary.name not in names)


def lost_vocabularies(
    wanted: Sequence[Vocabulary], keys: Mapping[str, str]
) -> tuple[LostVocabulary, ...]:
    """Return those of *wanted* that have a resource of Volcano's, which reads it.

    *keys* are those of device-config.yaml, by Volcano's resource names.
    """
    volcano = {name for v in wanted if v.name == VOLCANO.name for name in v.resources}
    return tuple(
        LostVocabulary(vocabulary, shared[0], keys[shared[0]])
        for vocabulary in wanted
        if vocabulary.name != VOLCANO.name
        and (shared := [name for name in vocabulary.resources if name in volcano])
    )


def foreign_prefixes(served: Collection[Vocabulary]) -> tuple[str, ...]:
    """Return the prefixes of GPU resources that are not read where *served* are."""
    return FOREIGN + tuple(p for v in unserved_vocabularies(served) for p in v.prefixes)


def configure_vocabulary(
    vocabulary: Vocabulary,
    *,
    memory_factor: int | None = None,
    names: Mapping[str, str] | None = None,
    slot: str = SLOT,
) -> Vocabulary:
    """Return *vocabulary* with the names and units that a cluster configures.

    *memory_factor* is MiB per unit of memory. *names* maps built-in resource names to the
    cluster's own (``resourceCountName`` and so on in the device-config); *slot* is the cluster's
    own name of the slot. Where nothing is configured, *vocabulary* itself is returned. Raises
    ``ValueError`` where a factor or a name cannot be used.
    """
    factor = vocabulary.memory_factor if memory_factor is None else memory_factor
    if not 1 <= factor <= LARGEST_FACTOR:
        raise ValueError(f"memory factor {factor} is not between 1 and {LARGEST_FACTOR}")
    own = dict(names or {})
    if unknown := own.keys() - set(vocabulary.resources):
        raise ValueError(f"{min(unknown)} is not a resource of the vocabulary {vocabulary.name}")
    changed = replace(
        vocabulary,
        count=own.get(vocabulary.count or "", vocabulary.count),
        memory=own.get(vocabulary.memory or "", vocabulary.memory),
        percent=own.get(vocabulary.percent or "", vocabulary.percent),
        cores=own.get(vocabulary.cores or "", vocabulary.cores),
        priority=own.get(vocabulary.priority or "", vocabulary.priority),
        memory_factor=factor,
        slot=slot,
    )
    if len(set(changed.resources)) < len(changed.resources):
        raise ValueError(f"two resources share a name: {', '.join(changed.resources)}")
    return vocabulary if changed == vocabulary else changed
