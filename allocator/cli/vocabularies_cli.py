"""The command ``vgpu vocabularies``: the names by which pods may ask for GPUs, and their units."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import click

from allocator.catalog.vocabularies import CATALOGUE, Vocabulary
from allocator.cli.files import Streams, UnusableError, settings_of
from allocator.config.device_config import DeviceConfig, configured_vocabularies
from allocator.config.settings import Settings
from allocator.model.untrusted import inert_lines
from allocator.report.document_text import document_text
from allocator.report.vocabulary_list import vocabulary_document, vocabulary_rows

_INDENT: Final = "  "


class VocabularyOutput(StrEnum):
    """How vocabularies are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@click.command("vocabularies")
@click.option("--settings", help="settings.yaml of the cluster; the defaults if not given")
@click.option(
    "-o",
    "--output",
    type=click.Choice([output.value for output in VocabularyOutput]),
    default=VocabularyOutput.TABLE.value,
    show_default=True,
)
def vocabularies(settings: str | None, output: str) -> None:
    """List the vocabularies: resources, units, annotations, modes, and whose GPUs they are."""
    streams = Streams.standard()
    try:
        loaded = settings_of(settings, streams)
    except UnusableError as error:
        raise click.ClickException(inert_lines(str(error))) from error
    click.echo(answer(loaded, VocabularyOutput(output)))


def answer(settings: Settings, output: VocabularyOutput) -> str:
    """Return the list for a cluster with these *settings*, without a line break at the end."""
    listed, served = _as_configured(settings), settings.vocabularies
    if output is not VocabularyOutput.TABLE:
        document = vocabulary_document(listed, served)
        return document_text(document, yaml=output is VocabularyOutput.YAML)
    rows = tuple(vocabulary_rows(listed, served))
    width = max(len(name) for name, meaning in rows if meaning)
    return "\n".join(
        f"{_INDENT}{name:<{width}}{_INDENT}{meaning}" if meaning else name for name, meaning in rows
    )


def _as_configured(settings: Settings) -> Sequence[Vocabulary]:
    """Return all vocabularies of the catalogue, those served with the names of the cluster."""
    served = {v.name: v for v in configured_vocabularies(settings, DeviceConfig())}
    return tuple(served.get(vocabulary.name, vocabulary) for vocabulary in CATALOGUE)
