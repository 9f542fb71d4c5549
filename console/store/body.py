"""Bodies of records as the store keeps them, without what columns say."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from allocator.audit.record import AnyRecord, parse_record
from console.store.packing import BadBodyError, packed, unpacked

# Texts that few records have for themselves; a body names them by number.
_SHARED: Final = ("instance", "user", "settings", "snapshot")
_NUMBER: Final = "#"
_NOTHING: Final = "-"


class RecordColumns(msgspec.Struct, frozen=True):
    """What columns beside the body say of a record; none of it ever changes."""

    pod_uid: str = ""  # where the record's row is about this pod
    digest: str = ""  # where the record's row is about this request
    namespace: str = ""
    node: str = ""


def shared_texts(record: AnyRecord) -> list[str]:
    """Return the texts of *record* that its body names by number."""
    texts = (getattr(record, name, "") for name in _SHARED)
    return [text for text in texts if text]


def packed_body(record: AnyRecord, columns: RecordColumns, numbers: Mapping[str, int]) -> bytes:
    """Return *record* without its id, its time, and what *columns* say in the same words.

    *numbers* has the numbers of shared texts; one that it lacks is kept as it is.
    """
    slim: dict[str, Any] = {
        "id": "",
        "at": "",
        "pod_uid": _remainder(record.pod_uid, columns.pod_uid),
        "digest": _remainder(record.digest, columns.digest),
        "namespace": _remainder(record.namespace, columns.namespace),
        "node": _remainder(record.node, columns.node),
    }
    for name in _SHARED:
        text = getattr(record, name, "")
        if text:
            number = numbers.get(text)
            slim[name] = f"{_NUMBER}{_NUMBER}{text}" if number is None else f"{_NUMBER}{number}"
    return packed(msgspec.json.encode(replace(record, **slim)))


def unpacked_body(
    data: bytes, columns: RecordColumns, *, record_id: str, at: str, text: Callable[[int], str]
) -> AnyRecord:
    """Return the record that :func:`packed_body` packed; raises :class:`BadBodyError`.

    *text* returns the shared text of a number.
    """
    try:
        record = parse_record(unpacked(data))
        shared = {name: _shared(getattr(record, name, ""), text) for name in _SHARED}
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadBodyError(f"record {record_id} cannot be read: {error}") from error
    return replace(
        record,
        id=record_id,
        at=at,
        pod_uid=_restored(record.pod_uid, columns.pod_uid),
        digest=_restored(record.digest, columns.digest),
        namespace=_restored(record.namespace, columns.namespace),
        node=_restored(record.node, columns.node),
        **{name: value for name, value in shared.items() if value},
    )


def _shared(kept: str, text: Callable[[int], str]) -> str:
    if not kept.startswith(_NUMBER):
        return ""
    rest = kept.removeprefix(_NUMBER)
    return rest.removeprefix(_NUMBER) if rest.startswith(_NUMBER) else text(int(rest))


def _remainder(stated: str, column: str) -> str:
    """Return what must be kept of *stated* beside *column*; ``-`` stands for nothing."""
    if stated == column:
        return ""
    return f"{_NOTHING}{stated}" if not stated or stated.startswith(_NOTHING) else stated


def _restored(kept: str, column: str) -> str:
    """Return what a record said; ``-`` stands for nothing, where the column has something."""
    return kept.removeprefix(_NOTHING) if kept else column
