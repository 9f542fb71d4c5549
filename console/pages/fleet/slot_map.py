"""The slot map: a GPU drawn as boxes, and the same as the rows of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from string import ascii_letters
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Grant
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU
from console.cluster.snapshot import GrantHolder, holders
from console.pages.parts.blocks import Drawing, DrawnBox, PageTable, TableColumn
from console.pages.parts.cell import TableCell, code, mib, number, percent, plain, unknown
from console.pages.parts.links import address
from console.pages.parts.visible import ANOTHER, sees
from console.records.query import Scope

WIDTH: Final = 400.0
COLUMNS: Final = (
    TableColumn(key="sign", title="Sign"),
    TableColumn(key="holder", title="Held by"),
    TableColumn(key="container", title="Container"),
    TableColumn(key="profile", title="Profile"),
    TableColumn(key="start", title="First slot", numeric=True),
    TableColumn(key="size", title="Slots", numeric=True),
    TableColumn(key="memory_mib", title="Memory", numeric=True),
    TableColumn(key="cores_percent", title="Compute", numeric=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTenant:
    """A grant with its letter; its holder is named only to those who may see it."""

    letter: str
    grant: Grant
    holder: GrantHolder
    seen: bool

    @property
    def name(self) -> str:
        """Return who holds it."""
        return self.holder.pod if self.seen else ANOTHER


def tenants_of(ledger: Ledger, gpu: Gpu, scope: Scope) -> tuple[DrawnTenant, ...]:
    """Return the grants on *gpu* in the order of their letters."""
    letters = islice(cycle(ascii_letters), len(gpu.grants))
    return tuple(
        DrawnTenant(
            letter=letter,
            grant=grant,
            holder=holder,
            seen=sees(scope, holder.entry.namespace),
        )
        for letter, grant, holder in zip(letters, gpu.grants, holders(ledger, gpu), strict=True)
    )


def drawings(gpu: Gpu, tenants: Sequence[DrawnTenant]) -> Iterator[Drawing]:
    """Yield *gpu* as drawings: its slots, or its memory and its compute."""
    name = f"GPU {gpu.index}"
    if gpu.mode is Mode.MIG:
        if gpu.board is not None:
            yield _slots(gpu, tenants, name)
        return
    memory = [(t, float(t.grant.memory)) for t in tenants]
    yield _bar(f"{name}: memory", memory, whole=gpu.memory, foreign=gpu.foreign, unit="MiB")
    cores = [(t, float(t.grant.cores)) for t in tenants if t.grant.cores]
    if not cores:
        return  # nobody has a share of the compute, so nothing of it is taken or free
    yield _bar(f"{name}: compute", cores, whole=WHOLE_GPU, foreign=0, unit="%")


def _slots(gpu: Gpu, tenants: Sequence[DrawnTenant], name: str) -> Drawing:
    slots = 1 if gpu.board is None else gpu.board.slots
    width = WIDTH / slots
    boxes: list[DrawnBox] = []
    taken = 0
    for tenant in tenants:
        placed = tenant.grant.placed
        if placed is None:
            continue
        taken |= placed.mask
        state = "busy" if tenant.seen else "other"
        boxes.append(
            DrawnBox(
                x=placed.start * width,
                width=placed.profile.size * width - 1,
                text=f"{tenant.letter} {_short(placed.profile.name)}",
                state=state,
                label=f"{_range(placed.start, placed.profile.size)}: {placed.profile},"
                f" held by {tenant.name}",
            )
        )
    for placed in gpu.instances:
        if placed.mask & gpu.taken_slots:
            continue
        taken |= placed.mask
        boxes.append(
            DrawnBox(
                x=placed.start * width,
                width=placed.profile.size * width - 1,
                text=f"{_short(placed.profile.name)} idle",
                state="idle",
                label=f"{_range(placed.start, placed.profile.size)}: {placed.profile}, idle",
            )
        )
    boxes += [
        DrawnBox(x=slot * width, width=width - 1, text="", state="free", label=f"slot {slot}: free")
        for slot in range(slots)
        if not taken >> slot & 1
    ]
    return Drawing(
        title=f"{name}: memory slots",
        label=f"{name}: {slots} memory slots",
        boxes=tuple(sorted(boxes, key=lambda box: box.x)),
        ticks=tuple((slot * width + 2, str(slot)) for slot in range(slots)),
    )


def _short(profile: str) -> str:
    """Return the compute slices of a profile: all that fits into a box of one slot."""
    return profile.partition(".")[0]


def _range(start: int, size: int) -> str:
    return f"slot {start}" if size == 1 else f"slots {start} to {start + size - 1}"


def _bar(
    title: str,
    parts: Sequence[tuple[DrawnTenant, float]],
    *,
    whole: float,
    foreign: float,
    unit: str,
) -> Drawing:
    """Return amounts side by side; what is promised beyond the whole makes all of it narrower."""
    total = max(whole, sum(amount for _, amount in parts) + foreign, 1)
    boxes: list[DrawnBox] = []
    x = 0.0
    for tenant, amount in parts:
        width = WIDTH * amount / total
        boxes.append(
            DrawnBox(
                x=round(x, 2),
                width=round(width, 2),
                text=tenant.letter,
                state="busy" if tenant.seen else "other",
                label=f"{amount:,.0f} {unit}, held by {tenant.name}",
            )
        )
        x += width
    rest = total - foreign - sum(amount for _, amount in parts)
    for state, amount in (("foreign", foreign), ("free", rest)):
        width = WIDTH * amount / total
        if amount > 0:
            label = f"{amount:,.0f} {unit} {state}"
            text = state if width > 40 else ""  # noqa: PLR2004 -- the width of the word
            boxes.append(
                DrawnBox(x=round(x, 2), width=round(width, 2), text=text, state=state, label=label)
            )
        x += width
    return Drawing(title=title, label=f"{title}, of {whole:,.0f} {unit}", boxes=tuple(boxes))


def slot_table(gpu: Gpu, tenants: Sequence[DrawnTenant]) -> PageTable:
    """Return what is on *gpu* as a table, with the letters of the drawing."""
    return PageTable(
        name=f"gpu{gpu.index}",
        caption=f"GPU {gpu.index}: what is on it",
        columns=COLUMNS,
        rows=(*(_tenant_cells(tenant) for tenant in tenants), *_idle_rows(gpu)),
        empty="Nothing is promised on this GPU, and no MIG instance exists.",
    )


def _tenant_cells(tenant: DrawnTenant) -> tuple[TableCell, ...]:
    grant, entry = tenant.grant, tenant.holder.entry
    href = address("/pods", {"ns": entry.namespace, "pod": entry.pod}) if tenant.seen else ""
    holder = code(tenant.holder.pod, href=href) if tenant.seen else plain(ANOTHER)
    container = tenant.holder.container if tenant.seen else ""
    placed = grant.placed
    no_slots = "the GPU is not cut"
    cores = unknown("MIG limits compute by itself, or no limit was asked for")
    return (
        code(tenant.letter),
        holder,
        code(container, why="of another namespace"),
        code(placed.profile.name if placed else "", why=no_slots),
        number(placed.start if placed else None, why=no_slots),
        number(placed.profile.size if placed else None, why=no_slots),
        mib(grant.memory),
        percent(grant.cores, WHOLE_GPU) if grant.cores else cores,
    )


def _idle_rows(gpu: Gpu) -> Iterator[tuple[TableCell, ...]]:
    for placed in gpu.instances:
        if not placed.mask & gpu.taken_slots:
            yield (
                unknown("idle instances have no letter"),
                plain("idle"),
                unknown("nobody holds it"),
                code(placed.profile.name),
                number(placed.start),
                number(placed.profile.size),
                mib(placed.profile.memory),
                unknown("MIG limits compute by itself"),
            )


def gpu_title(gpu: Gpu) -> str:
    """Return the name of a GPU for a heading."""
    return f"GPU {gpu.index}: {bare_name(gpu.model)}, {gpu.mode}"
