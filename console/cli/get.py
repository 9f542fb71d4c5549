"""The lists that ``get`` prints: gather, select by name, print."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from allocator.cli.terminal import show, terminal_width
from console.cli.session import CommandSession, QuestionError
from console.cluster.cluster_client import GROUP
from console.cluster.pod import PodView
from console.cluster.reader_client import ClusterReader
from console.cluster.snapshot import ClusterView
from console.get.gpu_rows import GpuRow, gpu_listing
from console.get.layout import layout_lines
from console.get.listing import Listing, OutputFormat, in_order, listing_lines, only_rows
from console.get.node_rows import node_listing
from console.get.pod_rows import PodRow, pod_listing, pod_rows

NOTHING: Final = "No resources found"
MOST_CLOSED: Final = 10  # lines about closed nodes under a table
_DOCUMENTS: Final = (OutputFormat.CSV, OutputFormat.JSON, OutputFormat.YAML)


@dataclass(frozen=True, slots=True)
class Printer:
    """The output format of a list, and the session that it is printed to."""

    session: CommandSession
    output: OutputFormat
    headed: bool  # with column headings
    column: str = ""  # to sort by

    def print(self, listing: Listing, nothing: str) -> int:
        """Print a listing, or the message *nothing* in place of an empty table; return 0."""
        if listing.rows or self.output in _DOCUMENTS:
            ordered = in_order(listing, self.column)
            self.session.print(listing_lines(ordered, self.output, headed=self.headed))
        else:
            self.session.note(nothing)
        return 0

    def note(self, lines: Iterable[str]) -> None:
        """Write *lines* about the list to the error stream."""
        for line in lines:
            self.session.note(line)


class ChangePrinter:
    """Prints a list at first, and afterwards only the rows that are new or have changed."""

    def __init__(self, printer: Printer) -> None:
        """Print as *printer* does."""
        self._printer = printer
        self._rows: frozenset[bytes] | None = None  # as they were printed last
        self._notes: frozenset[str] = frozenset()
        self.output = printer.output

    def print(self, listing: Listing, nothing: str) -> int:
        """Print what has changed of a listing; *nothing* once, if there is nothing yet."""
        encoded = list(map(msgspec.json.encode, listing.rows))
        before, self._rows = self._rows, frozenset(encoded)
        if before is None:
            return self._printer.print(listing, nothing)
        changed = [number for number, row in enumerate(encoded) if row not in before]
        if not changed:
            return 0
        self._printer = replace(self._printer, headed=self._printer.headed and not before)
        return self._printer.print(only_rows(listing, changed), nothing)

    def note(self, lines: Iterable[str]) -> None:
        """Write those *lines* to the error stream that it does not show already."""
        before, now = self._notes, list(lines)
        self._notes = frozenset(now)
        self._printer.note(line for line in now if line not in before)


class RedrawPrinter:
    """Prints a list again and again: on a terminal in the place of the one before."""

    def __init__(self, printer: Printer) -> None:
        """Print as *printer* does."""
        self._printer = printer
        self._again = False
        self.output = printer.output

    def print(self, listing: Listing, nothing: str) -> int:
        """Print a listing, or the message *nothing* in its place; return 0."""
        stream = self._printer.session.output
        if stream.isatty():
            stream.write(_CLEARED)
        elif self._again:
            stream.write("\n")
        self._again = True
        return self._printer.print(listing, nothing)

    def note(self, lines: Iterable[str]) -> None:
        """Write *lines* about the list to the error stream."""
        self._printer.note(lines)


_CLEARED: Final = "\x1b[H\x1b[2J"  # to the first line of the screen, which is cleared (ECMA-48)
AnyPrinter = Printer | ChangePrinter | RedrawPrinter


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSelection:
    """Which objects a list shows."""

    names: Sequence[str] = ()  # empty: all
    namespace: str | None = None  # None: all namespaces
    labels: str = ""  # a label selector


async def nodes(reader: ClusterReader, printer: AnyPrinter, selection: ListSelection) -> int:
    """Print nodes with GPUs, all or some, and under a table why nodes are closed."""
    site = select_nodes(
        await reader.site(), await reader.labelled_nodes(selection.labels), selection.names
    )
    code = printer.print(node_listing(site), NOTHING)
    if printer.output is OutputFormat.TABLE:
        printer.note(_closed_lines(site))
    return code


def _closed_lines(site: ClusterView) -> Iterator[str]:
    """Yield one line for each closed node; ``--output=wide`` has them all."""
    reasons = [(name, why) for name in site.ledgers if (why := site.closed_reason(name))]
    for name, why in reasons[:MOST_CLOSED]:
        yield f"{name} takes no new pods: {why}"
    if len(reasons) > MOST_CLOSED:
        yield f"{len(reasons) - MOST_CLOSED} more take no new pods; see --output=wide"


async def gpus(reader: ClusterReader, printer: AnyPrinter, selection: ListSelection) -> int:
    """Print GPUs, all or some: by their names, their UUIDs, or the names of their nodes."""
    whole = await reader.site()
    nodes = [_node_of(whole, name) for name in selection.names]
    site = select_nodes(whole, await reader.labelled_nodes(selection.labels), nodes)
    return printer.print(_only_gpus(gpu_listing(site), selection.names), NOTHING)


async def pods(reader: ClusterReader, printer: AnyPrinter, selection: ListSelection) -> int:
    """Print pods that ask for a share of a GPU, or hold one."""
    site = await reader.site(needed=False)
    pod_views = await reader.pods(selection.namespace, selection.labels)
    all_rows = pod_rows(site, pod_views, gone=not selection.labels, namespace=selection.namespace)
    rows = _select_rows(all_rows, pod_views, selection.names)
    listing = pod_listing(rows, site.now, spaces=selection.namespace is None)
    place = "" if selection.namespace is None else f" in {selection.namespace} namespace"
    return printer.print(listing, f"{NOTHING}{place}.")


async def layout(reader: ClusterReader, session: CommandSession, names: Sequence[str]) -> int:
    """Draw the GPUs of all nodes, or of some."""
    whole = await reader.site()
    site = select_nodes(whole, None, [_node_of(whole, name) for name in names])
    show(layout_lines(site, terminal_width(session.output)), session.output)
    return 0


def select_nodes(
    site: ClusterView, labelled: Collection[str] | None, names: Sequence[str]
) -> ClusterView:
    """Return *site* with the nodes *names* only, in that order, or with all.

    Nodes that are not among *labelled* are left out. Raises :class:`QuestionError` for a name
    without a GPUNode.
    """
    missing = [name for name in names if name not in site.ledgers]
    if missing:
        raise QuestionError(f'gpunodes.{GROUP} "{missing[0]}" not found')
    kept = [n for n in names or site.ledgers if labelled is None or n in labelled]
    return replace(site, ledgers={name: site.ledgers[name] for name in kept})


def _node_of(site: ClusterView, name: str) -> str:
    """Return the node of a GPU's name or UUID; any other *name* is that of a node."""
    for node, ledger in site.ledgers.items():
        for gpu in ledger.node.gpus:
            if name in (gpu.uuid, f"{node}/{gpu.index}"):
                return node
    return name


def _only_gpus(listing: Listing, names: Sequence[str]) -> Listing:
    """Return the GPUs of *listing* that *names* mean, or all."""
    chosen = frozenset(names)
    kept = [
        number
        for number, row in enumerate(listing.rows)
        if not chosen
        or (isinstance(row, GpuRow) and not chosen.isdisjoint((row.node, row.name, row.uuid)))
    ]
    return only_rows(listing, kept)


def _select_rows(
    rows: Sequence[PodRow], pods: Sequence[PodView], names: Sequence[str]
) -> list[PodRow]:
    """Return the rows of the pods *names*, or all; raises :class:`QuestionError`.

    A pod without a request has no row, but its name is not an error.
    """
    known = {name for row in rows for name in (row.name, f"{row.namespace}/{row.name}")}
    for pod in pods:
        known |= {pod.metadata.name, f"{pod.namespace}/{pod.metadata.name}"}
    missing = [name for name in names if name not in known]
    if missing:
        raise QuestionError(f'pods "{missing[0]}" not found')
    return [
        row
        for row in rows
        if not names or row.name in names or f"{row.namespace}/{row.name}" in names
    ]
