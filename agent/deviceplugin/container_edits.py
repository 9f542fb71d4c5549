"""Container edits: what a container receives for its share: variables, mounts and device files.

The values come from the injection table. Admission wrote the same into the pod. They are repeated
here because CDI overrides the pod: no variable of an ``envFrom`` or an image can widen a share.

GPU device files and driver libraries are left to NVIDIA's container runtime, which reads
``NVIDIA_VISIBLE_DEVICES`` after CDI was applied: only it knows the driver's files. Only the
capability and DRM files of a MIG instance are named here, because an instance younger than that
runtime's own list would be missing from it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Final

from agent.share import DeviceNode, ReadyInstance, Share
from allocator.catalog.injection import (
    LIBRARY_VOLUME,
    MOUNTS,
    MPS_PARTITION,
    MPS_PIPE_PATH,
    MPS_THREADS,
    REGION_FILE,
    SHARED_MEMORY_PATH,
    VARIABLES,
    Annotation,
    Column,
    Form,
    Literal,
    LiteralOrField,
)
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
NOTHING_VISIBLE: Final = "void"  # the container runtime leaves the container alone
_COLUMNS: Final = {
    Mode.HAMI_CORE: Column.HAMI_CORE,
    Mode.MIG: Column.MIG,
    Mode.MEMORY_ONLY: Column.MEMORY_ONLY,
    Mode.MPS: Column.MPS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMount:
    """One path of the node mounted into a container."""

    host: str  # on the node
    path: str  # in the container
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """All that one container receives."""

    env: tuple[tuple[str, str], ...]  # names and values, in the order of the injection table
    shown: tuple[str, ...] = ()  # UUIDs that it may see, in the order of the grants
    mounts: tuple[HostMount, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()


def visible_value(shown: Sequence[str]) -> str:
    """Return the UUIDs *shown* as the value of the variable that the container runtime reads."""
    return ",".join(shown)


def mode_of(share: Share) -> Mode:
    """Return the one mode of a container's grants."""
    return share.grants[0].mode


def mig_edits(share: Share, ready: Sequence[ReadyInstance]) -> ContainerEdits:
    """Return the edits of a MIG share whose instances are *ready*."""
    shown = tuple(instance.uuid for instance in ready)
    return ContainerEdits(
        env=tuple(_variables(share, shown)),
        shown=shown,
        nodes=tuple(dict.fromkeys(node for instance in ready for node in instance.nodes)),
    )


def hami_core_edits(share: Share, *, library: str, region: str) -> ContainerEdits:
    """Return the edits of a hami-core share, with the node's folders *library* and *region*."""
    mounts = [
        HostMount(
            host=(
                f"{library}/{mount.sub_path}"
                if mount.volume == LIBRARY_VOLUME
                else f"{region}/{REGION_FILE}"
            ),
            path=mount.path,
            read_only=mount.read_only,
        )
        for mount in MOUNTS[Column.HAMI_CORE]
    ]
    gpus = _gpus(share)
    return ContainerEdits(env=tuple(_variables(share, gpus)), shown=gpus, mounts=tuple(mounts))


def mps_edits(
    share: Share, *, pipe: str, shared_memory: str, partition: str = ""
) -> ContainerEdits:
    """Return the edits of a share in mode mps, with two folders of the node for its daemon.

    Clients write into both: a socket and a queue are made of files of either side. With a
    *partition* the daemon ignores the limit of threads.
    """
    mounts = (
        HostMount(host=pipe, path=MPS_PIPE_PATH, read_only=False),
        HostMount(host=shared_memory, path=SHARED_MEMORY_PATH, read_only=False),
    )
    gpus = _gpus(share)
    variables = tuple(_variables(share, gpus))
    if partition:
        kept = (each for each in variables if each[0] != MPS_THREADS)
        variables = (*kept, (MPS_PARTITION, partition))
    return ContainerEdits(env=variables, shown=gpus, mounts=mounts)


def unenforced_edits(share: Share) -> ContainerEdits:
    """Return the edits of a share that nothing limits: memory-only, or whole GPUs."""
    gpus = _gpus(share)
    return ContainerEdits(env=tuple(_variables(share, gpus)), shown=gpus)


def slot_mounts(folder: str) -> tuple[HostMount, ...]:
    """Return the mounts that Allocate answers without CDI, before the container is known.

    Their sources are files of the slot's *folder*, each named like its target.
    """
    return tuple(
        HostMount(host=f"{folder}/{basename(m.path)}", path=m.path, read_only=m.read_only)
        for m in MOUNTS[Column.HAMI_CORE]
    )


def _gpus(share: Share) -> tuple[str, ...]:
    return tuple(grant.gpu for grant in share.grants)


def _variables(share: Share, shown: Sequence[str]) -> Iterator[tuple[str, str]]:
    column = Column.MEMORY_ONLY if share.library_off else _COLUMNS[mode_of(share)]
    for row in VARIABLES:
        form = row.forms.get(column)
        if form is None:
            continue
        for k in range(len(share.grants)) if row.per_device else (None,):
            value = _value(form, share, k=k, shown=visible_value(shown))
            if value is not None:
                yield row.name.replace("{k}", str(k)), value


def _value(form: Form, share: Share, *, k: int | None, shown: str) -> str | None:
    """Return the value for device *k*, or for all; ``None`` where the pod sets it itself."""
    match form:
        case Annotation("visible"):
            return shown
        case LiteralOrField(literal, _):
            return _value(literal, share, k=k, shown=shown)
        case Literal(text) if "units}" not in text:  # of a vocabulary that is not known here
            grant = share.grants[k or 0]
            most = max(each.cores for each in share.grants)
            cores = most if k is None else grant.cores
            return text.format(
                memory=grant.memory,
                cores=cores,
                threads=cores or WHOLE_GPU,
                priority=int(share.priority),
            )
        case _:
            return None
