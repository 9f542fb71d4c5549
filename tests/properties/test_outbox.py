"""Whatever happens to an outbox, each record is waiting, acknowledged or counted as lost."""

import errno
import tempfile
from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from allocator.delivery.outbox_files import Outbox, Parcel
from allocator.delivery.spool_files import Segment, Spool
from tests.harness.lines import batch_of

BLOCKS = 6  # of the spool
MEMORY = 9000  # bytes
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 40)),
        st.tuples(st.just("flood"), st.integers(1, 200)),
        st.tuples(st.just("large"), st.integers(1, 3)),
        st.tuples(st.just("acknowledge"), st.integers(1, 60)),
        st.tuples(st.just("defer"), st.integers(1, 60)),
        st.tuples(st.just("split"), st.just(1)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("damage"), st.integers(0, 5)),
        st.tuples(st.just("fill"), st.just(0)),
        st.tuples(st.just("free"), st.just(0)),
    ),
    max_size=40,
)


class FlakySpool(Spool):
    """A spool on a disk that is full at times."""

    is_full = False

    def store(self, data: bytes, *, records: int, durable: bool) -> Segment:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().store(data, records=records, durable=durable)


class Story:
    """An outbox, and what became of the records that were given to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "spool"
        self.added = 0
        self.acknowledged: list[int] = []
        self.lost = 0
        self.killed = 0  # records that were in memory only
        self.open()

    def open(self) -> None:
        self.spool = FlakySpool(self.folder, limit=BLOCKS * 4096)
        self.outbox = Outbox(self.spool, count_lost=self.lose, memory_limit=MEMORY)
        self.outbox.open()

    def lose(self, records: int) -> None:
        self.lost += records

    def add(self, count: int, *, padding: str = "", tenants: int = 3) -> None:
        lines = [
            {
                "namespace": f"team-{number % tenants}",
                "number": self.added + number,
                "text": padding,
            }
            for number in range(count)
        ]
        self.added += count
        batch = batch_of(*(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))
        self.outbox.add(batch)
        if count % 2:  # a batch of others is acknowledged or stored later
            self.outbox.store_all(durable=False)

    def next(self, most: int) -> Parcel | None:
        return self.outbox.next(most_records=most, most_bytes=5000)

    def acknowledge(self, most: int) -> bool:
        parcel = self.next(most)
        if parcel is not None:
            self.acknowledged += [orjson.loads(line)["number"] for line in parcel.data.splitlines()]
            self.outbox.remove(parcel.batches)
        return parcel is not None

    def kill(self) -> None:
        waiting = self.outbox.records
        spooled = sum(int(f.name.split("-")[2].split(".")[0]) for f in self.segments())
        self.killed += waiting - spooled
        self.open()

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.segment"))

    def step(self, what: str, number: int) -> None:
        match what:
            case "add":
                self.add(number)
            case "flood":
                self.add(number, tenants=1)
            case "large":
                self.add(number, padding="x" * 3000)
            case "acknowledge":
                self.acknowledge(number)
            case "defer" if parcel := self.next(number):
                self.outbox.defer(parcel.batches)
            case "split" if (parcel := self.next(1)) and parcel.records > 1:
                self.outbox.split(parcel.batches[0])
            case "kill":
                self.kill()
            case "damage" if files := self.segments()[number : number + 1]:
                files[0].write_bytes(files[0].read_bytes()[:-1])
            case "fill" | "free":
                self.spool.is_full = what == "fill"
            case _:
                pass  # there is nothing to do it with

    def check(self) -> None:
        assert self.outbox.records >= 0
        assert self.outbox.spooled_bytes <= BLOCKS * 4096
        accounted = len(self.acknowledged) + self.lost + self.killed + self.outbox.records
        assert accounted == self.added


@given(STEPS)
def test_every_record_is_accounted_for(steps: list[tuple[str, int]]) -> None:
    """Once, through kills, damaged files and a disk that is full for a while."""
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder))
        for what, number in steps:
            story.step(what, number)
            story.check()
        while story.acknowledge(500):
            story.check()

        assert story.outbox.records == story.outbox.spooled_bytes == 0
        assert len(set(story.acknowledged)) == len(story.acknowledged)
        assert story.segments() == []
