"""The slot map: a GPU drawn as boxes, and the same as the rows of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from string import ascii_letters
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Grant
from allocator.model.board import Placement
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU
from console.cluster.snapshot import GrantHolder, holders
from console.languages.messages import PageMessage, joined_text, message
from console.pages.parts.blocks import Drawing, DrawnBox, PageTable, TableColumn
from console.pages.parts.cell import TableCell, code, mib, number, percent, plain, unknown
from console.pages.parts.links import address
from console.pages.parts.visible import ANOTHER, sees
from console.records.query import Scope

WIDTH: Final = 400.0
_STATES: Final = {"foreign": message("foreign"), "free": message("free")}
COLUMNS: Final = (
    TableColumn(key="sign", title=message("Sign")),
    TableColumn(key="holder", title=message("Held by")),
    TableColumn(key="container", title=message("Container")),
    TableColumn(key="profile", title=message("Profile")),
    TableColumn(key="start", title=message("First slot"), numeric=True),
    TableColumn(key="size", title=message("Slots"), numeric=True),
    TableColumn(key="memory_mib", title=message("Memory"), numeric=True),
    TableColumn(key="cores_percent", title=message("Compute"), numeric=True),
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
    yield _bar(
        message("{name}: memory", name=name),
        memory,
        whole=gpu.memory,
        foreign=gpu.foreign,
        unit="MiB",
    )
    cores = [(t, float(t.grant.cores)) for t in tenants if t.grant.cores]
    if not cores:
        return  # nobody has a share of the compute, so nothing of it is taken or free
    yield _bar(message("{name}: compute", name=name), cores, whole=WHOLE_GPU, foreign=0, unit="%")


def _slots(gpu: Gpu, tenants: Sequence[DrawnTenant], name: str) -> Drawing:
    slots = 1 if gpu.board is None else gpu.board.slots
    width = WIDTH / slots
    taken = gpu.taken_slots
    idle = [placed for placed in gpu.instances if not placed.mask & taken]
    for placed in idle:
        taken |= placed.mask
    boxes = [
        *(_held_box(one, one.grant.placed, width) for one in tenants if one.grant.placed),
        *(_idle_box(placed, width) for placed in idle),
        *(_free_box(slot, width) for slot in range(slots) if not taken >> slot & 1),
    ]
    return Drawing(
        title=message("{name}: memory slots", name=name),
        label=message("{name}: {slots} memory slots", name=name, slots=slots),
        boxes=tuple(sorted(boxes, key=lambda box: box.x)),
        ticks=tuple((slot * width + 2, str(slot)) for slot in range(slots)),
    )


def _held_box(tenant: DrawnTenant, placed: Placement, width: float) -> DrawnBox:
    """Return what *tenant* holds; *width* is that of one slot."""
    return DrawnBox(
        x=placed.start * width,
        width=placed.profile.size * width - 1,
        text=f"{tenant.letter} {_short(placed.profile.name)}",
        state="busy" if tenant.seen else "other",
        label=message(
            "{slots}: {profile}, held by {name}",
            slots=_range(placed.start, placed.profile.size),
            profile=placed.profile,
            name=tenant.name,
        ),
    )


def _idle_box(placed: Placement, width: float) -> DrawnBox:
    """Return an instance that nobody holds; *width* is that of one slot."""
    return DrawnBox(
        x=placed.start * width,
        width=placed.profile.size * width - 1,
        text=message("{profile} idle", profile=_short(placed.profile.name)),
        state="idle",
        label=message(
            "{slots}: {profile}, idle",
            slots=_range(placed.start, placed.profile.size),
            profile=placed.profile,
        ),
    )


def _free_box(slot: int, width: float) -> DrawnBox:
    label = message("slot {slot}: free", slot=slot)
    return DrawnBox(x=slot * width, width=width - 1, text="", state="free", label=label)


def _short(profile: str) -> str:
    """Return the compute slices of a profile: all that fits into a box of one slot."""
    return profile.partition(".")[0]


def _range(start: int, size: int) -> PageMessage:
    if size == 1:
        return message("slot {slot}", slot=start)
    return message("slots {first} to {last}", first=start, last=start + size - 1)


def _bar(
    title: PageMessage,
    parts: Sequence[tuple[DrawnTenant, float]],
    *,
    whole: float,
    foreign: float,
    unit: str,
) -> Drawing:
    """Return amounts side by side; what is promised beyond the whole makes all of it narrower."""
    promised = sum(amount for _, amount in parts)
    total = max(whole, promised + foreign, 1)
    boxes: list[DrawnBox] = []
    x = 0.0
    for tenant, amount in parts:
        width = WIDTH * amount / total
        held = message(
            "{amount:,.0f} {unit}, held by {name}", amount=amount, unit=unit, name=tenant.name
        )
        state = "busy" if tenant.seen else "other"
        boxes.append(_bar_box(x, width, text=tenant.letter, state=state, label=held))
        x += width
    for state, amount in (("foreign", foreign), ("free", total - foreign - promised)):
        width = WIDTH * amount / total
        if amount > 0:
            words = _STATES[state]
            label = joined_text(" ", (f"{amount:,.0f} {unit}", words))
            text = words if width > 40 else ""  # noqa: PLR2004 -- the width of the word
            boxes.append(_bar_box(x, width, text=text, state=state, label=label))
        x += width
    return Drawing(
        title=title,
        label=message("{title}, of {whole:,.0f} {unit}", title=title, whole=whole, unit=unit),
        boxes=tuple(boxes),
    )


def _bar_box(x: float, width: float, *, text: str, state: str, label: str) -> DrawnBox:
    return DrawnBox(x=round(x, 2), width=round(width, 2), text=text, state=state, label=label)


def slot_table(gpu: Gpu, tenants: Sequence[DrawnTenant]) -> PageTable:
    """Return what is on *gpu* as a table, with the letters of the drawing."""
    return PageTable(
        name=f"gpu{gpu.index}",
        caption=message("GPU {index}: what is on it", index=gpu.index),
        columns=COLUMNS,
        rows=(*(_tenant_cells(tenant) for tenant in tenants), *_idle_rows(gpu)),
        empty=message("Nothing is promised on this GPU, and no MIG instance exists."),
    )


def _tenant_cells(tenant: DrawnTenant) -> tuple[TableCell, ...]:
    grant, entry = tenant.grant, tenant.holder.entry
    href = address("/pods", {"ns": entry.namespace, "pod": entry.pod}) if tenant.seen else ""
    holder = code(tenant.holder.pod, href=href) if tenant.seen else plain(ANOTHER)
    container = tenant.holder.container if tenant.seen else ""
    placed = grant.placed
    no_slots = message("the GPU is not cut")
    cores = unknown(message("MIG limits compute by itself, or no limit was asked for"))
    return (
        code(tenant.letter),
        holder,
        code(container, why=message("of another namespace")),
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
                unknown(message("idle instances have no letter")),
                plain(message("idle")),
                unknown(message("nobody holds it")),
                code(placed.profile.name),
                number(placed.start),
                number(placed.profile.size),
                mib(placed.profile.memory),
                unknown(message("MIG limits compute by itself")),
            )


def gpu_title(gpu: Gpu) -> str:
    """Return the name of a GPU for a heading."""
    return f"GPU {gpu.index}: {bare_name(gpu.model)}, {gpu.mode}"
