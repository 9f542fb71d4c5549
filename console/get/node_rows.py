"""Nodes as rows: what GPUs each has, how much of them is promised, what still fits."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from allocator.ledger.ledger import LONGEST_STATED
from allocator.model.units import MiB
from allocator.model.untrusted import inert
from console.cluster.snapshot import ClusterView
from console.get.gpu_rows import GpuRow, gpu_rows
from console.get.listing import Listing
from console.get.table import NONE, age, amount, model, share, word

COLUMNS: Final = ("NAME", "MODEL", "MODE", "GPUS", "PROMISED", "FITS", "PODS", "STATUS", "AGE")
WIDE: Final = ("MEMORY", "HEALTHY", "INVENTORY", "DRIVER", "WHY")


class NodeRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node."""

    name: str
    models: tuple[str, ...]
    modes: tuple[str, ...]
    gpus: int
    healthy: int
    memory_mib: int = msgspec.field(name="memoryMiB")
    promised_mib: int = msgspec.field(name="promisedMiB")
    fits_mib: int | None = msgspec.field(name="fitsMiB")
    pods: tuple[str, ...]
    out: str  # why nothing may be promised there; "" where something may
    strangers: tuple[str, ...]  # pods that use GPUs without an entry, of those above
    exposed: str  # why any container may see GPUs that nobody gave it; "" where none may
    inventory: str
    driver: str  # its version, or that the GPUs are simulated
    created: datetime | None


def node_rows(site: ClusterView) -> Iterator[NodeRow]:
    """Yield a row for each node of the site."""
    gpus: dict[str, list[GpuRow]] = {name: [] for name in site.ledgers}
    for row in gpu_rows(site):
        gpus[row.node].append(row)
    for name, rows in gpus.items():
        yield NodeRow(
            name=name,
            models=_unique(row.model for row in rows),
            modes=_unique(str(row.mode) for row in rows),
            gpus=len(rows),
            healthy=sum(row.health != "unhealthy" for row in rows),
            memory_mib=sum(row.memory_mib for row in rows),
            promised_mib=sum(row.promised_mib for row in rows),
            fits_mib=max((r.fits_mib for r in rows if r.fits_mib is not None), default=None),
            pods=_unique(pod for row in rows for pod in row.pods),
            out=site.closed_reason(name),
            strangers=_unique(f"{use.namespace}/{use.pod}" for use in site.ledgers[name].strangers),
            exposed=site.account(name).exposed,
            inventory=site.ledgers[name].inventory,
            driver=site.account(name).driver,
            created=site.created_at(name),
        )


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def node_listing(site: ClusterView) -> Listing:
    """Return the nodes of a site."""
    rows = list(node_rows(site))
    return Listing(
        kind="NodeList",
        row=NodeRow,
        columns=COLUMNS,
        wide=WIDE,
        rows=rows,
        cells=[_cells(row, site.now) for row in rows],
        created=[row.created for row in rows],
    )


def _cells(row: NodeRow, now: datetime) -> tuple[str, ...]:
    return (
        row.name,
        ",".join(map(model, row.models)) or NONE,
        ",".join(row.modes) or NONE,
        str(row.gpus),
        share(row.promised_mib, row.memory_mib),
        amount(None if row.fits_mib is None else MiB(row.fits_mib)),
        str(len(row.pods)),
        "Out" if row.out else "Ready",
        age(row.created, now),
        f"{row.memory_mib}Mi",
        str(row.healthy),
        row.inventory.removeprefix("sha256:")[:10] or NONE,
        word(row.driver),
        row.out or _without_entry(row.strangers) or inert(row.exposed[:LONGEST_STATED]) or NONE,
    )


def _without_entry(pods: tuple[str, ...]) -> str:
    """Return which pods use GPUs without an entry; empty if none does."""
    return f"without an entry: {', '.join(pods)}" if pods else ""
