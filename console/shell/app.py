"""The kubectl plugin: commands and their options, as users of kubectl expect them."""

import sys
from collections.abc import Callable
from functools import wraps
from importlib import metadata
from typing import Final, TypedDict, Unpack

import click

from console.core.listing import Output
from console.shell import answers, lists
from console.shell.answers import Question
from console.shell.cluster import Target
from console.shell.gather import Gatherer
from console.shell.lists import Printer, Which
from console.shell.session import Session

NAME: Final = "kubectl vgpu"
_OUTPUTS: Final = [str(output) for output in Output if output is not Output.TABLE]
_DOCUMENTS: Final = [str(Output.JSON), str(Output.YAML)]
BARE_HELP: Final = "leave out the names of the columns"
FILE_HELP: Final = "a manifest, or - for standard input; may be given several times"
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


class _Seconds(click.ParamType[float]):
    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a duration as kubectl's own flag does: 30s, 2m, 500ms, or plain seconds."""
        text = str(value)
        number = text.rstrip("ms")
        unit = text[len(number) :] or "s"
        if unit in _UNITS and number.replace(".", "", 1).isdecimal() and float(number) > 0:
            return float(number) * _UNITS[unit]
        return self.fail(f"{text!r} is no duration; accepted: 30s, 2m, 500ms", param, ctx)


def _asking(command: Callable[..., int]) -> Callable[..., None]:
    """Give *command* the options that say which cluster, hand it a session, exit as it says."""

    @wraps(command)
    def asked(
        *,
        kubeconfig: str | None,
        context: str | None,
        seconds: float,
        system: str,
        **rest: object,
    ) -> None:
        target = Target(kubeconfig=kubeconfig, context=context, seconds=seconds)
        session = Session(target=target, system=system, output=sys.stdout, errors=sys.stderr)
        sys.exit(command(session, **rest))

    found: Callable[..., None] = asked
    for option in (
        click.option(
            "--system-namespace",
            "system",
            default="vgpu-admission-system",
            show_default=True,
            help="where vgpu-admission is installed",
        ),
        click.option(
            "--request-timeout",
            "seconds",
            type=_Seconds(),
            default="10s",
            show_default=True,
            help="what one call to the server may take",
        ),
        click.option("--context", help="which context of the kubeconfig"),
        click.option("--kubeconfig", help="the kubeconfig; else KUBECONFIG, else ~/.kube/config"),
    ):
        found = option(found)
    return found


class Printing(TypedDict):
    """The options of every list."""

    output: str | None
    headed: bool
    labels: str


def printing(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* the options that say how rows are printed."""
    for option in (
        click.option("--no-headers", "headed", flag_value=False, default=True, help=BARE_HELP),
        click.option("-o", "--output", type=click.Choice(_OUTPUTS), help="how rows are printed"),
    ):
        command = option(command)
    return command


labels = click.option("-l", "--selector", "labels", default="", help="label selector, as kubectl's")
namespace = click.option("-n", "--namespace", help="else that of the context")


def _printer(session: Session, how: Printing) -> Printer:
    return Printer(session, Output(how["output"] or Output.TABLE), headed=how["headed"])


def _version() -> str:
    try:
        return metadata.version("vgpu-admission")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "source"


@click.group(name=NAME, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name=NAME)
def cli() -> None:
    """Say who holds which slice of a GPU, what still fits, and why a pod got what it got.

    Reads the cluster of your kubeconfig with your own rights, and never writes to it.
    """


class _Kinds(click.Group):
    """Subcommands that are also known by the names that kubectl has for a kind."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a kind, by whichever of its names."""
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))


_ALIASES: Final = {"node": "nodes", "no": "nodes", "gpu": "gpus", "pod": "pods", "po": "pods"}


@cli.group("get", cls=_Kinds)
def get() -> None:
    """List nodes, GPUs or pods."""


@get.command("nodes")
@click.argument("names", nargs=-1, metavar="[NODE...]")
@printing
@labels
@_asking
def get_nodes(session: Session, *, names: tuple[str, ...], **how: Unpack[Printing]) -> int:
    """List nodes with GPUs: how much is promised, the largest request that still fits."""
    which = Which(names=names, labels=how["labels"])
    return session.run(lambda gather: lists.nodes(gather, _printer(session, how), which))


@get.command("gpus")
@click.argument("names", nargs=-1, metavar="[NODE...]")
@printing
@labels
@_asking
def get_gpus(session: Session, *, names: tuple[str, ...], **how: Unpack[Printing]) -> int:
    """List GPUs: how they are cut, what is promised, the largest request that still fits."""
    which = Which(names=names, labels=how["labels"])
    return session.run(lambda gather: lists.gpus(gather, _printer(session, how), which))


@get.command("pods")
@click.argument("names", nargs=-1, metavar="[POD...]")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="in all namespaces")
@namespace
@printing
@labels
@_asking
def get_pods(
    session: Session,
    *,
    names: tuple[str, ...],
    everywhere: bool,
    namespace: str | None,
    **how: Unpack[Printing],
) -> int:
    """List pods that ask for a share of a GPU: what each was given, and where."""

    async def view(gather: Gatherer) -> int:
        where = None if everywhere else namespace or gather.cluster.namespace
        which = Which(names=names, namespace=where, labels=how["labels"])
        return await lists.pods(gather, _printer(session, how), which)

    return session.run(view)


@cli.command("layout")
@click.argument("names", nargs=-1, metavar="[NODE...]")
@_asking
def layout(session: Session, *, names: tuple[str, ...]) -> int:
    """Draw GPUs: MIG slots and shares of memory, with who holds them."""
    return session.run(lambda gather: lists.layout(gather, session, names))


document = click.option(
    "-o", "--output", type=click.Choice(_DOCUMENTS), help="the answer as a document"
)


@cli.command("why")
@click.argument("pod")
@namespace
@document
@_asking
def why(session: Session, *, pod: str, namespace: str | None, output: str | None) -> int:
    """Say what POD asked for, what was decided and why, where it is, or what it waits for."""
    question = Question(namespace=namespace, output=Output(output or Output.TABLE))
    return session.run(lambda gather: answers.why(gather, session, pod, question=question))


@cli.command("fit")
@click.option("-f", "--filename", "files", multiple=True, required=True, help=FILE_HELP)
@namespace
@document
@_asking
def fit(
    session: Session, *, files: tuple[str, ...], namespace: str | None, output: str | None
) -> int:
    """Say whether the pods of a manifest would fit now; nothing is created.

    Exits with 0 if every pod fits now, 4 if one fits the hardware but not now, 5 if one never
    does or is refused, 1 if the question could not be answered.
    """
    question = Question(namespace=namespace, output=Output(output or Output.TABLE))
    return session.run(lambda gather: answers.fit(gather, session, files, question=question))
