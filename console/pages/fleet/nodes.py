"""The page of nodes: what GPUs each has, what is promised of them, what still fits."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.report.terminal_lines import Tone
from console.cluster.snapshot import READER_ROLE, ClusterView
from console.get.node_rows import NodeRow, node_rows
from console.languages.messages import PageMessage, message
from console.pages.parts.blocks import (
    FormField,
    PageForm,
    PageNote,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
)
from console.pages.parts.cell import (
    TableCell,
    ago,
    code,
    mib,
    number,
    percent,
    plain,
    stamp,
    word,
)
from console.pages.parts.links import node_address
from console.records.query import PAGE

COLUMNS: Final = (
    TableColumn(key="name", title=message("Node")),
    TableColumn(key="status", title=message("Status"), wide=True),
    TableColumn(key="models", title=message("Models")),
    TableColumn(key="modes", title=message("Modes")),
    TableColumn(key="gpus", title=message("GPUs"), numeric=True),
    TableColumn(key="healthy", title=message("Healthy"), numeric=True),
    TableColumn(key="memory_mib", title=message("Memory"), numeric=True),
    TableColumn(key="promised_mib", title=message("Promised"), numeric=True),
    TableColumn(key="promised_percent", title=message("Share"), numeric=True),
    TableColumn(key="fits_mib", title=message("Largest that fits"), numeric=True),
    TableColumn(key="pods", title=message("Pods"), numeric=True),
    TableColumn(key="driver", title=message("Driver")),
    TableColumn(key="created", title=message("Created")),
)
_EMPTY: Final = message(
    "No node has GPUs that vgpu-admission knows of. The agent reports those of "
    "each node with this label:"
)
_COMMAND: Final = "kubectl label node gpu-1 vgpu-admission.io/node=enabled"


def hidden_nodes(heading: PageMessage) -> PageView:
    """Return the page for those who may not read GPUNodes."""
    return PageView(
        title=heading,
        heading=heading,
        blocks=(
            PageNote(
                title=message("Not yours to see"),
                text=message(
                    "This page is for those who may read GPUNodes. The ClusterRole {role} "
                    "grants it; an administrator can bind it to you. Whether you may, says:",
                    role=READER_ROLE,
                ),
                command="kubectl auth can-i list gpunodes.vgpu-admission.io",
            ),
        ),
        status=403,
        refreshes=False,
    )


def nodes_page(question: PageQuestion, site: ClusterView) -> PageView:
    """Return the page of nodes, those whose name contains what is looked for."""
    if site.blind:
        return hidden_nodes(message("Nodes"))
    wanted, after = question.value("q"), question.value("after")
    matching = (name for name in site.ledgers if wanted in name and name > after)
    names = list(islice(matching, PAGE + 1))
    shown = names[:PAGE]
    part = replace(site, ledgers={name: site.ledgers[name] for name in shown})
    more = question.with_values(after=shown[-1]) if len(names) > PAGE else ""
    form = PageForm(
        name="search",
        title=message("Search"),
        action="/nodes",
        fields=(FormField(name="q", label=message("Part of a name"), value=wanted),),
        submit=message("Search"),
    )
    rows = tuple(node_cells(question, row) for row in node_rows(part))
    notes = tuple(PageNote(text=text, tone=Tone.WARN) for text in site.unreadable[:10])
    return PageView(
        title=message("Nodes"),
        heading=message("Nodes"),
        blocks=(form, *notes, _table(rows, more)),
        as_of=site.now,
    )


def _table(rows: Sequence[tuple[TableCell, ...]], more: str) -> PageTable:
    return PageTable(
        name="nodes",
        caption=message("Nodes with GPUs, by name"),
        columns=COLUMNS,
        rows=tuple(rows),
        empty=_EMPTY,
        command=_COMMAND,
        more=more,
    )


def node_cells(question: PageQuestion, row: NodeRow) -> tuple[TableCell, ...]:
    """Return one node as the cells of a table."""
    created = "" if row.created is None else stamp(row.created)
    return (
        code(row.name, href=node_address(row.name)),
        status_cell(row),
        plain(", ".join(map(bare_name, row.models)), why=message("it reports no GPU")),
        code(", ".join(row.modes), why=message("it reports no GPU")),
        number(row.gpus),
        number(row.healthy),
        mib(row.memory_mib),
        mib(row.promised_mib),
        percent(row.promised_mib, row.memory_mib),
        mib(row.fits_mib, why=message("nothing fits")),
        number(len(row.pods)),
        code(row.driver, why=message("the agent reports none")),
        ago(created, question.now, why=message("its Node cannot be read")),
    )


def status_cell(row: NodeRow) -> TableCell:
    """Return whether a node takes pods, and what is wrong with it."""
    if row.out:
        return word(message("out"), Tone.BAD, note=row.out)
    if row.healthy < row.gpus:
        broken = row.gpus - row.healthy
        return word(
            message("ready"),
            Tone.WARN,
            note=message("{broken} of {gpus} GPUs are unhealthy", broken=broken, gpus=row.gpus),
        )
    if row.strangers:
        return word(message("ready"), Tone.WARN, note=message("pods without an entry use its GPUs"))
    if row.exposed:
        return word(message("ready"), Tone.WARN, note=row.exposed)
    return word(message("ready"), Tone.GOOD)
