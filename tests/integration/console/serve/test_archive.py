"""vgpu records: an archive holds all, is read back, and a bad line is named."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from starlette.applications import Starlette

from allocator.audit.record import AnyRecord, parse_record
from console.records.archive import BadLineError, archive_line, parse_line
from console.records.query import EVERYTHING, RecordFilter
from console.records.rows import StoredRecord
from console.serve.page_routes import page_routes
from console.serve.records_cli import records
from console.store.opening import open_store
from tests.builders.records import (
    MINUTE,
    NOON,
    bound,
    health,
    histories,
    mutated,
    refused,
    settings_of,
    snapshot_of,
    stored,
    validated,
)
from tests.harness.asgi import get
from tests.harness.console_site import services_of

LIFE = (mutated(), validated(1), bound(2), health(3), settings_of(4), snapshot_of(5))


def run(*arguments: str, text: bytes | None = None) -> Result:
    return CliRunner().invoke(records, arguments, input=text)


def content(file: Path) -> dict[str, StoredRecord]:
    store = open_store(str(file))
    found = {one.record.id: one for one in store.export(EVERYTHING, RecordFilter())}
    store.close()
    return found


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Return a store with records of six kinds."""
    file = tmp_path / "full.db"
    store = open_store(str(file))
    store.append(stored(*LIFE, sender="node gpu-1"))
    store.close()
    return file


@pytest.mark.parametrize("name", ["archive.jsonl", "archive.jsonl.gz"])
def test_an_archive_is_read_back(full: Path, tmp_path: Path, name: str) -> None:
    """Records, senders and all; a second import changes nothing."""
    archive, empty = tmp_path / name, tmp_path / "empty.db"
    done = run("export", "--store", str(full), "-o", str(archive))
    assert done.exit_code == 0, done.output
    assert "6 records exported" in done.stderr
    done = run("import", "--store", str(empty), str(archive))
    assert done.stderr == "6 records imported, 0 known, 0 rejected\n"
    assert content(empty) == content(full)
    done = run("import", "--store", str(empty), str(archive))
    assert done.stderr == "0 records imported, 6 known, 0 rejected\n"
    text = archive.read_bytes()
    assert (gzip.decompress(text) if name.endswith("gz") else text).startswith(b"{")


def test_a_line_of_an_archive_is_a_record_of_the_schema(full: Path) -> None:
    """Whoever reads lines of standard output reads archives too."""
    done = run("export", "--store", str(full), "--kind", "bind", "--namespace", "team-a")
    [line] = done.stdout.splitlines()
    assert parse_record(line) == LIFE[2]
    assert msgspec.json.decode(line)["sender"] == "node gpu-1"


def test_a_period_is_exported(full: Path) -> None:
    """From one time on, and before another."""
    period = ("--since", "2026-11-20T12:00:00.002Z", "--until", "2026-11-20T12:00:00.004Z")
    done = run("export", "--store", str(full), *period)
    assert [parse_record(line) for line in done.stdout.splitlines()] == [LIFE[2], LIFE[3]]


def test_bad_lines_are_named_and_left_out(tmp_path: Path) -> None:
    """The others are stored, and the exit code says that something was wrong."""
    good = archive_line(StoredRecord(record=refused()))
    future = archive_line(StoredRecord(record=refused(400 * 24 * 60 * MINUTE * 100)))
    lines = [good, b"not json\n", b"\n", b'{"kind":"odd"}\n', b"\xff\xfe\n", future, good]
    done = run("import", "--store", str(tmp_path / "r.db"), "-", text=b"".join(lines))
    assert done.exit_code == 1
    told = done.stderr.splitlines()
    assert [line.split(" is ")[0] for line in told[:3]] == [
        "standard input: line 2",
        "standard input: line 4",
        "standard input: line 5",
    ]
    assert "in the future" in told[3]
    assert told[-1] == "1 records imported, 1 known, 4 rejected"


def test_an_endless_line_is_one_bad_line(tmp_path: Path) -> None:
    """It is not held in memory, and what follows is read."""
    file = tmp_path / "long.jsonl"
    file.write_bytes(b"x" * 9_000_000 + b"\n" + archive_line(StoredRecord(record=refused())))
    done = run("import", "--store", str(tmp_path / "r.db"), str(file))
    assert "line 1 is longer than" in done.stderr
    assert done.stderr.endswith("1 records imported, 0 known, 1 rejected\n")


def test_a_broken_archive_keeps_what_could_be_read(tmp_path: Path) -> None:
    """An archive that ends too early is an error, and its first part is there."""
    archive, store = tmp_path / "a.gz", tmp_path / "r.db"
    with gzip.open(archive, "wb") as file:
        for number in range(3000):
            file.write(archive_line(StoredRecord(record=refused(digest=f"d-{number}"))))
    archive.write_bytes(archive.read_bytes()[:-2000])
    done = run("import", "--store", str(store), str(archive))
    assert done.exit_code == 1
    assert f"Error: {archive}: " in done.stderr
    assert 1000 <= len(content(store)) < 3000


def test_errors_name_the_file_and_what_would_do(full: Path, tmp_path: Path) -> None:
    """A missing file, a missing folder, a time that is none."""
    missing = run("import", "--store", str(full), str(tmp_path / "none"))
    assert "no such file or directory; accepted: a file of JSON lines" in missing.stderr
    nowhere = run("export", "--store", str(tmp_path / "no" / "r.db"))
    assert "its folder must exist" in nowhere.stderr
    folder = run("export", "--store", str(full), "-o", str(tmp_path / "no" / "file"))
    assert "no such file or directory" in folder.stderr
    timeless = run("export", "--store", str(full), "--since", "soon")
    assert 'since: "soon" is not a time' in timeless.stderr
    assert {one.exit_code for one in (missing, nowhere, folder, timeless)} == {1}


@given(histories())
def test_a_line_is_read_back(history: list[AnyRecord]) -> None:
    """Any record, whoever delivered it."""
    for record in history:
        one = StoredRecord(record=record, sender='a "sender"')
        assert parse_line(archive_line(one), NOON + 60 * MINUTE) == one


def test_a_line_that_is_no_object_is_refused() -> None:
    """Whatever JSON it is."""
    for line in (b"[]", b"1", b"null", b'"text"', b"{}", b"[" * 100_000):
        with pytest.raises(BadLineError):
            parse_line(line, NOON)


def line_of(record: AnyRecord, **changes: object) -> bytes:
    """Return the line of *record* with other values, as somebody could write it by hand."""
    return json.dumps({**json.loads(msgspec.json.encode(record)), **changes}).encode()


DEEP = b"[" * 900 + b"]" * 900
HOSTILE_LINES = [
    line_of(snapshot_of(), content={"k": 2**64}),
    line_of(snapshot_of(), content={"k": -(10**30)}),
    line_of(snapshot_of(), content={"k": "deep"}).replace(b'"deep"', DEEP),
    line_of(snapshot_of(), content={str(number): 0 for number in range(20_000)}),
    line_of(bound(), code=10**40),
    line_of(mutated(), schema=-(2**63) - 1),
    line_of(mutated(), costs_per_mille={"mig": 10**25}),
    line_of(mutated(), user="a\0b"),
    line_of(mutated(), user="\ud800"),
    line_of(mutated(), user="u" * (2**20 + 1)),
    line_of(mutated(), duration_seconds=1.5).replace(b"1.5", b"1e999"),
    line_of(mutated(), id="../../etc/passwd"),
    line_of(mutated(), at="9999-12-31T23:59:59Z"),
    line_of(mutated(), sender=["node gpu-1"]),
    line_of(mutated(), kind="\x1b[2J"),
    line_of(mutated()) * 2,
    b"\xef\xbb\xbf" + line_of(mutated()),
]


@pytest.mark.parametrize("line", HOSTILE_LINES, ids=range(len(HOSTILE_LINES)))
def test_a_hostile_line_is_named_and_no_page_breaks_by_it(tmp_path: Path, line: bytes) -> None:
    """An import takes no record that the port of records would refuse."""
    file = tmp_path / "r.db"
    done = run("import", "--store", str(file), "-", text=line + b"\n" + line_of(refused()))

    assert done.exit_code == 1
    assert done.stderr.startswith("standard input: line 1 ")
    assert done.stderr.endswith("1 records imported, 0 known, 1 rejected\n")
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 1000
    store = open_store(str(file))
    try:
        found = get(Starlette(routes=page_routes(services_of(store))), "/records?format=json")
    finally:
        store.close()
    assert found.status == 200
    assert len(json.loads(found.text)["items"]) == 1
