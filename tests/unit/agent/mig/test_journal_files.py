"""The journal: what was written counts after a crash, and nothing else does."""

import asyncio
import errno
import os
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.mig.journal import (
    JournalAct,
    JournalRecord,
    Mark,
    Marks,
    PlacementKey,
    apply_record,
    line_of,
    parse_journal,
    records_of,
)
from agent.mig.journal_files import Journal, JournalInUseError

PLACES = st.builds(
    PlacementKey,
    gpu=st.sampled_from(["GPU-a", "GPU-b"]),
    profile=st.integers(0, 3),
    start=st.integers(0, 3),
)
RECORDS = st.builds(
    JournalRecord,
    boot=st.sampled_from(["now", "before"]),
    act=st.sampled_from(list(JournalAct)),
    place=PLACES,
    uuid=st.none() | st.text(max_size=5),
)
A = PlacementKey(gpu="GPU-a", profile=19, start=0)
B = PlacementKey(gpu="GPU-a", profile=19, start=1)


def fold_records(records: list[JournalRecord]) -> Marks:
    marks: Marks = {}
    for record in records:
        if record.boot == "now":
            marks = apply_record(marks, record)
    return marks


@given(st.lists(RECORDS))
def test_what_was_written_is_read_back(records: list[JournalRecord]) -> None:
    """Reading gives what the records of this boot say in their order; others are void."""
    history = parse_journal(b"".join(map(line_of, records)), "now")

    assert history.marks == fold_records(records)
    assert history.damage == ()


@given(st.lists(RECORDS, min_size=1), st.data())
def test_a_torn_last_line_costs_only_itself(
    records: list[JournalRecord], data: st.DataObject
) -> None:
    """A file cut anywhere in its last line says what it said before, or with that line."""
    lines = list(map(line_of, records))
    kept = data.draw(st.integers(0, len(lines[-1]) - 1))

    history = parse_journal(b"".join(lines[:-1]) + lines[-1][:kept], "now")

    assert history.marks in (fold_records(records[:-1]), fold_records(records))
    assert history.damage == ()


@given(st.lists(RECORDS, min_size=1), st.data())
def test_a_damaged_line_is_reported_and_the_rest_counts(
    records: list[JournalRecord], data: st.DataObject
) -> None:
    """One flipped byte in a line costs that line, or splits it, and is told by its number."""
    lines = list(map(line_of, records))
    which = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[which]) - 2))
    flipped = bytearray(lines[which])
    flipped[at] ^= data.draw(st.integers(1, 255))
    lines[which] = bytes(flipped)

    history = parse_journal(b"".join(lines), "now")

    assert history.marks == fold_records(records[:which] + records[which + 1 :])
    assert history.damage[0].startswith(f"line {which + 1} is damaged: ")


@given(st.binary(max_size=300))
@example(b"[" * 100_000)
@example(b'{"a":' + b"[" * 100_000)
@example(b'{"boot":"\xff"}')
def test_any_bytes_can_be_read(data: bytes) -> None:
    """Whatever is in the file, even with a checksum that fits, nothing becomes ours by it."""
    assert parse_journal(data, "now").marks == {}
    assert parse_journal(b"%08x %s\n" % (crc32(data), data), "now").marks == {}


@given(st.lists(RECORDS))
def test_the_fewest_records_say_the_same(records: list[JournalRecord]) -> None:
    """A file that is written anew says what the old one said, in one line for each place."""
    marks = fold_records(records)
    fewest = list(records_of(marks, "now"))

    assert fold_records(fewest) == marks
    assert len(fewest) == len(marks)


def write(journal: Journal, *records: tuple[JournalAct, PlacementKey, str | None]) -> None:
    async def one_by_one() -> None:
        for act, place, uuid in records:
            await journal.write(act, place, uuid)

    asyncio.run(one_by_one())


def test_the_next_process_knows_what_was_ours(tmp_path: Path) -> None:
    """A journal that is opened again marks the same places, under the same boot only."""
    path = tmp_path / "mig.journal"
    journal = Journal(path, boot="one")
    write(
        journal,
        (JournalAct.PREPARE, A, None),
        (JournalAct.COMMIT, A, "MIG-1"),
        (JournalAct.PREPARE, B, None),
    )
    journal.close()

    again = Journal(path, boot="one")
    assert again.marks == {A: Mark(pending=False, uuid="MIG-1"), B: Mark(pending=True)}
    again.close()
    after_reboot = Journal(path, boot="two")
    assert after_reboot.marks == {}
    after_reboot.close()


def test_a_line_is_on_disk_before_it_counts(tmp_path: Path) -> None:
    """When a write returns, the file has been forced to disk with the line in it."""
    path = tmp_path / "mig.journal"
    synced: list[bytes] = []

    def sync(_: int) -> None:
        synced.append(path.read_bytes() if path.exists() else b"")

    journal = Journal(path, boot="one", sync=sync)
    before = len(synced)

    write(journal, (JournalAct.PREPARE, A, None))

    record = JournalRecord(boot="one", act=JournalAct.PREPARE, place=A)
    assert synced[before:] == [line_of(record)]
    journal.close()


def test_two_agents_cannot_have_it(tmp_path: Path) -> None:
    """A second process is refused while the first lives, and not after."""
    first = Journal(tmp_path / "mig.journal", boot="one")
    with pytest.raises(JournalInUseError, match="another agent is running on this node"):
        Journal(tmp_path / "mig.journal", boot="one")
    first.close()

    Journal(tmp_path / "mig.journal", boot="one").close()


def test_a_full_disk_leaves_no_half_line_behind(tmp_path: Path) -> None:
    """A write that fails changes nothing, and the next one that succeeds is read back."""
    path = tmp_path / "mig.journal"
    full = False

    def sync(file: int) -> None:
        if full:
            os.ftruncate(file, max(os.fstat(file).st_size - 9, 0))
            raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(path, boot="one", sync=sync)
    write(journal, (JournalAct.COMMIT, A, "MIG-1"))
    full = True
    with pytest.raises(OSError, match="No space left"):
        write(journal, (JournalAct.GONE, A, None))
    assert journal.marks == {A: Mark(pending=False, uuid="MIG-1")}

    full = False
    write(journal, (JournalAct.PREPARE, B, None))
    journal.close()

    again = Journal(path, boot="one")
    assert again.marks == {A: Mark(pending=False, uuid="MIG-1"), B: Mark(pending=True)}
    assert again.damage == ()
    again.close()


def test_it_does_not_grow_for_ever(tmp_path: Path) -> None:
    """After thousands of cuts the file is still short, and says what is so."""
    path = tmp_path / "mig.journal"
    journal = Journal(path, boot="one", sync=lambda _: None)

    for _ in range(800):
        write(
            journal,
            (JournalAct.PREPARE, A, None),
            (JournalAct.GONE, A, None),
            (JournalAct.COMMIT, B, "MIG-2"),
        )

    assert len(path.read_bytes().splitlines()) <= 513
    journal.close()
    again = Journal(path, boot="one")
    assert again.marks == {B: Mark(pending=False, uuid="MIG-2")}
    again.close()


def test_a_damaged_file_is_reported_once(tmp_path: Path) -> None:
    """What could not be read is told when the file is opened, and gone from it then."""
    path = tmp_path / "mig.journal"
    path.write_bytes(
        b"\xff\x00garbage\n" + line_of(JournalRecord(boot="b", act=JournalAct.COMMIT, place=A))
    )

    journal = Journal(path, boot="b")
    assert len(journal.damage) == 1
    assert A in journal.marks
    journal.close()

    again = Journal(path, boot="b")
    assert again.damage == ()
    assert A in again.marks
    again.close()
