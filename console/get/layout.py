"""Layouts: GPUs drawn as text, MIG slots as boxes and memory as bars, with their pods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from string import ascii_letters
from typing import Final

from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Grant
from allocator.model.board import Placement
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.report.terminal_lines import (
    WIDTH,
    CutLine,
    Line,
    TextSpan,
    Tone,
    WrappedLine,
    cut,
)
from console.cluster.snapshot import ClusterView, DriverAccount, GrantHolder, holders
from console.get.gpu_rows import layout as counted
from console.get.table import model

_INDENT: Final = "  "
_DRIVER_WIDTH: Final = 40  # columns of a driver version, at most
_SLOT_WIDTH: Final = 9  # columns of one slot, at most
_FREE, _FOREIGN = ".", "#"


@dataclass(frozen=True, slots=True)
class _Tenant:
    """One grant, its letter in the drawing, and its holder."""

    letter: str
    grant: Grant
    holder: GrantHolder


def layout_lines(site: ClusterView, width: int = WIDTH) -> Iterator[Line]:
    """Yield the GPUs of the site, node by node, in drawings of at most *width* columns."""
    for number, name in enumerate(site.ledgers):
        closed_reason = site.closed_reason(name)
        if number:
            yield ()
        account = site.account(name)
        driver = f"  driver {account.driver}" if account.driver else ""
        if closed_reason:
            yield WrappedLine("", f"{name}: {closed_reason}", Tone.WARN)
        else:
            note = TextSpan(cut(driver, _DRIVER_WIDTH), Tone.LABEL)
            yield CutLine("", name, Tone.STRONG, note)
        for gpu in site.ledgers[name].node.gpus:
            yield from _gpu_lines(site.ledgers[name], gpu, account, width=width)


def _gpu_lines(ledger: Ledger, gpu: Gpu, account: DriverAccount, *, width: int) -> Iterator[Line]:
    letters = islice(cycle(ascii_letters), len(gpu.grants))
    holdings = zip(letters, gpu.grants, holders(ledger, gpu), strict=True)
    tenants = [_Tenant(*each) for each in holdings]
    health = TextSpan("" if gpu.healthy else "  unhealthy", Tone.BAD)
    title = f"GPU {gpu.index}  {model(gpu.model)}  {gpu.mode}  {_summary(gpu)}"
    yield CutLine("", title, Tone.PLAIN, health)
    if not gpu.healthy and (reason := account.reasons.get(gpu.uuid)):
        yield CutLine(_INDENT, reason, Tone.BAD)
    if linked := _linked_indexes(ledger, gpu):
        yield CutLine(_INDENT, f"NVLink to GPU {linked}", Tone.LABEL)
    inner_width = width - 2 * len(_INDENT)
    if gpu.mode is Mode.MIG:
        yield from _slots(gpu, tenants, inner_width)
    else:
        yield _bar(gpu, tenants, inner_width)
    yield from map(_legend, tenants)


def _linked_indexes(ledger: Ledger, gpu: Gpu) -> str:
    """Return the indexes of the GPUs that NVLink joins with *gpu*."""
    return ", ".join(str(other.index) for other in ledger.node.gpus if other.uuid in gpu.links)


def _summary(gpu: Gpu) -> str:
    if gpu.mode is Mode.MIG:
        return "+".join(f"{n}x{name}" for name, n in counted(gpu).items()) or "uncut"
    shares = f"{len(gpu.grants)} of {gpu.slots} shares"
    memory = f"{gpu.memory_promised} of {gpu.memory} MiB"
    cores = f", {gpu.cores_promised}% compute" if gpu.cores_promised else ""
    foreign = f", {gpu.foreign} MiB foreign" if gpu.foreign else ""
    return f"{shares}, {memory}{cores}{foreign}"


def _slots(gpu: Gpu, tenants: Sequence[_Tenant], inner_width: int) -> Iterator[Line]:
    """Yield the numbers of the slots, and the instances on them."""
    if gpu.board is None:
        return
    width = min(_SLOT_WIDTH, inner_width // gpu.board.slots)
    numbers = "".join(f"{slot:<{width}}" for slot in range(gpu.board.slots))
    yield (TextSpan(f"{_INDENT}{numbers.rstrip()}", Tone.LABEL),)
    busy = {t.grant.placed.start: t for t in tenants if t.grant.placed is not None}
    idle = {p.start: p for p in gpu.instances if not p.mask & gpu.taken_slots}
    line, slot = [TextSpan(_INDENT)], 0
    while slot < gpu.board.slots:
        tenant, placed = busy.get(slot), idle.get(slot)
        if tenant is not None and tenant.grant.placed is not None:
            text = f"{tenant.letter} {_compute_slices(tenant.grant.placed)}"
            line.append(_box(text, tenant.grant.placed.profile.size * width, Tone.STRONG))
            slot += tenant.grant.placed.profile.size
        elif placed is not None:
            line.append(
                _box(f"{_compute_slices(placed)} idle", placed.profile.size * width, Tone.PLAIN)
            )
            slot += placed.profile.size
        else:
            line.append(TextSpan(f"{_FREE:<{width}}", Tone.LABEL))
            slot += 1
    yield tuple(line)


def _box(text: str, width: int, tone: Tone) -> TextSpan:
    return TextSpan(f"[{text[: width - 2]:<{width - 2}}]", tone)


def _compute_slices(placed: Placement) -> str:
    """Return the compute slices of a profile: all that fits into a box of one slot."""
    return placed.profile.name.partition(".")[0]


def _bar(gpu: Gpu, tenants: Sequence[_Tenant], inner_width: int) -> Line:
    """Return the memory of a GPU from left to right: promised, foreign, free."""
    width = inner_width - 2
    parts = [(t.letter, t.grant.memory, Tone.STRONG) for t in tenants]
    spans, total, drawn_to = [], 0, 0
    for sign, memory, tone in (*parts, (_FOREIGN, gpu.foreign, Tone.WARN)):
        total += memory
        end = min(width, -(-width * total // max(gpu.memory, 1)))
        spans.append(TextSpan(sign * (end - drawn_to), tone))
        drawn_to = end
    free = TextSpan(_FREE * (width - drawn_to), Tone.LABEL)
    return (TextSpan(f"{_INDENT}["), *spans, free, TextSpan("]"))


def _legend(tenant: _Tenant) -> Line:
    grant = tenant.grant
    cores = f" and {grant.cores}% of its compute" if grant.cores else ""
    if grant.placed is not None:
        what = f"{grant.placed.profile} at slot {grant.placed.start}"
    else:
        what = f"{grant.memory} MiB{cores}"
    text = f"{tenant.letter}  {tenant.holder.pod}, {tenant.holder.container}: {what}"
    return CutLine(_INDENT, text)
