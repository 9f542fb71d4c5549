"""The commands that answer a question: ``why``, ``fit`` and ``export``."""

from typing import Final, Unpack

import click

from console.cli import explain
from console.cli.explain import AnswerOptions
from console.cli.groups import OptionsFirst
from console.cli.options import AmountOptions, amounts, amounts_of, document, with_session
from console.cli.session import CommandSession
from console.get.listing import OutputFormat

FILE_HELP: Final = "manifest, folder, or - for standard input; repeatable"


@click.command("why")
@click.argument("about", metavar="POD|KIND/NAME")
@document
@with_session
def why(session: CommandSession, *, about: str, output: str | None) -> int:
    """Explain a pod: its request, the decision and its reason, its GPUs, or what it waits for.

    POD is a name or pod/NAME. Of deploy/NAME, rs/NAME, job/NAME, sts/NAME, ds/NAME, cj/NAME and
    vcjob/NAME every pod is explained, pods with the same answer together.
    """
    question = AnswerOptions(
        namespace=session.namespace, output=OutputFormat(output or OutputFormat.TABLE)
    )
    return session.run(lambda reader: explain.why(reader, session, about, question=question))


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
