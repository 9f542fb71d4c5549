"""GPUs as rows: the product, what is promised, and what still fits."""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from allocator.ledger.ledger import Ledger
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.mig import MigOptions
from allocator.scheduling.capacity import largest_free
from console.cluster.snapshot import ClusterView, holders
from console.get.listing import Listing
from console.get.table import NONE, amount, model, share, word

COLUMNS = ("NAME", "MODEL", "MODE", "LAYOUT", "PROMISED", "FITS", "HEALTH")
WIDE = ("CORES", "FOREIGN", "NUMA", "LINKS", "PODS", "UUID", "WHY")


class GpuRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One GPU."""

    name: str
    node: str
    index: int
    uuid: str
    model: str
    mode: Mode
    memory_mib: int = msgspec.field(name="memoryMiB")
    promised_mib: int = msgspec.field(name="promisedMiB")
    promised_cores_percent: int
    foreign_mib: int = msgspec.field(name="foreignMiB")
    fits_mib: int | None = msgspec.field(name="fitsMiB")  # largest request it takes; None: none
    shares: int
    shares_taken: int
    layout: Mapping[str, int]  # MIG instances by profile, busy and idle
    numa: int | None
    links: tuple[str, ...]  # UUIDs of the GPUs that NVLink joins with it
    health: str
    reason: str  # why it is not ok; "" where it is
    pods: tuple[str, ...]


def gpu_listing(site: ClusterView) -> Listing:
    """Return the GPUs of a site."""
    rows = list(gpu_rows(site))
    indexes = {row.uuid: row.index for row in rows}
    return Listing(
        kind="GpuList",
        row=GpuRow,
        columns=COLUMNS,
        wide=WIDE,
        rows=rows,
        cells=[cells(row, indexes) for row in rows],
    )


def gpu_rows(site: ClusterView) -> Iterator[GpuRow]:
    """Yield a row for each GPU of the site."""
    snapshot, policy = site.snapshot(), site.configuration.policy
    options = MigOptions(demand=snapshot.demand, geometries=policy.geometries, named=None)
    for name, ledger in site.ledgers.items():
        closed_reason, reasons = site.closed_reason(name), site.account(name).reasons
        for gpu, usable in zip(ledger.node.gpus, site.node(name).gpus, strict=True):
            reason = closed_reason if gpu.healthy else reasons.get(gpu.uuid, closed_reason)
            yield _row(ledger, gpu, fits=largest_free(usable, options), reason=reason)


def _row(ledger: Ledger, gpu: Gpu, *, fits: MiB | None, reason: str) -> GpuRow:
    health = "ok" if gpu.healthy else "unhealthy"
    return GpuRow(
        name=f"{ledger.name}/{gpu.index}",
        node=ledger.name,
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        mode=gpu.mode,
        memory_mib=gpu.memory,
        promised_mib=gpu.memory_promised,
        promised_cores_percent=gpu.cores_promised,
        foreign_mib=gpu.foreign,
        fits_mib=fits,
        shares=gpu.slots,
        shares_taken=len(gpu.grants),
        layout=layout(gpu),
        numa=gpu.numa,
        links=gpu.links,
        health="out-of-service" if reason and gpu.healthy else health,
        reason=reason,
        pods=tuple(dict.fromkeys(holder.pod for holder in holders(ledger, gpu))),
    )


def layout(gpu: Gpu) -> dict[str, int]:
    """Return the number of MIG instances of *gpu* by profile, promised and idle ones."""
    granted = [grant.placed for grant in gpu.grants if grant.placed is not None]
    idle = [placed for placed in gpu.instances if not placed.mask & gpu.taken_slots]
    counts = Counter(placed.profile for placed in (*granted, *idle))
    largest = sorted(counts, key=lambda profile: (-profile.slices, profile.name))
    return {profile.name: counts[profile] for profile in largest}


def cells(row: GpuRow, indexes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the cells of a row; *indexes* are those of GPUs by UUID."""
    cores = NONE if row.mode is Mode.MIG else share(row.promised_cores_percent, 100)
    numa = NONE if row.numa is None else str(row.numa)
    foreign = amount(MiB(row.foreign_mib)) if row.foreign_mib else NONE
    links = ",".join(str(indexes[uuid]) for uuid in row.links if uuid in indexes) or NONE
    pods = ",".join(row.pods) or NONE
    return (
        row.name,
        model(row.model),
        str(row.mode),
        _layout(row),
        f"{row.promised_mib}/{row.memory_mib}Mi",
        amount(None if row.fits_mib is None else MiB(row.fits_mib)),
        row.health,
        cores,
        foreign,
        numa,
        links,
        pods,
        word(row.uuid),
        row.reason or NONE,
    )


def _layout(row: GpuRow) -> str:
    """Return the MIG instances of a GPU, or the shares taken of one that is not cut."""
    if row.mode is not Mode.MIG:
        return f"{row.shares_taken}-of-{row.shares}"
    return "+".join(f"{count}x{name}" for name, count in row.layout.items()) or "uncut"
