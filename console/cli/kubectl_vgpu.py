"""The kubectl plugin: its commands, as users of kubectl expect them."""

from importlib import metadata
from typing import Final, Unpack

import click

from console.cli import explain
from console.cli import get as lists
from console.cli.explain import AnswerOptions
from console.cli.get import ListSelection, Printer
from console.cli.options import (
    AmountOptions,
    PrintOptions,
    amounts,
    amounts_of,
    document,
    labels,
    namespace,
    with_output_options,
    with_session,
)
from console.cli.session import CommandSession
from console.cluster.reader_client import ClusterReader
from console.get import gpu_rows, node_rows, pod_rows
from console.get.listing import OutputFormat

NAME: Final = "kubectl vgpu"
FILE_HELP: Final = "manifest, folder, or - for standard input; repeatable"
NODE_HELP: Final = "same as the argument NODE; repeatable"
NODES: Final = (*node_rows.COLUMNS, *node_rows.WIDE)
GPUS: Final = (*gpu_rows.COLUMNS, *gpu_rows.WIDE)
PODS: Final = (pod_rows.SPACE, *pod_rows.COLUMNS, *pod_rows.WIDE)


def _printer(session: CommandSession, options: PrintOptions) -> Printer:
    output = OutputFormat(options["output"] or OutputFormat.TABLE)
    return Printer(session, output, headed=options["headed"], column=options["column"] or "")


def _version() -> str:
    try:
        return metadata.version("vgpu-admission")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "source"


@click.group(name=NAME, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name=NAME)
def cli() -> None:
    """Show who holds which slice of a GPU, what still fits, and why a pod got what it got.

    Reads the cluster of your kubeconfig with your own rights, and never writes to it.
    """


class _Kinds(click.Group):
    """Subcommands that also accept the other names that kubectl has for a kind."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a kind by any of its names."""
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))


_ALIASES: Final = {"node": "nodes", "no": "nodes", "gpu": "gpus", "pod": "pods", "po": "pods"}


@cli.group("get", cls=_Kinds)
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
    return session.run(lambda reader: lists.nodes(reader, _printer(session, options), selection))


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
    return session.run(lambda reader: lists.gpus(reader, _printer(session, options), selection))


@get.command("pods")
@click.argument("names", nargs=-1, metavar="[POD...]")
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="list pods of all namespaces"
)
@namespace
@with_output_options(PODS)
@labels
@with_session
def get_pods(
    session: CommandSession,
    *,
    names: tuple[str, ...],
    everywhere: bool,
    namespace: str | None,
    **options: Unpack[PrintOptions],
) -> int:
    """List pods that ask for vGPU: what each got, and where."""

    async def view(reader: ClusterReader) -> int:
        space = None if everywhere else namespace or reader.cluster.namespace
        selection = ListSelection(names=names, namespace=space, labels=options["labels"])
        return await lists.pods(reader, _printer(session, options), selection)

    return session.run(view)


@cli.command("layout")
@click.argument("names", nargs=-1, metavar="[NODE...]")
@with_session
def layout(session: CommandSession, *, names: tuple[str, ...]) -> int:
    """Draw GPUs: MIG slots and shares of memory, with the pods that hold them."""
    return session.run(lambda reader: lists.layout(reader, session, names))


@cli.command("why")
@click.argument("about", metavar="POD|KIND/NAME")
@namespace
@document
@with_session
def why(session: CommandSession, *, about: str, namespace: str | None, output: str | None) -> int:
    """Explain a pod: its request, the decision and its reason, its GPUs, or what it waits for.

    POD is a name or pod/NAME. Of deploy/NAME, rs/NAME, job/NAME, sts/NAME, ds/NAME, cj/NAME and
    vcjob/NAME every pod is explained, pods with the same answer together.
    """
    question = AnswerOptions(namespace=namespace, output=OutputFormat(output or OutputFormat.TABLE))
    return session.run(lambda reader: explain.why(reader, session, about, question=question))


@cli.command("fit")
@click.option("-f", "--filename", "files", multiple=True, help=FILE_HELP)
@amounts
@namespace
@document
@with_session
def fit(
    session: CommandSession,
    *,
    files: tuple[str, ...],
    namespace: str | None,
    output: str | None,
    **options: Unpack[AmountOptions],
) -> int:
    """Say whether the pods of a manifest, or given amounts, fit now; nothing is created.

    Exits with 0 if every pod fits now, 4 if one fits the hardware but not now, 5 if one never
    does or is refused, 1 if the question could not be answered.
    """
    question = AnswerOptions(namespace=namespace, output=OutputFormat(output or OutputFormat.TABLE))
    wanted = amounts_of(options, files)
    if wanted is not None:
        return session.run(
            lambda reader: explain.fit_amounts(reader, session, wanted, question=question)
        )
    return session.run(lambda reader: explain.fit(reader, session, files, question=question))


@cli.group("export")
def export() -> None:
    """Write files for other commands."""


@export.command("fleet")
@document
@with_session
def export_fleet(session: CommandSession, *, output: str | None) -> int:
    """Write the GPUs of the cluster as a fleet file for `vgpu plan --fleet`: YAML, or JSON.

    It has the names of nodes, models and amounts; no pods, namespaces or UUIDs.
    """
    form = OutputFormat(output or OutputFormat.YAML)
    return session.run(lambda reader: explain.export_fleet(reader, session, form))


def main() -> None:
    """Run the plugin; kubectl calls it for ``kubectl vgpu``."""
    cli(prog_name=NAME)
