"""Requests: what a pod asks for, in the same words for every vocabulary."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, Protocol

from allocator.model.sharing import ShareKeys
from allocator.model.units import NO_CORES, WHOLE_GPU, CorePercent, MiB
from allocator.model.value import Value

NVIDIA: Final = "nvidia"  # the family of GPUs that say of no other that they belong to it
METAX: Final = "metax"


class Mode(StrEnum):
    """How a share of a GPU is enforced."""

    MIG = "mig"
    HAMI_CORE = "hami-core"
    MEMORY_ONLY = "memory-only"
    MPS = "mps"
    SGPU = "sgpu"  # MetaX, a share of a GPU
    NATIVE = "native"  # MetaX, a whole GPU


# Modes that no annotation names: they come with the resource names of a vocabulary.
VOCABULARY_MODES: Final = frozenset({Mode.MEMORY_ONLY, Mode.SGPU, Mode.NATIVE})


class Priority(IntEnum):
    """Priority of kernels on a GPU shared in software; the numbers are hami-core's."""

    HIGH = 0
    LOW = 1


class FillPolicy(StrEnum):
    """Whether the busiest nodes or GPUs are used first (binpack) or last (spread)."""

    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class FillPolicies:
    """How nodes, and GPUs on a node, are filled; ``None`` means the default of the cluster."""

    node: FillPolicy | None = None
    gpu: FillPolicy | None = None

    def with_defaults(self, default: "FillPolicies") -> "FillPolicies":
        """Return these policies, with those of *default* where there is ``None``."""
        return FillPolicies(node=self.node or default.node, gpu=self.gpu or default.gpu)


ANY_FILL_POLICY: Final = FillPolicies()
BINPACK: Final = FillPolicies(node=FillPolicy.BINPACK, gpu=FillPolicy.BINPACK)


class Stage(StrEnum):
    """When a container runs; this decides how the requests of a pod's containers add up."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class ContainerRequest(Value, frozen=True):
    """What one container asks for: the same amounts on each of several GPUs."""

    name: str
    index: int  # in spec.initContainers or spec.containers
    stage: Stage
    count: int  # of distinct GPUs
    # Never both set; neither means all memory of the GPU.
    memory: MiB | None = None
    percent: int | None = None
    cores: CorePercent = NO_CORES
    share: str = ""  # its sharing class, see allocator.model.sharing; empty: it has none
    # Of its kernels, where its vocabulary has a resource for that; else the pod's counts.
    priority: Priority | None = None

    @property
    def of_init(self) -> bool:
        """Say whether it is in ``spec.initContainers``."""
        return self.stage is not Stage.APP

    @property
    def whole(self) -> bool:
        """Say whether it asks for whole GPUs: all memory and all cores of each.

        An amount in MiB does not count: which GPU is found, and so its memory, is not known yet.
        """
        return self.memory is None and self.percent in {None, 100} and self.cores == WHOLE_GPU

    def memory_on(self, total: MiB) -> MiB:
        """Return the memory asked for on a GPU with *total* memory."""
        if self.memory is not None:
            return self.memory
        return MiB(total * (100 if self.percent is None else self.percent) // 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which GPUs a pod accepts; exclusions win, and an empty filter accepts all."""

    models: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()

    def model_fits(self, model: str) -> bool:
        """Say whether *model* is accepted: by substring and in any case, as Volcano's plugin does.

        Volcano puts ``NVIDIA-`` before the product name, so that prefix may be matched too.
        """
        if (
            not self.models and not self.not_models
        ):  # most pods; this runs for every GPU of every node
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
        """Say whether the GPU with this UUID is accepted."""
        return uuid not in self.not_uuids and (not self.uuids or uuid in self.uuids)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareVariables:
    """Variables that tell a program its share of memory, in the unit of its vocabulary."""

    container: str  # what the container asks for
    pod: str  # the sum over the pod's containers
    gpu: str  # all memory of the GPU
    index: str  # the GPU's index on its node


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Resource and annotation names of one ecosystem."""

    name: str
    # Resource names; None: the ecosystem has no such resource.
    count: str | None
    memory: str | None
    percent: str | None = None
    cores: str | None = None
    priority: str | None = None
    memory_factor: int = 1  # MiB per unit of memory; gpuMemoryFactor and --memory-unit override it
    memory_in_bytes: bool = False  # an amount of memory with a suffix such as Gi is in bytes
    default_cores: CorePercent = NO_CORES  # of a container that asks for none
    whole: bool = False  # a count asks for whole GPUs and goes with no other resource
    # Who says nothing of memory and cores, or asks for 100 percent of the memory, gets a whole GPU.
    exclusive: bool = False
    # What a container gets that asks, but not by this resource.
    default_count: int = 1
    default_memory: int = 0  # in units of the memory resource; 0 is all memory
    mode: Mode | None = None  # fixed, where the ecosystem has only one
    named_modes: tuple[Mode, ...] = (Mode.MIG, Mode.HAMI_CORE, Mode.MPS)  # that a pod may name
    family: str = NVIDIA  # of the GPUs that it asks for
    # Annotation keys.
    mode_key: str | None = None  # one mode; admission writes there what it chose
    modes_key: str | None = None  # the modes that a pod accepts, separated by commas
    numa_key: str | None = None  # whether all GPUs of a container must be on one NUMA node
    isolate_key: str | None = None  # opts into hami-core instead of the fixed mode
    use_models: str | None = None
    not_models: str | None = None
    use_uuids: str | None = None
    not_uuids: str | None = None
    share_keys: ShareKeys | None = None  # where GPUs are shared by classes
    topology_key: str | None = None  # false: links between GPUs do not count for the node
    prefixes: tuple[str, ...] = ()  # resources that are ours to interpret, and to refuse if unknown
    # What programs of the ecosystem read in their environment, where it has such variables.
    share_variables: ShareVariables | None = None
    slot: str  # what makes kubelet call our device plugin, whatever else is asked for

    def __hash__(self) -> int:
        """Hash the name alone: vocabularies are few, and keys of tables on the hot path."""
        return hash(self.name)

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resource names that exist in this vocabulary."""
        names = (self.count, self.memory, self.percent, self.cores, self.priority)
        return tuple(name for name in names if name is not None)

    @property
    def annotations(self) -> tuple[str, ...]:
        """Return the annotation keys by which a pod of this vocabulary says what it wants."""
        shares = self.share_keys
        keys = (
            *(self.mode_key, self.modes_key, self.numa_key, self.isolate_key),
            *(self.use_models, self.not_models, self.use_uuids, self.not_uuids),
            *(() if shares is None else (shares.policy, shares.app_class)),
            self.topology_key,
        )
        return tuple(key for key in keys if key is not None)

    @property
    def unit(self) -> str:
        """Return the unit of the memory resource as messages name it."""
        units = {1: "MiB", 1024: "GiB"}
        return units.get(self.memory_factor, f"units of {self.memory_factor} MiB")

    def units(self, memory: MiB) -> int:
        """Return *memory* in whole units of the memory resource, rounded down."""
        return memory // self.memory_factor


class GpuModel(Protocol):
    """What of a GPU, or of a kind of GPU, a person may name."""

    @property
    def family(self) -> str:
        """Return the family."""

    @property
    def model(self) -> str:
        """Return the product name as the driver reports it."""


class PodRequest(Value, frozen=True):
    """What a pod asks for."""

    vocabulary: str  # its name
    containers: tuple[ContainerRequest, ...]  # only those that ask for GPUs, init containers first
    mode: Mode | None = None  # as the user named it
    profile: str | None = None  # the MIG profile that the user named
    filters: Filters = Filters()
    fill_policies: FillPolicies = ANY_FILL_POLICY
    priority: Priority = Priority.LOW  # of its kernels, not of the pod in a queue
    # The vocabulary with the names and units of the cluster; None: those of the catalogue.
    configured: Vocabulary | None = None
    mode_key: str | None = None  # the annotation that names the mode, if one does
    library_off: bool = False  # containers with whole GPUs run without the interception library
    family: str = NVIDIA  # of the GPUs that serve it
    one_numa: bool = False  # all GPUs of a container are on one NUMA node
    ignore_links: bool = False  # nodes are ranked without the links between their GPUs

    def accepts_kind(self, kind: GpuModel) -> bool:
        """Say whether GPUs of this family and model may serve it, whatever their size."""
        return kind.family == self.family and self.filters.model_fits(kind.model)

    @property
    def named_mode(self) -> Mode | None:
        """Return the mode the user named, by itself or through a MIG profile."""
        return Mode.MIG if self.mode is None and self.profile is not None else self.mode

    @property
    def has_peers(self) -> bool:
        """Say whether a container asks for several GPUs, which may exchange data."""
        return any(container.count > 1 for container in self.containers)

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
            *(("library off",) if self.library_off else ()),
            *(("one NUMA node",) if self.one_numa else ()),
        )


MOST_CONTAINERS: Final = 64  # in one entry, each with at most 64 devices
