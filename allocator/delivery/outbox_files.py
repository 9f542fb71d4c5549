"""The outbox: batches of records that the console has not acknowledged, in their order.

Each is in the spool if that can be written, otherwise in memory. Both are bounded. Records of a
namespace that has more than half of what waits go first, so that nobody can push out what others
did; without such a namespace the oldest go.
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


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Text of records; ``segment`` is where it is stored, or it is in ``data``."""

    records: int
    segment: Segment | None = None
    data: bytes = b""
    whole_size: int | None = None  # bytes of the records, each written out; None: not known


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
        """Keep batches in *spool*, or in memory where it is ``None`` or fails."""
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
                self._append(Batch(segment.records, segment))
        except OSError as error:
            self._note_trouble(error)
        self._make_room(b"")

    def add(self, text: BatchText, *, durable: bool) -> None:
        """Keep *text*; what is *durable* outlives the machine's sudden end."""
        data = text.text()
        self._make_room(data)
        self._append(self._batch(text, data, durable=durable))
        while self._in_memory > self._memory_limit:
            self._give_up([batch for batch in self._batches if batch.segment is None])

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
            self._insert(0, self._batch_of(part))

    def close(self) -> None:
        """Lose what is in no spool, because the program ends."""
        for batch in [batch for batch in self._batches if batch.segment is None]:
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
        if batch.segment is not None and self._spool is not None:
            self._spool.remove(batch.segment)
            self.spooled_bytes -= batch.segment.size

    def _batch_of(self, lines: Sequence[Line]) -> Batch:
        """Return a batch of *lines*, which are some of one batch."""
        text = BatchText()
        for start, end in lines:
            text.add(start, end)
        return self._batch(text, text.text(), durable=False)

    def _batch(self, text: BatchText, data: bytes, *, durable: bool) -> Batch:
        """Return a batch of *text*, which is *data*, in the spool if possible."""
        records, whole_size = text.records, text.whole_size
        if self._spool is None or not self._spool.has_room(self.spooled_bytes, data):
            return Batch(records, data=data, whole_size=whole_size)
        try:
            segment = self._spool.store(data, records=records, durable=durable)
        except OSError as error:
            self._note_trouble(error)
            return Batch(records, data=data, whole_size=whole_size)
        if self._trouble:
            self._trouble = ""
            log.info("spool of audit records can be written again")
        return Batch(records, segment, whole_size=whole_size)

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
            self._insert(at, self._batch_of(kept))
        self._count_lost(batch.records - len(kept))

    def _lose(self, batch: Batch) -> None:
        self._remove(batch)
        self._count_lost(batch.records)
