"""The commands that list and draw: ``get`` and ``layout``."""

from collections.abc import Awaitable, Callable
from typing import Final, Unpack

import click

from console.cli import get as lists
from console.cli.get import AnyPrinter, ChangePrinter, ListSelection, Printer
from console.cli.groups import KindGroup
from console.cli.options import PrintOptions, labels, with_output_options, with_session
from console.cli.session import CommandSession
from console.cli.watch import watch
from console.cluster.reader_client import ClusterReader
from console.get import gpu_rows, node_rows, pod_rows
from console.get.listing import OutputFormat

NODE_HELP: Final = "same as the argument NODE; repeatable"
NODES: Final = (*node_rows.COLUMNS, *node_rows.WIDE)
_TABLES: Final = (OutputFormat.TABLE, OutputFormat.WIDE)
GPUS: Final = (*gpu_rows.COLUMNS, *gpu_rows.WIDE)
PODS: Final = (pod_rows.SPACE, *pod_rows.COLUMNS, *pod_rows.WIDE)


def _printer(session: CommandSession, options: PrintOptions) -> Printer:
    output = OutputFormat(options["output"] or OutputFormat.TABLE)
    return Printer(session, output, headed=options["headed"], column=options["column"] or "")


def _run(
    session: CommandSession,
    options: PrintOptions,
    view: Callable[[ClusterReader, AnyPrinter], Awaitable[int]],
) -> int:
    """Print a list once, or watch it; raises ``click.UsageError`` for a document to watch."""
    printer = _printer(session, options)
    if not options["watch"]:
        return session.run(lambda reader: view(reader, printer))
    if printer.output not in _TABLES:
        text = f"--watch cannot go with -o {printer.output}; accepted: a table, -o wide"
        raise click.UsageError(text)
    changes = ChangePrinter(printer)
    return session.run(lambda reader: watch(reader, lambda again: view(again, changes)))


@click.group("get", cls=KindGroup)
def get() -> None:
    """List nodes, GPUs or pods."""


@get.command("nodes")
@click.argument("names", nargs=-1, metavar="[NODE...]")
@with_output_options(NODES)
@labels
@with_session
def get_nodes(
    session: CommandSession, *, names: tuple[str, ...], **options: Unpack[PrintOptions]
) -> int:
    """List nodes with GPUs: amounts promised and the largest request that still fits."""
    selection = ListSelection(names=names, labels=options["labels"])
    return _run(session, options, lambda reader, to: lists.nodes(reader, to, selection))


@get.command("gpus")
@click.argument("names", nargs=-1, metavar="[NODE...]")
@click.option("--node", "more", multiple=True, metavar="NODE", help=NODE_HELP)
@with_output_options(GPUS)
@labels
@with_session
def get_gpus(
    session: CommandSession,
    *,
    names: tuple[str, ...],
    more: tuple[str, ...],
    **options: Unpack[PrintOptions],
) -> int:
    """List GPUs: MIG layout, amounts promised and the largest request that still fits."""
    selection = ListSelection(names=tuple(dict.fromkeys((*names, *more))), labels=options["labels"])
    return _run(session, options, lambda reader, to: lists.gpus(reader, to, selection))


@get.command("pods")
@click.argument("names", nargs=-1, metavar="[POD...]")
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="list pods of all namespaces"
)
@with_output_options(PODS)
@labels
@with_session
def get_pods(
    session: CommandSession,
    *,
    names: tuple[str, ...],
    everywhere: bool,
    **options: Unpack[PrintOptions],
) -> int:
    """List pods that ask for vGPU: what each got, and where."""

    async def view(reader: ClusterReader, printer: AnyPrinter) -> int:
        space = None if everywhere else session.namespace or reader.cluster.namespace
        selection = ListSelection(names=names, namespace=space, labels=options["labels"])
        return await lists.pods(reader, printer, selection)

    return _run(session, options, view)


@click.command("layout")
@click.argument("names", nargs=-1, metavar="[NODE...]")
@with_session
def layout(session: CommandSession, *, names: tuple[str, ...]) -> int:
    """Draw GPUs: MIG slots and shares of memory, with the pods that hold them."""
    return session.run(lambda reader: lists.layout(reader, session, names))
