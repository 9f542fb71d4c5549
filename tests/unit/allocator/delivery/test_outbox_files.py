"""Batches wait in order, within bounds, and every record that had to go is counted."""

import errno
import resource
import shutil
from collections.abc import Iterable
from pathlib import Path

import orjson
import pytest

from allocator.audit.line_buffer import LineEnd, whole_line
from allocator.delivery.batch_text import (
    MOST_BYTES,
    MOST_WHOLE_BYTES,
    BatchText,
    read_batch,
)
from allocator.delivery.outbox_files import Batch, Outbox, Parcel
from allocator.delivery.spool_files import Segment, Spool
from tests.harness.lines import batch_of


class Waiting:
    """An outbox on a spool of a few blocks, and how many records it lost."""

    def __init__(self, folder: Path | None, *, blocks: int = 100, memory: int = 1000) -> None:
        self.lost = 0
        spool = None if folder is None else Spool(folder, limit=blocks * 4096)
        self.outbox = Outbox(spool, count_lost=self.count, memory_limit=memory)
        self.outbox.open()

    def count(self, records: int) -> None:
        self.lost += records

    def add(self, *lines: str) -> None:
        self.store(batch_of(*(f"{line}\n".encode() for line in lines)))

    def store(self, batch: BatchText) -> None:
        """Add *batch*, and store it if that can be."""
        self.outbox.add(batch)
        self.outbox.store_all(durable=False)

    def next(self, *, most: int = 500, size: int = 10_000) -> Parcel | None:
        return self.outbox.next(most_records=most, most_bytes=size)

    def taken(self, *, most: int = 500) -> list[str]:
        """Take everything out, in order."""
        lines: list[str] = []
        while parcel := self.next(most=most):
            lines += parcel.data.decode().split()
            self.outbox.remove(parcel.batches)
        return lines


def batch_in(parcel: Parcel | None) -> Batch:
    assert parcel is not None
    (batch,) = parcel.batches
    return batch


@pytest.fixture(params=["spool", "memory"])
def waiting(request: pytest.FixtureRequest, tmp_path: Path) -> Waiting:
    return Waiting(tmp_path / "spool" if request.param == "spool" else None)


def test_batches_leave_in_order_and_only_when_removed(waiting: Waiting) -> None:
    """What was not acknowledged is there again."""
    waiting.add("a", "b")
    waiting.add("c")

    assert waiting.next() == waiting.next()
    assert waiting.outbox.records == 3
    assert waiting.taken() == ["a", "b", "c"]
    assert (waiting.outbox.records, waiting.outbox.spooled_bytes, waiting.lost) == (0, 0, 0)


@pytest.mark.parametrize(("bounds", "count"), [((500, 10_000), 9), ((4, 10_000), 4), ((500, 6), 3)])
def test_small_batches_are_sent_together(
    waiting: Waiting, bounds: tuple[int, int], count: int
) -> None:
    """As many as one call may carry, and at least one."""
    for number in range(9):
        waiting.add(str(number))

    parcel = waiting.next(most=bounds[0], size=bounds[1])

    assert parcel is not None
    assert parcel.records == count
    assert parcel.data.count(b"\n") == count


def test_what_a_killed_program_spooled_is_there_again(tmp_path: Path) -> None:
    """Without what was acknowledged."""
    killed = Waiting(tmp_path)
    killed.add("a")
    killed.add("b")
    killed.add("c")
    killed.outbox.remove([batch_in(killed.next(most=1))])

    assert Waiting(tmp_path).taken() == ["b", "c"]


def test_a_full_spool_gives_up_the_oldest(tmp_path: Path) -> None:
    """And counts their records, also where the next run has less room."""
    waiting = Waiting(tmp_path, blocks=3)
    for number in range(5):
        waiting.add(str(number), f"{number}'")

    assert waiting.lost == 4
    smaller = Waiting(tmp_path, blocks=2)
    assert smaller.lost == 2
    assert smaller.taken() == ["3", "3'", "4", "4'"]


def record(namespace: str, name: str, *, size: int = 400) -> str:
    """Return a record of *size* bytes with its end of line."""
    start = f'{{"namespace":"{namespace}","pod":"{name}","text":"'
    return f'{start}{"." * (size - len(start) - 3)}"}}'


def names(lines: Iterable[str]) -> list[str]:
    return [orjson.loads(line)["pod"] for line in lines]


ROOMS = pytest.mark.parametrize(
    "room",
    [pytest.param({"blocks": 8}, id="spool"), pytest.param({"memory": 20_000}, id="memory")],
)


def waiting_in(room: dict[str, int], folder: Path) -> Waiting:
    return Waiting(folder if "blocks" in room else None, **room)


def damage_first_segment(folder: Path) -> None:
    first = min(folder.iterdir())
    first.write_bytes(first.read_bytes()[:-1])


@ROOMS
def test_whoever_floods_gives_up_his_own(room: dict[str, int], tmp_path: Path) -> None:
    """A tenant must not push out what others did, nor what others did to him."""
    waiting = waiting_in(room, tmp_path)
    quiet = [f"q{number}" for number in range(20)]
    noisy = [f"n{number}" for number in range(200)]
    waiting.add(*[record("quiet", name) for name in quiet])
    for at in range(0, 200, 10):
        waiting.add(*[record("noisy", name) for name in noisy[at : at + 10]])

    kept = names(waiting.taken())

    assert kept[:20] == quiet
    assert kept[20:] == noisy[-len(kept[20:]) :]
    assert waiting.lost == 220 - len(kept)


@ROOMS
def test_of_a_mixed_batch_only_the_flood_is_given_up(room: dict[str, int], tmp_path: Path) -> None:
    """The rest of it stays in its place."""
    waiting = waiting_in(room, tmp_path)
    for number in range(4):
        noise = [record("noisy", f"n{number}")] * 30
        waiting.add(*noise, record("quiet", f"q{number}"))

    kept = names(waiting.taken())

    assert list(dict.fromkeys(kept)) == ["q0", "q1", "q2", "n3", "q3"]
    assert waiting.lost == 90


@pytest.mark.parametrize(
    ("namespaces", "kept"),
    [
        pytest.param(("a", "b", "b", "a", "a", "c"), "2345", id="half"),
        pytest.param(("b", "a", "a", "c", "d", "e"), "2345", id="less"),
        pytest.param(("", "a", "", "", "b", "c"), "2345", id="cluster"),
        pytest.param(("a", "b", "b", "b", "c"), "0234", id="more"),
        pytest.param(("a", "b", "b", "b", "c", "d"), "2345", id="no-more"),
    ],
)
def test_only_more_than_half_is_too_much(
    namespaces: tuple[str, ...], kept: str, tmp_path: Path
) -> None:
    """Otherwise the oldest go; what is of the cluster, and of no namespace, goes as others do."""
    waiting = Waiting(tmp_path, blocks=4)
    for number, namespace in enumerate(namespaces):
        waiting.add(record(namespace, str(number)))

    assert "".join(names(waiting.taken())) == kept


def test_bytes_count_and_not_records(tmp_path: Path) -> None:
    """Few large ones take as much room as many small ones."""
    waiting = Waiting(tmp_path, blocks=4)
    waiting.add(*[record("many", "small")] * 9)
    waiting.add(record("few", "large", size=8000))
    waiting.add(record("third", "third"))
    waiting.add(record("third", "third"))

    assert set(names(waiting.taken())) == {"small", "third"}


@pytest.mark.parametrize(
    ("count", "kept"),
    [
        pytest.param(4, ["2", "3"], id="before-it-was-counted"),
        pytest.param(5, ["2", "3", "4"], id="since"),
    ],
)
def test_a_damaged_batch_is_lost_with_all_its_records(
    count: int, kept: list[str], tmp_path: Path
) -> None:
    """What cannot be read is of nobody, so room is made of what can be."""
    waiting = Waiting(tmp_path, blocks=4)
    for number in range(count):
        waiting.add(record("noisy", str(number)))
    damage_first_segment(tmp_path)
    waiting.add(record("quiet", "quiet"))

    assert names(waiting.taken()) == [*kept, "quiet"]
    assert waiting.lost == 2


def test_what_is_in_memory_makes_no_room_in_the_spool(tmp_path: Path) -> None:
    """So it stays, also where its namespace has more than half of all."""
    waiting = Waiting(tmp_path, blocks=2, memory=10_000)
    waiting.add(record("large", "large", size=9000))
    for name in "abc":
        waiting.add(record(name, name))

    assert names(waiting.taken()) == ["large", "b", "c"]


def test_what_is_no_record_belongs_to_nobody(tmp_path: Path) -> None:
    """It is sent all the same, and the console says what is wrong with it."""
    waiting = Waiting(tmp_path, blocks=3)
    for line in (b'{"namespace":"\xff"}', b'{"namespace":7}', b"[", b"7", b""):
        waiting.store(batch_of(line + b"\n"))

    assert waiting.taken() == ["[", "7"]
    assert waiting.lost == 2


def test_a_flood_that_an_earlier_run_spooled_is_known(tmp_path: Path) -> None:
    """A program that is killed counts again."""
    killed = Waiting(tmp_path, blocks=4)
    for name in ("quiet", "noisy", "noisy", "noisy"):
        killed.add(record(name, name))
    waiting = Waiting(tmp_path, blocks=4)
    waiting.add(record("third", "third"))

    assert names(waiting.taken()) == ["quiet", "noisy", "noisy", "third"]


def test_records_that_were_acknowledged_count_no_more(tmp_path: Path) -> None:
    """Nor those that had to go."""
    waiting = Waiting(tmp_path, blocks=3)
    for name in ("noisy", "noisy", "noisy", "quiet"):
        waiting.add(record(name, name))
    waiting.outbox.remove([batch_in(waiting.next(most=1))])
    for number in range(2):
        waiting.add(record("quiet", f"quiet{number}"))

    assert names(waiting.taken()) == ["noisy", "quiet0", "quiet1"]


def test_a_flood_that_cannot_be_read_now_is_given_up_from_its_beginning(tmp_path: Path) -> None:
    """Room must be made also without a free descriptor."""
    waiting = Waiting(tmp_path, blocks=4)
    for name in ("quiet", "noisy", "noisy", "noisy", "noisy"):
        waiting.add(record(name, name))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        waiting.add(record("third", "third"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert names(waiting.taken()) == ["quiet", "noisy", "noisy", "third"]
    assert waiting.lost == 2


def test_full_memory_gives_up_the_oldest() -> None:
    """And counts their records."""
    waiting = Waiting(None, memory=6)
    for number in range(5):
        waiting.add(str(number))

    assert waiting.lost == 2
    assert waiting.taken() == ["2", "3", "4"]


def test_a_spool_that_cannot_be_written_is_replaced_by_memory(tmp_path: Path) -> None:
    """In order, and what waits in memory is stored once it can be."""
    folder = tmp_path / "spool"
    waiting = Waiting(folder)
    waiting.add("a")
    shutil.rmtree(folder)
    waiting.add("b")
    spooled = waiting.outbox.spooled_bytes
    folder.mkdir()
    waiting.add("c")

    assert (spooled, waiting.outbox.spooled_bytes) == (4096, 3 * 4096)
    assert waiting.taken() == ["b", "c"]
    assert waiting.lost == 1  # of the segment that was removed with its folder


def test_what_is_acknowledged_before_it_is_stored_never_is(tmp_path: Path) -> None:
    """Writing and reading a file would take as long as sending."""
    waiting = Waiting(tmp_path)
    first, second, third = (waiting.outbox.add(batch_of(line)) for line in (b"a\n", b"b\n", b"c\n"))
    waiting.outbox.remove([first])
    waiting.outbox.store([first, second], durable=False)

    assert [waiting.outbox.records, waiting.outbox.spooled_bytes] == [2, 4096]
    assert (first.data, second.data, third.segment) == (b"", b"", None)
    assert waiting.taken() == ["b", "c"]
    assert (waiting.outbox.spooled_bytes, list(tmp_path.iterdir())) == (0, [])


def test_what_memory_cannot_hold_is_stored(tmp_path: Path) -> None:
    """Nothing is lost as long as the spool has room."""
    waiting = Waiting(tmp_path, memory=6)
    for number in range(10):
        waiting.outbox.add(batch_of(f"{number}\n".encode()))

    assert 4096 <= waiting.outbox.spooled_bytes < 10 * 4096
    assert waiting.taken() == [str(number) for number in range(10)]
    assert waiting.lost == 0


def test_halves_are_kept_where_the_batch_was(tmp_path: Path) -> None:
    """What was stored is not lost when the program is killed."""
    waiting = Waiting(tmp_path)
    waiting.add("a", "b")
    in_memory = waiting.outbox.add(batch_of(b"c\n", b"d\n"))
    waiting.outbox.split(batch_in(waiting.next(most=2)))
    waiting.outbox.split(in_memory)

    assert waiting.outbox.spooled_bytes == 2 * 4096
    assert sorted(Waiting(tmp_path).taken()) == ["a", "b"]


class FailingSpool(Spool):
    """A spool on a disk that is full; ``tried`` is what it was to store."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tried: list[tuple[bytes, int, bool]] = []

    def store(self, data: bytes, *, records: int, durable: bool) -> Segment:
        self.tried.append((data, records, durable))
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_tried_once_at_a_time(tmp_path: Path) -> None:
    """However much waits in memory."""
    spool = FailingSpool(tmp_path)
    outbox = Outbox(spool, count_lost=lambda _: None)
    outbox.open()
    for _ in range(5):
        outbox.add(batch_of(b"a\n"))
    outbox.store_all(durable=True)

    assert spool.tried == [(b"a\n", 1, True)]
    assert outbox.records == 5


def test_a_spool_without_room_for_a_batch_is_replaced_by_memory(tmp_path: Path) -> None:
    """The bound of the disk holds whatever is written."""
    waiting = Waiting(tmp_path, blocks=1)
    waiting.add("x" * 900, "y" * 90)
    waiting.add("z" * 5000)

    assert waiting.outbox.spooled_bytes <= 4096


def test_damaged_segments_are_skipped_and_counted(tmp_path: Path) -> None:
    """The others are sent."""
    waiting = Waiting(tmp_path)
    for lines in (("a", "b"), ("c",), ("d",)):
        waiting.add(*lines)
    first, *_, last = sorted(tmp_path.iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    last.write_bytes(b"")

    assert waiting.taken() == ["c"]
    assert waiting.lost == 3
    assert list(tmp_path.iterdir()) == []


def test_a_segment_that_cannot_be_read_now_is_kept(tmp_path: Path) -> None:
    """Such as without a free descriptor; others are sent first."""
    waiting = Waiting(tmp_path)
    waiting.add("a")
    waiting.add("b")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            waiting.next()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert waiting.lost == 0
    assert waiting.taken(most=1) == ["b", "a"]


def test_a_deferred_batch_is_sent_last(waiting: Waiting) -> None:
    """The fault may lie in it."""
    for line in "abc":
        waiting.add(line)
    waiting.outbox.defer([batch_in(waiting.next(most=1))])

    assert waiting.taken(most=1) == ["b", "c", "a"]


def test_halves_of_a_batch_take_its_place(waiting: Waiting) -> None:
    """With the first half first."""
    waiting.add("a", "b", "c")
    waiting.add("d")
    waiting.outbox.split(batch_in(waiting.next(most=3)))

    assert waiting.outbox.records == 4
    assert batch_in(waiting.next(most=1)).records == 1
    assert waiting.taken() == ["a", "b", "c", "d"]


def test_a_batch_that_was_damaged_meanwhile_has_no_halves(tmp_path: Path) -> None:
    """It is lost and counted, and one that had to go is not there again."""
    waiting = Waiting(tmp_path, blocks=1)
    waiting.add("a", "b")
    batch = batch_in(waiting.next())
    for file in tmp_path.iterdir():
        file.write_bytes(b"")
    waiting.outbox.split(batch)
    waiting.outbox.split(batch)

    assert (waiting.lost, waiting.outbox.records) == (2, 0)


def test_what_had_to_go_meanwhile_can_be_removed_again(tmp_path: Path) -> None:
    """A batch is given up while a call with it is under way."""
    waiting = Waiting(tmp_path, blocks=1)
    waiting.add("a")
    sent = waiting.next()
    waiting.add("b")
    assert sent is not None
    waiting.outbox.remove(sent.batches)
    waiting.outbox.defer(sent.batches)

    assert waiting.lost == 1
    assert waiting.taken() == ["b"]


def test_at_the_end_of_the_program_memory_is_lost_and_counted(tmp_path: Path) -> None:
    """The spool stays for the next one."""
    waiting = Waiting(tmp_path, blocks=1)
    waiting.add("a")
    waiting.add("b" * 5000, "c")  # larger than the spool
    waiting.outbox.close()

    assert (waiting.lost, waiting.outbox.records) == (2, 1)
    assert Waiting(tmp_path).taken() == ["a"]


def shared_end(namespace: str, *, size: int = 3000) -> LineEnd:
    """Return the end of the lines of records in *namespace*."""
    return LineEnd(f'"namespace":"{namespace}","text":"{"." * size}"'.encode(), b"}\n")


def shared_records(namespace: str, count: int, end: LineEnd) -> list[tuple[bytes, LineEnd]]:
    return [(f'{{"pod":"{namespace}{number}",'.encode(), end) for number in range(count)]


def mixed_batch(end: LineEnd) -> BatchText:
    """Return a batch of 2 quiet and 40 noisy pods, and of one of no template."""
    batch = BatchText()
    quiet = shared_records("quiet", 2, shared_end("quiet", size=900))
    for start, its_end in (*quiet[:1], *shared_records("noisy", 40, end), *quiet[1:]):
        batch.add(start, its_end)
    batch.add(record("third", "third").encode() + b"\n", None)
    return batch


def pods_of(parcel: Parcel | None) -> list[str]:
    assert parcel is not None
    return names(whole_line(*line).decode() for line in read_batch(parcel.data))


@ROOMS
def test_of_a_batch_with_shared_ends_only_the_flood_is_given_up(
    room: dict[str, int], tmp_path: Path
) -> None:
    """The rest is as short as before."""
    waiting = waiting_in(room, tmp_path)
    end = shared_end("noisy")
    mixed = mixed_batch(end)
    waiting.store(mixed)
    while not waiting.lost:
        flood = BatchText()
        for start, its_end in shared_records("noisy", 9, end):
            flood.add(start, its_end)
        waiting.store(flood)

    parcel = waiting.next(most=1)

    assert waiting.lost == 40
    assert pods_of(parcel) == ["quiet0", "quiet1", "third"]
    assert parcel is not None
    assert parcel.records == 3
    assert parcel.data.count(b"=") == 1
    assert len(parcel.data) < mixed.size / 2


def test_an_end_counts_once_for_whoever_floods(tmp_path: Path) -> None:
    """A tenant is judged by the room that he takes, and replicas take little."""
    waiting = Waiting(tmp_path, blocks=10)
    replicas = BatchText()
    for start, end in shared_records("alike", 200, shared_end("alike")):
        replicas.add(start, end)
    waiting.store(replicas)
    while not waiting.lost:
        waiting.add(*[record("others", f"o{number}", size=380) for number in range(10)])

    assert waiting.lost == 10
    assert pods_of(waiting.next(most=200)) == [f"alike{number}" for number in range(200)]


def test_a_batch_with_shared_ends_is_halved(waiting: Waiting) -> None:
    """Each half defines the ends that it needs."""
    end = shared_end("team", size=30)
    batch = BatchText()
    for start, its_end in shared_records("a", 5, end):
        batch.add(start, its_end)
    waiting.store(batch)
    waiting.outbox.split(batch_in(waiting.next()))

    assert pods_of(waiting.next(most=2)) == ["a0", "a1"]
    assert pods_of(waiting.next()) == ["a0", "a1", "a2", "a3", "a4"]


def test_what_is_sent_together_is_bounded_as_it_is_read(tmp_path: Path) -> None:
    """Also where an earlier run made it."""
    killed = Waiting(tmp_path)
    size = MOST_WHOLE_BYTES // 100
    for number in range(4):
        batch = BatchText()
        for start, end in shared_records(f"n{number}-", 40, shared_end("n", size=size)):
            batch.add(start, end)
        killed.store(batch)
    for waiting in (killed, Waiting(tmp_path)):
        parcel = waiting.next(size=MOST_BYTES)
        assert parcel is not None
        assert (len(parcel.batches), parcel.records) == (2, 80)
