"""The commands that ask the console what was recorded: ``decisions``, ``records`` and ``who``."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypedDict, Unpack, cast

import click

from allocator.cli.terminal import terminal_width
from allocator.model.untrusted import quote
from console.cli import history
from console.cli.get import AnyPrinter, ChangePrinter, Printer, RedrawPrinter
from console.cli.groups import KindGroup
from console.cli.history import HistoryQuestion, HistoryReader
from console.cli.options import (
    MODES,
    REDRAW_HELP,
    TimeParam,
    with_console,
    with_output_options,
    with_session,
)
from console.cli.session import CommandSession
from console.cli.watch import INTERVAL, watch
from console.cluster.cluster_client import ConsoleTarget
from console.get.listing import OutputFormat
from console.history import decision_rows, record_rows, use_rows
from console.history import who as who_rows
from console.history.periods import ACCEPTED, moment
from console.records.query import PAGE, PodOutcome

_DECISIONS: Final = (*decision_rows.COLUMNS, decision_rows.SPACE, *decision_rows.WIDE)
_RECORDS: Final = (*record_rows.COLUMNS, record_rows.SPACE, *record_rows.WIDE, record_rows.WHAT)
_WHO: Final = (*who_rows.COLUMNS, *who_rows.WIDE)
_TABLES: Final = (OutputFormat.TABLE, OutputFormat.WIDE)
_MONTH: Final = "30d"
_TOP_PODS: Final = (use_rows.SPACE, *use_rows.PODS, *use_rows.PODS_WIDE)
_TOP_GPUS: Final = (*use_rows.GPUS, *use_rows.GPUS_WIDE)
_REDRAW_SECONDS: Final = 5.0  # figures are no younger than a scrape
MOST_ROWS: Final = 100_000


class _WatchOptions(TypedDict):
    """The options of everything that the console prints as a table."""

    output: str | None
    headed: bool
    column: str | None
    watch: bool
    console: ConsoleTarget


class _ListOptions(_WatchOptions):
    """The options of every list of records."""

    everywhere: bool
    limit: int
    since: str | None
    until: str | None


def _with_period(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that name a period."""
    for option in (
        click.option("--until", type=TimeParam(), help="end of the period; now if not given"),
        click.option("--since", type=TimeParam(), help=f"begin of the period: {ACCEPTED}"),
    ):
        command = option(command)
    return command


def _with_lists(
    columns: tuple[str, ...],
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that adds the options of a list of the console."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        command = with_output_options(columns)(with_console(_with_period(command)))
        for option in (
            click.option(
                "--limit",
                type=click.IntRange(1, MOST_ROWS),
                default=PAGE,
                show_default=True,
                help="rows at most, the latest first",
            ),
            click.option(
                "-A", "--all-namespaces", "everywhere", is_flag=True, help="of all namespaces"
            ),
        ):
            command = option(command)
        return command

    return decorate


def _run(
    session: CommandSession,
    options: _ListOptions,
    view: Callable[[HistoryReader, AnyPrinter], Awaitable[int]],
) -> int:
    """Print a list once, or watch it; raises ``click.UsageError`` for a document to watch."""
    output = OutputFormat(options["output"] or OutputFormat.TABLE)
    printer = Printer(session, output, headed=options["headed"], column=options["column"] or "")
    if not options["watch"]:
        return _ask(session, options["console"], lambda reader: view(reader, printer))
    changes = ChangePrinter(printer)
    return _watch(session, options, lambda reader: view(reader, changes))


def _watch(
    session: CommandSession,
    options: _WatchOptions,
    view: Callable[[HistoryReader], Awaitable[int]],
    *,
    interval: float = INTERVAL,
) -> int:
    """Repeat *view*; raises ``click.UsageError`` for a document."""
    if (options["output"] or OutputFormat.TABLE) not in _TABLES:
        text = f"--watch cannot go with -o {options['output']}; accepted: a table, -o wide"
        raise click.UsageError(text)
    return _ask(session, options["console"], lambda reader: watch(reader, view, interval=interval))


def _ask(
    session: CommandSession,
    console: ConsoleTarget,
    view: Callable[[HistoryReader], Awaitable[int]],
) -> int:
    return session.run_to_end(history.answer(session, console, view))


def _question(
    session: CommandSession, options: _ListOptions, filters: Mapping[str, str | None]
) -> HistoryQuestion:
    period = {"since": options["since"], "until": options["until"]}
    return HistoryQuestion(
        namespace=session.namespace,
        everywhere=options["everywhere"],
        filters={key: value for key, value in {**filters, **period}.items() if value},
        limit=options["limit"],
        width=terminal_width(session.output),
    )


class _DecisionOptions(_ListOptions):
    """The options that select decisions."""

    pod: str | None
    requester: str | None
    reason: str | None
    mode: str | None
    node: str | None
    owner: str | None
    state: str | None
    refused: bool


@click.command("decisions")
@click.argument("about", required=False, metavar="[DIGEST|pod/NAME]")
@click.option("--refused", is_flag=True, help="those that were refused")
@click.option("--state", type=click.Choice([str(o) for o in PodOutcome]), help="what became of it")
@click.option("--owner", help="name of the pod's owner, such as a ReplicaSet")
@click.option("--node", help="node that the pod is bound to")
@click.option("--mode", type=click.Choice(MODES), help="sharing mode")
@click.option("--reason", help="reason of the refusal, such as GpuMemoryShort")
@click.option("--by", "requester", metavar="PERSON", help="person behind the pod")
@click.option("--pod", help="name of the pod")
@with_session
@_with_lists(_DECISIONS)
def decisions(
    session: CommandSession, *, about: str | None, **options: Unpack[_DecisionOptions]
) -> int:
    """List decisions about pods, the latest first; or show one, with the life of its pod.

    DIGEST is at the end of a refusal and in the annotation vgpu-admission.io/decision of a pod.
    """
    if about is not None:
        return _one_decision(session, about, options)
    chosen = ("pod", "requester", "reason", "mode", "node", "owner", "state")
    filters = {key: cast("str | None", options[key]) for key in chosen}  # type: ignore[literal-required]
    filters["verdict"] = "refused" if options["refused"] else None
    question = _question(session, options, filters)
    return _run(session, options, lambda reader, to: history.decisions(reader, to, question))


def _one_decision(session: CommandSession, about: str, options: _ListOptions) -> int:
    output = _text_output(options, about)
    return _ask(
        session,
        options["console"],
        lambda reader: history.decision(reader, session, about, output=output),
    )


def _text_output(options: _ListOptions, about: str) -> OutputFormat:
    """Return the format of an answer that is no list; raises ``click.UsageError``."""
    output = OutputFormat(options["output"] or OutputFormat.TABLE)
    if options["watch"] or output in (OutputFormat.CSV, OutputFormat.WIDE):
        given = "--watch" if options["watch"] else f"-o {output}"
        text = f"{given} cannot go with {quote(about)}; accepted: text, -o json, -o yaml"
        raise click.UsageError(text)
    return output


class _RecordOptions(_ListOptions):
    """The options that select records."""

    kinds: tuple[str, ...]
    pod: str | None
    node: str | None
    digest: str | None


@click.command("records")
@click.option("--digest", help="digest of a decision")
@click.option("--node", help="records of a node")
@click.option("--pod", help="name of a pod")
@click.option("--kind", "kinds", multiple=True, help="kind of record, such as bind; repeatable")
@with_session
@_with_lists(_RECORDS)
def records(session: CommandSession, **options: Unpack[_RecordOptions]) -> int:
    """List records, the latest first: what happened to pods, GPUs and settings."""
    filters = {
        "kinds": ",".join(options["kinds"]),
        "pod": options["pod"],
        "node": options["node"],
        "digest": options["digest"],
    }
    question = _question(session, options, filters)
    return _run(session, options, lambda reader, to: history.records(reader, to, question))


@click.command("who")
@click.argument("about", required=False, metavar="[pod/NAME]")
@with_session
@_with_lists(_WHO)
def who(session: CommandSession, *, about: str | None, **options: Unpack[_ListOptions]) -> int:
    """Say who holds GPUs and who asked, by namespace and person; or the person behind a pod.

    Without --since the period is that of the last 30 days.
    """
    if about is not None:
        return _person(session, about, options)
    now = datetime.now(UTC)
    filters = {
        "since": options["since"] or moment(_MONTH, now),
        "until": options["until"] or moment("0s", now),
    }
    question = HistoryQuestion(
        namespace=session.namespace,
        everywhere=options["everywhere"],
        filters={key: value for key, value in filters.items() if value},
        limit=options["limit"],
    )
    return _run(session, options, lambda reader, to: history.who(reader, to, question))


def _person(session: CommandSession, about: str, options: _ListOptions) -> int:
    kind, slash, name = about.partition("/")
    if kind not in ("pod", "pods", "po") or not slash or not name:
        text = f"{quote(about)} is not a pod; accepted: pod/NAME, pod/NAMESPACE/NAME"
        raise click.UsageError(text)
    output = _text_output(options, about)
    return _ask(
        session,
        options["console"],
        lambda reader: history.person(reader, session, name, output=output),
    )


@click.group("top", cls=KindGroup)
def top() -> None:
    """Show what is used now of what was promised, by the figures that the agents measure."""


@top.command("pods")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="of all namespaces")
@with_session
@with_output_options(_TOP_PODS, watch_help=REDRAW_HELP)
@with_console
def top_pods(session: CommandSession, *, everywhere: bool, **options: Unpack[_WatchOptions]) -> int:
    """Show what each container holds and uses, those that use most first."""
    question = HistoryQuestion(
        namespace=session.namespace, everywhere=everywhere, filters={}, limit=MOST_ROWS
    )
    return _top(session, options, lambda reader, to: history.top_pods(reader, to, question))


@top.command("gpus")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@with_session
@with_output_options(_TOP_GPUS, watch_help=REDRAW_HELP)
@with_console
def top_gpus(
    session: CommandSession, *, nodes: tuple[str, ...], **options: Unpack[_WatchOptions]
) -> int:
    """Show what is promised and used of each GPU."""
    return _top(session, options, lambda reader, to: history.top_gpus(reader, to, nodes))


def _top(
    session: CommandSession,
    options: _WatchOptions,
    view: Callable[[HistoryReader, AnyPrinter], Awaitable[int]],
) -> int:
    """Print figures once, or draw them again and again."""
    output = OutputFormat(options["output"] or OutputFormat.TABLE)
    printer = Printer(session, output, headed=options["headed"], column=options["column"] or "")
    if not options["watch"]:
        return _ask(session, options["console"], lambda reader: view(reader, printer))
    redraw = RedrawPrinter(printer)
    return _watch(session, options, lambda reader: view(reader, redraw), interval=_REDRAW_SECONDS)
