"""Elements of ``spec.entries`` that are no entries: whose they seem to be."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from allocator.core.names import is_safe_name
from allocator.model.ledger import Entry

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class _Whose(msgspec.Struct):
    namespace: str
    name: str


class _Named(msgspec.Struct):
    pod: _Whose


class _Since(msgspec.Struct):
    since: Annotated[datetime, msgspec.Meta(tz=True)]


def uid_of(element: object) -> str:
    """Return the uid of the pod that *element* names, empty where it names none."""
    pod = element.get("pod") if isinstance(element, Mapping) else None
    uid = pod.get("uid") if isinstance(pod, Mapping) else None
    return uid if isinstance(uid, str) else ""


def unreadable_entry(element: object) -> Entry:
    """Return *element* as a promise of nothing, to the pod that it names if any.

    One that does not say since when it stands never ages.
    """
    try:
        pod = msgspec.convert(element, _Named).pod
    except msgspec.ValidationError:
        pod = _Whose("", "")
    try:
        since = msgspec.convert(element, _Since).since
    except msgspec.ValidationError:
        since = _NEVER
    named = is_safe_name(pod.namespace) and is_safe_name(pod.name)  # they become part of a path
    return Entry(
        namespace=pod.namespace if named else "",
        pod=pod.name if named else "",
        uid=uid_of(element),
        since=since,
        containers=(),
    )
