"""Vocabularies: the names each ecosystem uses for the same request; a new one is data, not code."""

from dataclasses import dataclass
from typing import Final

from allocator.model.request import Mode

OWN: Final = "vgpu-admission.io/"

SLOT: Final = "volcano.sh/vgpu-number"  # the resource our device plugin registers


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Resource and annotation names of one ecosystem.

    A resource name that is ``None`` does not exist there. ``memory_factor`` is MiB per unit of
    the memory resource; settings may override it (gpuMemoryFactor, ``--memory-unit``).
    ``mode`` is fixed where the ecosystem knows only one; ``isolate`` names the annotation by
    which a pod opts into hami-core instead.
    """

    name: str
    count: str | None
    memory: str | None
    percent: str | None = None
    cores: str | None = None
    memory_factor: int = 1
    mode: Mode | None = None
    mode_key: str | None = None
    isolate_key: str | None = None
    use_models: str | None = None
    not_models: str | None = None
    use_uuids: str | None = None
    not_uuids: str | None = None
    prefixes: tuple[str, ...] = ()  # resources that are ours to interpret, and to refuse if unknown

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resource names that exist in this vocabulary."""
        names = (self.count, self.memory, self.percent, self.cores)
        return tuple(name for name in names if name is not None)


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
)

# Shares by memory alone, in GiB unless the cluster's plugin ran with --memory-unit=MiB;
# accounting without isolation unless the pod asks for it.
GPUSHARE: Final = Vocabulary(
    name="gpushare",
    count=None,
    memory="aliyun.com/gpu-mem",
    memory_factor=1024,
    mode=Mode.MEMORY_ONLY,
    isolate_key=f"{OWN}isolate",
    use_models="nvidia.com/use-gputype",
    not_models="nvidia.com/nouse-gputype",
    prefixes=("aliyun.com/gpu-",),
)

VOCABULARIES: Final = (VOLCANO, GPUSHARE)
