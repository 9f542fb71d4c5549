"""The page of one node: its GPUs drawn and as tables, who holds them, what happened there."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from allocator.model.gpu import Gpu
from allocator.report.terminal_lines import Tone
from console.cluster.snapshot import ClusterView
from console.get.gpu_rows import GpuRow, gpu_rows
from console.get.node_rows import NodeRow, node_rows
from console.languages.messages import message
from console.pages.fleet.nodes import status_cell
from console.pages.fleet.slot_map import drawings, gpu_title, slot_table, tenants_of
from console.pages.parts.blocks import (
    FactList,
    PageBlock,
    PageHeading,
    PageNote,
    PageQuestion,
    PageView,
)
from console.pages.parts.cell import ago, code, mib, number, plain, promised, stamp, unknown, word
from console.pages.parts.life import life_line
from console.pages.parts.visible import visible_names
from console.records.rows import StoredRecord

_HEALTH: Final = {
    "ok": message("ok"),
    "unhealthy": message("unhealthy"),
    "out-of-service": message("out-of-service"),
}
MOST_GPUS: Final = 64  # that are drawn
MOST_RECORDS: Final = 50


def node_page(
    question: PageQuestion, site: ClusterView, name: str, *, records: Sequence[StoredRecord]
) -> PageView:
    """Return the page of the node *name*, which *site* has; *records* are those that name it."""
    part = replace(site, ledgers={name: site.ledgers[name]})
    [row] = node_rows(part)
    blocks = _blocks(question, part, row, records=records)
    return PageView(
        title=message("Node {name}", name=name),
        heading=message("Node {name}", name=name),
        word=status_cell(row),
        blocks=tuple(blocks),
        as_of=site.now,
    )


def _blocks(
    question: PageQuestion,
    site: ClusterView,
    row: NodeRow,
    *,
    records: Sequence[StoredRecord],
) -> Iterator[PageBlock]:
    scope = question.viewer.scope
    if row.out:
        yield PageNote(title=message("It takes no new pods"), text=row.out, tone=Tone.BAD)
    if row.exposed:
        yield PageNote(title=message("Exposed"), text=row.exposed, tone=Tone.WARN)
    if row.strangers:
        names = ", ".join(dict.fromkeys(visible_names(scope, row.strangers)))
        yield PageNote(
            title=message("Pods without an entry use its GPUs"), text=names, tone=Tone.WARN
        )
    yield _summary(question, row)
    ledger = site.ledgers[row.name]
    rows = {gpu_row.uuid: gpu_row for gpu_row in gpu_rows(site)}
    for gpu in ledger.node.gpus[:MOST_GPUS]:
        tenants = tenants_of(ledger, gpu, scope)
        healthy = rows[gpu.uuid].health == "ok"
        yield PageHeading(
            title=gpu_title(gpu),
            name=f"gpu-{gpu.index}",
            tone=Tone.GOOD if healthy else Tone.BAD,
            word=_HEALTH.get(rows[gpu.uuid].health, rows[gpu.uuid].health),
        )
        yield _gpu_facts(gpu, rows[gpu.uuid])
        yield from drawings(gpu, tenants)
        yield slot_table(gpu, tenants)
    if len(ledger.node.gpus) > MOST_GPUS:
        yield PageNote(
            text=message("Only the first {most_gpus} GPUs are shown.", most_gpus=MOST_GPUS)
        )
    earliest_first = tuple(reversed(records))
    line = life_line(earliest_first, question.now, people=scope.people, most=MOST_RECORDS)
    empty = line.empty if line.events else message("No record of this node is stored.")
    yield replace(line, title=message("What happened on this node"), empty=empty)


def _summary(question: PageQuestion, row: NodeRow) -> FactList:
    created = "" if row.created is None else stamp(row.created)
    return FactList(
        title=message("Summary"),
        short=True,
        rows=(
            (message("GPUs"), (number(row.gpus),)),
            (message("Healthy"), (number(row.healthy),)),
            (message("Memory"), (mib(row.memory_mib),)),
            (message("Promised"), (promised(row.promised_mib, row.memory_mib),)),
            (message("Largest that fits"), (mib(row.fits_mib, why=message("nothing fits")),)),
            (message("Driver"), (code(row.driver, why=message("the agent reports none")),)),
            (message("Inventory"), (code(row.inventory, why=message("no agent reports one")),)),
            (
                message("Created"),
                (ago(created, question.now, why=message("its Node cannot be read")),),
            ),
        ),
    )


def _gpu_facts(gpu: Gpu, row: GpuRow) -> FactList:
    foreign = mib(gpu.foreign) if gpu.foreign else plain(message("none"))
    links = ", ".join(row.links)
    rows = [
        (message("UUID"), (code(gpu.uuid),)),
        (message("Promised"), (promised(gpu.memory_promised, gpu.memory),)),
        (message("Memory"), (mib(gpu.memory),)),
        (message("Largest that fits"), (mib(row.fits_mib, why=message("nothing fits")),)),
        (
            message("Shares"),
            (
                plain(
                    message(
                        "{taken} of {shares} taken",
                        taken=row.shares_taken,
                        shares=row.shares,
                    )
                ),
            ),
        ),
        (message("Foreign memory"), (foreign,)),
        (message("NUMA node"), (number(gpu.numa, why=message("the driver does not say")),)),
        (
            message("NVLink to"),
            (code(links) if links else unknown(message("it has none, or none is reported")),),
        ),
    ]
    if row.reason:
        rows.insert(0, (message("Out of service"), (word(row.reason, Tone.BAD),)))
    return FactList(title="", rows=tuple(rows), short=True)
