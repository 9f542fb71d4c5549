"""The page of nodes: what GPUs each has, what is promised of them, what still fits."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.report.terminal_lines import Tone
from console.cluster.snapshot import READER_ROLE, ClusterView
from console.get.node_rows import NodeRow, node_rows
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
    TableColumn(key="name", title="Node"),
    TableColumn(key="status", title="Status", wide=True),
    TableColumn(key="models", title="Models"),
    TableColumn(key="modes", title="Modes"),
    TableColumn(key="gpus", title="GPUs", numeric=True),
    TableColumn(key="healthy", title="Healthy", numeric=True),
    TableColumn(key="memory_mib", title="Memory", numeric=True),
    TableColumn(key="promised_mib", title="Promised", numeric=True),
    TableColumn(key="promised_percent", title="Share", numeric=True),
    TableColumn(key="fits_mib", title="Largest that fits", numeric=True),
    TableColumn(key="pods", title="Pods", numeric=True),
    TableColumn(key="driver", title="Driver"),
    TableColumn(key="created", title="Created"),
)
_EMPTY: Final = (
    "No node has GPUs that vgpu-admission knows of. The agent reports those of each node with this"
    " label:"
)
_COMMAND: Final = "kubectl label node gpu-1 vgpu-admission.io/node=enabled"


def hidden_nodes(heading: str) -> PageView:
    """Return the page for those who may not read GPUNodes."""
    return PageView(
        title=heading,
        heading=heading,
        blocks=(
            PageNote(
                title="Not yours to see",
                text=f"This page is for those who may read GPUNodes. The ClusterRole {READER_ROLE}"
                " grants it; an administrator can bind it to you. Whether you may, says:",
                command="kubectl auth can-i list gpunodes.vgpu-admission.io",
            ),
        ),
        status=403,
        refreshes=False,
    )


def nodes_page(question: PageQuestion, site: ClusterView) -> PageView:
    """Return the page of nodes, those whose name contains what is looked for."""
    if site.blind:
        return hidden_nodes("Nodes")
    wanted, after = question.value("q"), question.value("after")
    matching = (name for name in site.ledgers if wanted in name and name > after)
    names = list(islice(matching, PAGE + 1))
    shown = names[:PAGE]
    part = replace(site, ledgers={name: site.ledgers[name] for name in shown})
    more = question.with_values(after=shown[-1]) if len(names) > PAGE else ""
    form = PageForm(
        name="search",
        title="Search",
        action="/nodes",
        fields=(FormField(name="q", label="Part of a name", value=wanted),),
        submit="Search",
    )
    rows = tuple(node_cells(question, row) for row in node_rows(part))
    notes = tuple(PageNote(text=text, tone=Tone.WARN) for text in site.unreadable[:10])
    return PageView(
        title="Nodes",
        heading="Nodes",
        blocks=(form, *notes, _table(rows, more)),
        as_of=site.now,
    )


def _table(rows: Sequence[tuple[TableCell, ...]], more: str) -> PageTable:
    return PageTable(
        name="nodes",
        caption="Nodes with GPUs, by name",
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
        plain(", ".join(map(bare_name, row.models)), why="it reports no GPU"),
        code(", ".join(row.modes), why="it reports no GPU"),
        number(row.gpus),
        number(row.healthy),
        mib(row.memory_mib),
        mib(row.promised_mib),
        percent(row.promised_mib, row.memory_mib),
        mib(row.fits_mib, why="nothing fits"),
        number(len(row.pods)),
        code(row.driver, why="the agent reports none"),
        ago(created, question.now, why="its Node cannot be read"),
    )


def status_cell(row: NodeRow) -> TableCell:
    """Return whether a node takes pods, and what is wrong with it."""
    if row.out:
        return word("out", Tone.BAD, note=row.out)
    if row.healthy < row.gpus:
        broken = row.gpus - row.healthy
        return word("ready", Tone.WARN, note=f"{broken} of {row.gpus} GPUs are unhealthy")
    if row.strangers:
        return word("ready", Tone.WARN, note="pods without an entry use its GPUs")
    if row.exposed:
        return word("ready", Tone.WARN, note=row.exposed)
    return word("ready", Tone.GOOD)
