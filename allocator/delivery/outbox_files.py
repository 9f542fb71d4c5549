"""The outbox: batches of records that the console has not acknowledged, in their order.

A batch is in memory until it is stored in the spool; one that is acknowledged soon never is. Both
are bounded. Records of a namespace that has more than half of what waits go first, so that nobody
can push out what others did; without such a namespace the oldest go.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec
import structlog

from allocator.audit.line_buffer import Line, LineEnd, whole_line
from allocator.delivery.batch_text import (
    MOST_WHOLE_BYTES,
    BatchText,
    read_batch,
    whole_size_of,
)
from allocator.delivery.spool_files import Segment, Spool

MEMORY_LIMIT: Final = 8 * 1024 * 1024  # bytes of batches that are not in the spool
log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Batch:
    """Text of records, which is ``data``, or stored in ``segment``."""

    records: int
    data: bytes = b""
    segment: Segment | None = None
    whole_size: int | None = None  # bytes of the records, each written out; None: not known


def _batch_of(text: BatchText) -> Batch:
    return Batch(text.records, data=text.text(), whole_size=text.whole_size)


@dataclass(frozen=True, slots=True)
class Parcel:
    """Batches that are sent together, and their text."""

    batches: tuple[Batch, ...]
    data: bytes

    @property
    def records(self) -> int:
        """Return how many records there are."""
        return sum(batch.records for batch in self.batches)


class _Namespaced(msgspec.Struct):
    """A record, of which only the namespace is read."""

    namespace: str = ""


_NAMESPACED: Final = msgspec.json.Decoder(_Namespaced)


def _namespace_of(line: Line) -> str:
    try:
        return _NAMESPACED.decode(whole_line(*line)).namespace
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


class _NamespaceSizes:
    """How many bytes of which batches are of which namespace."""

    def __init__(self) -> None:
        self._of_batch: dict[Batch, Counter[str]] = {}
        self._of_all: Counter[str] = Counter()

    def __contains__(self, batch: Batch) -> bool:
        return batch in self._of_batch

    def add(self, batch: Batch, lines: Iterable[Line]) -> None:
        """Count *lines*, which are those of *batch*; an end that several have counts once."""
        sizes: Counter[str] = Counter()
        counted = set[LineEnd]()
        for line in lines:
            start, end = line
            size = len(start)
            if end is not None and end not in counted:
                counted.add(end)
                size += end.size
            sizes[_namespace_of(line)] += size
        self._of_batch[batch] = sizes
        self._of_all += sizes

    def remove(self, batch: Batch) -> None:
        """Forget *batch*, if it was counted."""
        if sizes := self._of_batch.pop(batch, None):
            self._of_all -= sizes

    def has(self, batch: Batch, namespace: str) -> bool:
        """Say whether *batch* is known to hold records of *namespace*."""
        return namespace in self._of_batch.get(batch, ())

    def dominant_namespace(self) -> str:
        """Return the namespace with more than half of all bytes; empty where there is none.

        What is of the cluster, and of no namespace, dominates nothing.
        """
        for namespace, size in self._of_all.most_common(1):
            if 2 * size > self._of_all.total():
                return namespace
        return ""


class Outbox:
    """Batches that wait. Only one thread uses it, but its figures may be read by any."""

    def __init__(
        self,
        spool: Spool | None,
        *,
        count_lost: Callable[[int], object],
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        """Store batches in *spool*; where it is ``None`` or fails, they stay in memory."""
        self._spool = spool
        self._count_lost = count_lost
        self._memory_limit = memory_limit
        self._batches: deque[Batch] = deque()
        self._in_memory = 0  # bytes
        self._sizes = _NamespaceSizes()  # of batches that were there when room was short
        self._trouble = ""  # why the spool could not be written, as logged
        self.spooled_bytes = 0
        self.records = 0

    def open(self) -> None:
        """Take over what an earlier run left in the spool."""
        if self._spool is None:
            return
        try:
            for segment in self._spool.open():
                self._append(Batch(segment.records, segment=segment))
        except OSError as error:
            self._note_trouble(error)
        self._make_room(b"")

    def add(self, text: BatchText) -> Batch:
        """Keep *text*, in memory as long as there is room; return its batch."""
        batch = _batch_of(text)
        self._append(batch)
        if self._in_memory > self._memory_limit:
            self.store_all(durable=False)
        while self._in_memory > self._memory_limit:
            self._give_up(self._batches_in_memory())
        return batch

    def store(self, batches: Iterable[Batch], *, durable: bool) -> None:
        """Store those of *batches* that wait in memory; *durable* ones outlive a power failure.

        A killed program loses nothing that was stored.
        """
        for batch in batches:
            if batch.segment is None and batch in self._batches:
                self._make_room(batch.data)
                if not self._store(batch, durable=durable):
                    return

    def store_all(self, *, durable: bool) -> None:
        """Store all that wait in memory."""
        self.store(self._batches_in_memory(), durable=durable)

    def next(self, *, most_records: int, most_bytes: int) -> Parcel | None:
        """Return the oldest batches, at least one; damaged ones are lost.

        Raises ``OSError`` where the oldest cannot be read now; then others come first.
        """
        batches: list[Batch] = []
        texts: list[bytes] = []
        records = size = whole_size = damaged = 0
        for batch in list(islice(self._batches, most_records)):
            if batches and records + batch.records > most_records:
                break
            try:
                data = self._load(batch)
            except OSError:
                self.defer([batch])
                raise
            if not data:
                damaged += batch.records
                self._lose(batch)
                continue
            known = batch.whole_size
            whole_size += whole_size_of(data) if known is None else known
            if batches and (size + len(data) > most_bytes or whole_size > MOST_WHOLE_BYTES):
                break
            records, size = records + batch.records, size + len(data)
            batches.append(batch)
            texts.append(data)
        if damaged:
            log.warning("damaged segments of audit records", records=damaged)
        return Parcel(tuple(batches), b"".join(texts)) if batches else None

    def remove(self, batches: Sequence[Batch]) -> None:
        """Forget *batches* of which the console knows; some may have had to go already."""
        for batch in batches:
            if batch in self._batches:
                self._remove(batch)

    def defer(self, batches: Sequence[Batch]) -> None:
        """Try all others before *batches*."""
        for batch in batches:
            if batch in self._batches:
                self._batches.remove(batch)
                self._batches.append(batch)

    def split(self, batch: Batch) -> None:
        """Replace *batch* by its two halves, at the head; raises ``OSError``."""
        if batch not in self._batches:
            return
        lines = self._lines(batch)
        if not lines:
            self._lose(batch)
            return
        middle = len(lines) // 2
        self.remove([batch])
        for part in (lines[middle:], lines[:middle]):
            self._insert_part(0, part, stored=batch.segment is not None)

    def close(self) -> None:
        """Lose what is not stored, because the program ends."""
        for batch in self._batches_in_memory():
            self._lose(batch)

    def _append(self, batch: Batch) -> None:
        self._insert(len(self._batches), batch)

    def _insert(self, at: int, batch: Batch) -> None:
        self._batches.insert(at, batch)
        self.records += batch.records
        self._in_memory += len(batch.data)
        if batch.segment is not None:
            self.spooled_bytes += batch.segment.size

    def _remove(self, batch: Batch) -> None:
        self._batches.remove(batch)
        self._sizes.remove(batch)
        self.records -= batch.records
        self._in_memory -= len(batch.data)
        batch.data = b""  # whoever stores it later has nothing to hold
        if batch.segment is not None and self._spool is not None:
            self._spool.remove(batch.segment)
            self.spooled_bytes -= batch.segment.size

    def _insert_part(self, at: int, lines: Sequence[Line], *, stored: bool) -> None:
        """Insert *lines*, which are what is left of one batch, and store them as that was."""
        text = BatchText()
        for start, end in lines:
            text.add(start, end)
        batch = _batch_of(text)
        self._insert(at, batch)
        if stored:
            self._store(batch, durable=False)

    def _batches_in_memory(self) -> list[Batch]:
        return [batch for batch in self._batches if batch.segment is None]

    def _store(self, batch: Batch, *, durable: bool) -> bool:
        """Store *batch* if there is room for it; return false where the spool fails."""
        spool, data = self._spool, batch.data
        if spool is None or not spool.has_room(self.spooled_bytes, data):
            return True
        try:
            segment = spool.store(data, records=batch.records, durable=durable)
        except OSError as error:
            self._note_trouble(error)
            return False
        if self._trouble:
            self._trouble = ""
            log.info("spool of audit records can be written again")
        batch.segment, batch.data = segment, b""
        self.spooled_bytes += segment.size
        self._in_memory -= len(data)
        return True

    def _load(self, batch: Batch) -> bytes | None:
        if batch.segment is None or self._spool is None:
            return batch.data
        return self._spool.load(batch.segment)

    def _lines(self, batch: Batch) -> list[Line]:
        """Return the records of *batch*, none where it is damaged; raises ``OSError``."""
        return list(read_batch(self._load(batch) or b""))

    def _note_trouble(self, error: OSError) -> None:
        if not self._trouble:
            log.warning("spool of audit records cannot be written", why=str(error))
        self._trouble = str(error)

    def _make_room(self, data: bytes) -> None:
        spool = self._spool
        while spool and spool.has_room(0, data) and not spool.has_room(self.spooled_bytes, data):
            self._give_up([batch for batch in self._batches if batch.segment is not None])

    def _give_up(self, some: Sequence[Batch]) -> None:
        """Lose what has to go first of *some* batches, the oldest first."""
        self._count_namespaces()
        namespace = self._sizes.dominant_namespace()
        oldest = (batch for batch in some if namespace and self._sizes.has(batch, namespace))
        batch = next(oldest, None)
        if batch is None:
            self._lose(some[0])
        else:
            self._lose_records(batch, namespace)

    def _count_namespaces(self) -> None:
        """Look at the batches that were not looked at yet."""
        for batch in self._batches:
            if batch not in self._sizes:
                with suppress(OSError):  # it counts once it can be read
                    self._sizes.add(batch, self._lines(batch))

    def _lose_records(self, batch: Batch, namespace: str) -> None:
        """Lose the records of *namespace* in *batch*; all where it cannot be read."""
        try:
            lines = self._lines(batch)
        except OSError:
            lines = []
        kept = [line for line in lines if _namespace_of(line) != namespace]
        at = self._batches.index(batch)
        self._remove(batch)
        if kept:
            self._insert_part(at, kept, stored=batch.segment is not None)
        self._count_lost(batch.records - len(kept))

    def _lose(self, batch: Batch) -> None:
        self._remove(batch)
        self._count_lost(batch.records)
