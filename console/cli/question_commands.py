"""The commands that answer a question: ``why``, ``fit`` and ``export``."""

from typing import Final, Unpack

import click

from console.cli import explain
from console.cli.explain import AnswerOptions
from console.cli.groups import OptionsFirst
from console.cli.options import (
    AmountOptions,
    TimeParam,
    amounts,
    amounts_of,
    document,
    with_console,
    with_session,
)
from console.cli.session import CommandSession
from console.cluster.cluster_client import ConsoleTarget
from console.get.listing import OutputFormat
from console.history.periods import ACCEPTED

FILE_HELP: Final = "manifest, folder, or - for standard input; repeatable"


@click.command("why")
@click.argument("about", metavar="POD|KIND/NAME")
@click.option("--at", type=TimeParam(), help=f"what was known then, by the console: {ACCEPTED}")
@document
@with_session
@with_console
def why(
    session: CommandSession,
    *,
    about: str,
    at: str | None,
    output: str | None,
    console: ConsoleTarget,
) -> int:
    """Explain a pod: its request, the decision and its reason, its GPUs, or what it waits for.

    POD is a name or pod/NAME. Of deploy/NAME, rs/NAME, job/NAME, sts/NAME, ds/NAME, cj/NAME and
    vcjob/NAME every pod is explained, pods with the same answer together. With --at, the console
    says what was known about one pod at that time.
    """
    form = OutputFormat(output or OutputFormat.TABLE)
    if at is not None:
        return _past(session, console, about, at=at, output=form)
    question = AnswerOptions(namespace=session.namespace, output=form)
    return session.run(lambda reader: explain.why(reader, session, about, question=question))


def _past(
    session: CommandSession, console: ConsoleTarget, about: str, *, at: str, output: OutputFormat
) -> int:
    from console.cli import history  # noqa: PLC0415 -- slow to import, and rarely asked

    return session.run_to_end(
        history.answer(
            session,
            console,
            lambda reader: history.past(reader, session, about, at=at, output=output),
        )
    )


@click.command("fit")
@click.option("-f", "--filename", "files", multiple=True, help=FILE_HELP)
@amounts
@document
@with_session
def fit(
    session: CommandSession,
    *,
    files: tuple[str, ...],
    output: str | None,
    **options: Unpack[AmountOptions],
) -> int:
    """Say whether the pods of a manifest, or given amounts, fit now; nothing is created.

    Exits with 0 if every pod fits now, 4 if one fits the hardware but not now, 5 if one never
    does or is refused, 1 if the question could not be answered.
    """
    question = AnswerOptions(
        namespace=session.namespace, output=OutputFormat(output or OutputFormat.TABLE)
    )
    wanted = amounts_of(options, files)
    if wanted is not None:
        return session.run(
            lambda reader: explain.fit_amounts(reader, session, wanted, question=question)
        )
    return session.run(lambda reader: explain.fit(reader, session, files, question=question))


@click.group("export", cls=OptionsFirst)
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
