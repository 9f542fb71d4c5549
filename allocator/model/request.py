"""Requests: what a pod asks for, after its vocabulary has been translated away."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from allocator.model.units import NO_CORES, CorePercent, MiB
from allocator.model.value import Value


class Mode(StrEnum):
    """How a share of a GPU is enforced."""

    MIG = "mig"
    HAMI_CORE = "hami-core"
    MEMORY_ONLY = "memory-only"


class Priority(IntEnum):
    """Whose kernels go first on a GPU that is shared in software; the numbers are the library's."""

    HIGH = 0
    LOW = 1


class FillPolicy(StrEnum):
    """Whether what is busy already is taken first, or last."""

    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class FillPolicies:
    """How nodes, and GPUs on a node, are filled; ``None`` leaves it to the cluster."""

    node: FillPolicy | None = None
    gpu: FillPolicy | None = None

    def with_defaults(self, other: "FillPolicies") -> "FillPolicies":
        """Return what holds where these are asked for and *other* is the default."""
        return FillPolicies(node=self.node or other.node, gpu=self.gpu or other.gpu)


ANY_PACKING: Final = FillPolicies()
BINPACK: Final = FillPolicies(node=FillPolicy.BINPACK, gpu=FillPolicy.BINPACK)


class Stage(StrEnum):
    """When a container runs, which decides how its request adds to its siblings'."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class ContainerRequest(Value, frozen=True):
    """What one container asks for on each of *count* distinct GPUs.

    ``memory`` and ``percent`` are never both set; neither means the whole GPU's memory.
    ``index`` counts within ``spec.initContainers`` or ``spec.containers``.
    """

    name: str
    index: int
    stage: Stage
    count: int
    memory: MiB | None = None
    percent: int | None = None
    cores: CorePercent = NO_CORES

    @property
    def of_init(self) -> bool:
        """Say whether it stands in ``spec.initContainers``."""
        return self.stage is not Stage.APP

    def memory_on(self, total: MiB) -> MiB:
        """Return the MiB asked for on a GPU that has *total*."""
        if self.memory is not None:
            return self.memory
        return MiB(total * (100 if self.percent is None else self.percent) // 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which GPUs a pod accepts; a denial beats a permission, nothing set accepts all."""

    models: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()

    def model_fits(self, model: str) -> bool:
        """Match substrings without regard to case, as the Volcano plugin does.

        Its type is the product name behind ``NVIDIA-``, so that prefix may be matched too.
        """
        if not self.models and not self.not_models:  # as most: asked of every GPU of every node
            return True
        low = f"nvidia-{model.lower()}"
        for item in self.not_models:
            if item.lower() in low:
                return False
        for item in self.models:
            if item.lower() in low:
                return True
        return not self.models

    def uuid_fits(self, uuid: str) -> bool:
        """Match whole UUIDs."""
        return uuid not in self.not_uuids and (not self.uuids or uuid in self.uuids)


class PodRequest(Value, frozen=True):
    """All that a pod asks of us; ``containers`` holds only those that ask, init first.

    ``mode`` is the one the user named and ``profile`` a MIG profile the user named. ``priority``
    is of its kernels, not of the pod in a queue.
    """

    vocabulary: str
    containers: tuple[ContainerRequest, ...]
    mode: Mode | None = None
    profile: str | None = None
    filters: Filters = Filters()
    packings: FillPolicies = ANY_PACKING
    priority: Priority = Priority.LOW

    @property
    def named_mode(self) -> Mode | None:
        """Return the mode the user named, by itself or through a MIG profile."""
        return Mode.MIG if self.mode is None and self.profile is not None else self.mode

    @property
    def constraints(self) -> tuple[str, ...]:
        """Return what narrows the choice of GPU, in a fixed order."""
        filters, join = self.filters, ",".join
        return (
            self.profile or "",
            join(filters.models),
            join(filters.not_models),
            join(filters.uuids),
            join(filters.not_uuids),
        )


MOST_CONTAINERS: Final = 64  # in one promise, each with as many devices at most
