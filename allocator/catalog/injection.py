"""Injection: which variables, mounts and annotations carry a grant into a container.

docs/injection.md is rendered from the table below. A value is a literal
where it is known at CREATE; otherwise the variable reads one flat annotation that the Binding
brings, because a pod's spec is immutable by the time its device is known. An explicit ``env``
entry beats ``envFrom`` and a device plugin's answer, so every reserved variable is written
out even where its value is the library's own default.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from types import MappingProxyType
from typing import Final

from allocator.catalog.vocabularies import OWN, VOCABULARIES, Vocabulary

# The library's own limit: it knows devices 0 to 15 of one container.
MOST_DEVICES: Final = 16
REGION_FILE: Final = "vgpu.cache"  # in the container's directory on the node
REGION_PATH: Final = f"/tmp/vgpu/{REGION_FILE}"  # in the container
# Where the library looks once a process has lost its environment, as by env -i, ssh or cron.
REGION_PATH_WITHOUT_ENVIRONMENT: Final = "/tmp/cudevshr.cache"


class Column(StrEnum):
    """How a container is treated: a column of the table."""

    VOID = "void"  # it asked for no GPU
    HAMI_CORE = "hami-core"
    MIG = "mig"
    OPEN = "open"  # the Binding may still choose between hami-core and MIG
    MEMORY_ONLY = "memory-only"
    MPS = "mps"
    UPSTREAM = "upstream"  # another device plugin answers for the device


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; ``{memory}``, ``{cores}``, ``{priority}`` and units are filled in."""

    text: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """The value of the container's own flat annotation, e.g. ``vgpu-admission.io/c0.visible``."""

    suffix: str
    share: bool = False  # written only where the container asks for an amount of memory


@dataclass(frozen=True, slots=True)
class LiteralOrField:
    """A literal where the amount is known at CREATE, else the annotation."""

    literal: Literal
    otherwise: Annotation


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the pod through the downward API."""

    path: str


Form = Literal | Annotation | LiteralOrField | Field


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One row of the table: a reserved variable."""

    name: str  # {k} in it counts the devices of the container
    forms: MappingProxyType[Column, Form]  # in a column without a form nothing is written
    # Columns in which a tenant may set it, unless we write it there.
    tolerated: frozenset[Column] = frozenset()
    volumes: bool = False  # written only where the webhook injects volumes
    vocabulary: str = ""  # written only into pods that ask in it; empty: into all
    why: str

    @property
    def per_device(self) -> bool:
        """Say whether there is one variable for each device of the container."""
        return "{k}" in self.name


def _row(
    name: str, *forms: tuple[tuple[Column, ...], Form], why: str, volumes: bool = False,
    tolerated: tuple[Column, ...] = (), vocabulary: str = "",
) -> Variable:  # fmt: skip
    table = {column: form for columns, form in forms for column in columns}
    return Variable(
        name=name,
        forms=MappingProxyType(table),
        why=why,
        volumes=volumes,
        tolerated=frozenset(tolerated),
        vocabulary=vocabulary,
    )


_SOFT: Final = (Column.HAMI_CORE, Column.OPEN)
_OURS: Final = (Column.HAMI_CORE, Column.OPEN, Column.MIG, Column.MEMORY_ONLY, Column.MPS)
_LIMITED: Final = (*_SOFT, Column.UPSTREAM)
_UNLIMITED: Final = (Column.VOID, Column.MIG, Column.MEMORY_ONLY, Column.MPS)
_NOT_MPS: Final = tuple(column for column in Column if column is not Column.MPS)
_MEMORY: Final = Literal("{memory}m")
_CORES: Final = Literal("{cores}")
# Annotations of a bound pod that variables read, after the container's key.
VISIBLE: Final = "visible"
GPU_UNITS: Final = "gpu-units"
GPU_INDEX: Final = "gpu-index"
MPS_MEMORY: Final = "mps-memory"
MPS_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_PARTITION: Final = "CUDA_MPS_SM_PARTITION"
# In containers. CUDA looks there even in a process that has lost its environment.
MPS_PIPE_PATH: Final = "/tmp/nvidia-mps"
SHARED_MEMORY_PATH: Final = "/dev/shm"


def _share_rows(vocabulary: Vocabulary) -> Iterator[Variable]:
    """Yield the rows that tell a program its share, by the names that *vocabulary* has for them.

    They limit nothing, so pods of other vocabularies may set them as they like.
    """
    names = vocabulary.share_variables
    if names is None:
        return
    for name, form, why in (
        (
            names.container,
            LiteralOrField(Literal("{units}"), Annotation("")),
            f"a {vocabulary.name} program limits itself to this amount",
        ),
        (
            names.pod,
            LiteralOrField(Literal("{pod_units}"), Annotation("")),
            "the sum over the pod's containers",
        ),
        (
            names.gpu,
            Annotation(GPU_UNITS, share=True),
            "all memory of the GPU: programs divide their amount by it",
        ),
        (names.index, Annotation(GPU_INDEX, share=True), "the index of the GPU on its node"),
    ):
        yield _row(
            name, (_OURS, form), why=why, tolerated=tuple(Column), vocabulary=vocabulary.name
        )


def _mps_rows() -> Iterator[Variable]:
    """Yield the rows of mode mps; in all others a tenant may run a daemon of his own."""
    for name, form, why in (
        (
            "CUDA_MPS_PIPE_DIRECTORY",
            Literal(MPS_PIPE_PATH),
            "the folder of the GPU's daemon, which every client must reach",
        ),
        (
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
            LiteralOrField(Literal("0={memory}M"), Annotation(MPS_MEMORY)),
            "memory limit of each process on device 0, in whole MiB",
        ),
        (
            MPS_THREADS,
            Literal("{threads}"),
            "compute limit of each process in percent; 100 is no limit",
        ),
        ("CUDA_MPS_CLIENT_PRIORITY", Literal("{priority}"), "0 goes before 1 on the GPU"),
        (
            "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
            Literal("0"),
            "1 would let a process choose its compute limit by context",
        ),
        (
            "CUDA_DEVICE_MAX_CONNECTIONS",
            Literal("2"),
            "the driver's own default under MPS; more connections leave room for fewer clients",
        ),
    ):
        yield _row(name, ((Column.MPS,), form), tolerated=_NOT_MPS, why=why)
    yield _row(
        MPS_PARTITION,
        tolerated=_NOT_MPS,
        why="the container's own multiprocessors; the agent writes it where the GPU is partitioned",
    )


VARIABLES: Final = (
    _row(
        "NVIDIA_VISIBLE_DEVICES",
        ((Column.VOID,), Literal("void")),
        (_OURS, Annotation(VISIBLE)),
        why="GPUs that the container runtime makes visible; an empty value shows none",
    ),
    _row(
        "NVIDIA_MIG_CONFIG_DEVICES",
        ((*_OURS, Column.UPSTREAM), Literal("")),
        why="would let a privileged container change MIG instances",
    ),
    _row(
        "NVIDIA_MIG_MONITOR_DEVICES",
        ((*_OURS, Column.UPSTREAM), Literal("")),
        why="would show other tenants' instances",
    ),
    _row(
        "VGPU_POD_UID",
        (_SOFT, Field("metadata.uid")),
        volumes=True,
        why="names the container's region directory in a subPathExpr",
    ),
    _row(
        "VGPU_PRELOAD",
        ((Column.OPEN,), Annotation("preload")),
        volumes=True,
        why="which ld.so.preload to mount: an empty one if the pod becomes MIG",
    ),
    _row(
        "CUDA_DEVICE_ORDER",
        (_SOFT, Literal("PCI_BUS_ID")),
        tolerated=_UNLIMITED,
        why="limit k must apply to the k-th device that NVML lists",
    ),
    _row(
        "CUDA_DEVICE_MEMORY_LIMIT",
        ((Column.HAMI_CORE,), LiteralOrField(_MEMORY, Annotation("memory-0"))),
        ((Column.OPEN,), Annotation("memory-0")),
        ((Column.UPSTREAM,), LiteralOrField(_MEMORY, Annotation(""))),
        tolerated=_UNLIMITED,
        why="fallback for a device without its own limit",
    ),
    _row(
        "CUDA_DEVICE_MEMORY_LIMIT_{k}",
        ((Column.HAMI_CORE,), LiteralOrField(_MEMORY, Annotation("memory-{k}"))),
        ((Column.OPEN,), Annotation("memory-{k}")),
        ((Column.UPSTREAM,), LiteralOrField(_MEMORY, Annotation(""))),
        tolerated=_UNLIMITED,
        why="memory limit of device k, in whole MiB with the suffix m",
    ),
    _row(
        "CUDA_DEVICE_SM_LIMIT",
        ((Column.HAMI_CORE, Column.UPSTREAM), _CORES),
        ((Column.OPEN,), Annotation("cores")),
        tolerated=_UNLIMITED,
        why="compute limit in percent; 0 is no limit",
    ),
    _row(
        "CUDA_DEVICE_SM_LIMIT_{k}",
        ((Column.HAMI_CORE, Column.UPSTREAM), _CORES),
        ((Column.OPEN,), Annotation("cores")),
        tolerated=_UNLIMITED,
        why="compute limit of device k",
    ),
    _row(
        "CUDA_DEVICE_MEMORY_SHARED_CACHE",
        (_SOFT, Literal(REGION_PATH)),
        tolerated=_UNLIMITED,
        why="path of the shared region, which always holds the limits",
    ),
    _row(
        "CUDA_TASK_PRIORITY",
        (_LIMITED, Literal("{priority}")),
        tolerated=_UNLIMITED,
        why="0 stops other pods' kernels, so a pod must ask for it by annotation",
    ),
    _row(
        "GPU_CORE_UTILIZATION_POLICY",
        (_LIMITED, Literal("default")),
        tolerated=_UNLIMITED,
        why="disable would lift the compute limit",
    ),
    _row(
        "LIBCUDA_LOG_LEVEL",
        (_LIMITED, Literal("1")),
        tolerated=_UNLIMITED,
        why="log output at level 2 breaks tools that parse nvidia-smi",
    ),
    _row(
        "CUDA_REDIRECT",
        (_LIMITED, Literal("/usr/local/vgpu/libvgpu.so")),
        tolerated=_UNLIMITED,
        why="where the library looks up its own symbols",
    ),
    _row(
        "CUDA_OVERSUBSCRIBE",
        (_LIMITED, Literal("false")),
        tolerated=_UNLIMITED,
        why="true would allow more memory than promised",
    ),
    _row(
        "CUDA_DISABLE_CONTROL",
        (_SOFT, Literal("false")),
        tolerated=_UNLIMITED,
        why="not for upstream: its plugin drops enforcement if this is set to any value",
    ),
    _row(
        "LD_PRELOAD",
        (_LIMITED, Literal("")),
        tolerated=_UNLIMITED,
        why="a library loaded before ours could hide the driver from it",
    ),
    *_mps_rows(),
    *chain.from_iterable(map(_share_rows, VOCABULARIES)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mount of the interception library; ``{container}`` is the container's name."""

    volume: str
    path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = True


LIBRARY_VOLUME: Final = "vgpu-library"
REGIONS_VOLUME: Final = "vgpu-regions"
PRELOAD_LIBRARY: Final = "ld.so.preload"  # files of the library's volume
PRELOAD_NOTHING: Final = "ld.so.preload.empty"
LIBRARY_DIRECTORY: Final = "/usr/local/vgpu"  # in containers; the library has it compiled in
HOST_ROOT: Final = "/usr/local/vgpu"  # of the node, unless the setting hostRoot names another
REGIONS_FOLDER: Final = "vgpu/containers"  # below hostRoot
_LIBRARY: Final = Mount(
    volume=LIBRARY_VOLUME, path="/usr/local/vgpu/libvgpu.so", sub_path="libvgpu.so"
)
# The file alone, at both paths: its directory is on the node's disk, and root in a container could
# fill it, or put another region in the place of this one. What is mounted on cannot be removed.
_REGION: Final = tuple(
    Mount(
        volume=REGIONS_VOLUME,
        path=path,
        sub_path_expr=f"$(VGPU_POD_UID)_{{container}}/{REGION_FILE}",
        read_only=False,
    )
    for path in (REGION_PATH, REGION_PATH_WITHOUT_ENVIRONMENT)
)
MOUNTS: Final[MappingProxyType[Column, tuple[Mount, ...]]] = MappingProxyType(
    {
        Column.HAMI_CORE: (
            _LIBRARY,
            Mount(volume=LIBRARY_VOLUME, path="/etc/ld.so.preload", sub_path="ld.so.preload"),
            *_REGION,
        ),
        Column.OPEN: (
            _LIBRARY,
            Mount(
                volume=LIBRARY_VOLUME, path="/etc/ld.so.preload", sub_path_expr="$(VGPU_PRELOAD)"
            ),
            *_REGION,
        ),
    }
)
_OWN_PATH: Final = f"metadata.annotations['{OWN}"


def key_path(key: str, suffix: str) -> str:
    """Return the downward API path of a container's flat annotation."""
    return f"{_OWN_PATH}{key}.{suffix}']"


def key_in(field_path: str) -> str | None:
    """Return the container key, such as ``c0``, of a downward API path to a flat annotation."""
    return (
        _container_key(field_path[len(_OWN_PATH) :]) if field_path.startswith(_OWN_PATH) else None
    )


def is_flat(annotation: str) -> bool:
    """Say whether an annotation is there for the variable of a container to read."""
    return annotation.startswith(OWN) and _container_key(annotation[len(OWN) :]) is not None


def _container_key(rest: str) -> str | None:
    """Return the container key that begins *rest*, what follows our prefix; else ``None``."""
    key, dot, _ = rest.partition(".")
    return (
        key if dot and key[:1] in {"c", "i"} and key[1:].isascii() and key[1:].isdigit() else None
    )
