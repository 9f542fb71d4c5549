"""vgpu records: archives of the console's store."""

import sys

import click

from allocator.cli.files import UnusableError
from allocator.model.untrusted import inert_lines
from console.records.query import RecordFilter
from console.store.archive_files import export_records, import_records
from console.store.opening import open_store
from console.store.sql.schema import KINDS
from console.store.store import RecordStore, StoreError

_STORE_HELP = "file of SQLite, or a URL postgresql://…"
store_option = click.option(
    "--store", "address", required=True, envvar="VGPU_STORE", show_envvar=True, help=_STORE_HELP
)


@click.group("records")
def records() -> None:
    """Export records of the console's store into archives, and import them again."""


@records.command("export")
@store_option
@click.option("--output", "-o", default="-", show_default=True, help="file; .gz is compressed")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(sorted(KINDS)))
@click.option("--namespace", "-n", default="", help="only records of this namespace")
@click.option("--since", default="", help="time, such as 2026-01-31T00:00:00Z")
@click.option("--until", default="", help="time; the records before it")
def export_command(address: str, output: str, kinds: tuple[str, ...], **filters: str) -> None:
    """Write records as JSON lines, the earliest first."""
    query = RecordFilter(
        kinds=frozenset(kinds),
        namespace=filters["namespace"],
        since=filters["since"],
        until=filters["until"],
    )
    try:
        store = open_store(address)
        try:
            count = export_records(store, query, name=output, output=sys.stdout.buffer)
        finally:
            store.close()
    except (StoreError, UnusableError) as error:
        raise _failure(error) from error
    click.echo(f"{count} records exported", err=True)


@records.command("import")
@store_option
@click.argument("files", nargs=-1, required=True)
def import_command(address: str, files: tuple[str, ...]) -> None:
    """Store the records of FILES of JSON lines; - is standard input.

    Records that are stored already are left as they are, so an import may be done again. The exit
    code is 1 where a line was rejected.
    """
    rejected = 0
    try:
        store = open_store(address)
        try:
            for name in files:
                rejected += _import(store, name)
        finally:
            store.close()
    except (StoreError, UnusableError) as error:
        raise _failure(error) from error
    if rejected:
        sys.exit(1)


def _import(store: RecordStore, name: str) -> int:
    count = import_records(store, name, standard_input=sys.stdin.buffer, errors=sys.stderr)
    click.echo(
        f"{count.new} records imported, {count.known} known, {count.rejected} rejected", err=True
    )
    return count.rejected


def _failure(error: Exception) -> click.ClickException:
    return click.ClickException(inert_lines(str(error)))
