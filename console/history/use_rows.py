"""Use against promise as rows: containers, and GPUs."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec

from allocator.model.units import MiB
from console.get.listing import Listing
from console.get.table import NONE, amount, model, share, span, word
from console.use.figures import ContainerUse, GpuUse

SPACE: Final = "NAMESPACE"
PODS: Final = ("POD", "ON", "PROMISED", "USED", "CORES", "IDLE")
PODS_WIDE: Final = ("CONTAINER", "USE")
GPUS: Final = ("NAME", "MODEL", "MODE", "PROMISED", "USED", "USE", "BUSY")
GPUS_WIDE: Final = ("MEMORY", "CORES")


class ContainerUseItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One container on one GPU in a document; what nobody has measured is null."""

    namespace: str
    pod: str
    container: str
    node: str
    device: str
    promised_mib: int | None = msgspec.field(name="promisedMiB")
    used_mib: int | None = msgspec.field(name="usedMiB")
    cores_used_percent: float | None
    idle_seconds: float | None


class GpuUseItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One GPU in a document."""

    node: str
    device: str
    model: str
    mode: str
    memory_mib: int | None = msgspec.field(name="memoryMiB")
    promised_mib: int | None = msgspec.field(name="promisedMiB")
    used_mib: int | None = msgspec.field(name="usedMiB")
    cores_promised_percent: float | None
    cores_used_percent: float | None


def container_use_listing(containers: Iterable[ContainerUse], *, spaces: bool) -> Listing:
    """Return containers, those that use most memory first."""
    ordered = sorted(containers, key=lambda use: (-(use.used_mib or 0), use.namespace, use.pod))
    return Listing(
        kind="ContainerUseList",
        row=ContainerUseItem,
        columns=(SPACE, *PODS) if spaces else PODS,
        wide=PODS_WIDE,
        rows=[_container_item(use) for use in ordered],
        cells=[_container_cells(use, spaces=spaces) for use in ordered],
    )


def _container_item(use: ContainerUse) -> ContainerUseItem:
    return ContainerUseItem(
        namespace=use.namespace,
        pod=use.pod,
        container=use.container,
        node=use.node,
        device=use.device,
        promised_mib=use.promised_mib,
        used_mib=use.used_mib,
        cores_used_percent=use.cores_used_percent,
        idle_seconds=use.idle_seconds,
    )


def _container_cells(use: ContainerUse, *, spaces: bool) -> tuple[str, ...]:
    return (
        *((word(use.namespace),) if spaces else ()),
        word(use.pod),
        word(f"{use.node}/{use.device}"),
        _memory(use.promised_mib),
        _memory(use.used_mib),
        _percent(use.cores_used_percent),
        NONE if use.idle_seconds is None else span(timedelta(seconds=use.idle_seconds)),
        word(use.container),
        _share(use.used_mib, use.promised_mib),
    )


def gpu_use_listing(gpus: Iterable[GpuUse]) -> Listing:
    """Return GPUs by node and index."""
    rows = list(gpus)
    return Listing(
        kind="GpuUseList",
        row=GpuUseItem,
        columns=GPUS,
        wide=GPUS_WIDE,
        rows=[_gpu_item(use) for use in rows],
        cells=[_gpu_cells(use) for use in rows],
    )


def _gpu_item(use: GpuUse) -> GpuUseItem:
    return GpuUseItem(
        node=use.node,
        device=use.device,
        model=use.model,
        mode=use.mode,
        memory_mib=use.memory_mib,
        promised_mib=use.promised_mib,
        used_mib=use.used_mib,
        cores_promised_percent=use.cores_promised_percent,
        cores_used_percent=use.cores_used_percent,
    )


def _gpu_cells(use: GpuUse) -> tuple[str, ...]:
    return (
        word(f"{use.node}/{use.device}"),
        model(use.model),
        word(use.mode),
        _memory(use.promised_mib),
        _memory(use.used_mib),
        _share(use.used_mib, use.memory_mib),
        _percent(use.cores_used_percent),
        _memory(use.memory_mib),
        _percent(use.cores_promised_percent),
    )


def _memory(memory: int | None) -> str:
    return amount(None if memory is None else MiB(memory))


def _share(part: int | None, whole: int | None) -> str:
    return NONE if part is None or whole is None else share(part, whole)


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}%"
