"""Reads a workload: the object, its ReplicaSets or Jobs, and its pods."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from allocator.model.untrusted import escaped, quote
from console.cluster.event import EventView, creation_refusal, latest
from console.cluster.reader_client import ClusterReader
from console.cluster.workload import Maker, Workload, WorkloadKind, maker_of, templates
from kube.errors import KubeError, NotFoundError, UnreadableError

MOST_MAKERS: Final = 5  # objects whose Events are read: the workload and its latest ReplicaSets
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class UnknownKindError(KubeError):
    """The server does not know the kind that the text names."""


async def workload(
    reader: ClusterReader, kind: WorkloadKind, *, namespace: str, name: str
) -> Workload:
    """Return a workload with the pods that it owns."""
    document = await _read_workload(reader, kind, namespace=namespace, name=name)
    maker = _maker(document)
    makers = (maker, *await _intermediates(reader, kind, maker, namespace=namespace))
    uids = {owner.metadata.uid for owner in makers}
    selected = await reader.pods(namespace, maker.labels)
    pods = tuple(pod for pod in selected if pod.metadata.is_owned_by(uids))
    events = await _events(reader, namespace, makers)
    # An earlier ReplicaSet was refused for what an earlier template asked.
    current = {one.metadata.uid for one in makers[:2]}
    return Workload(
        kind=kind,
        maker=maker,
        pods=pods,
        events=latest(event for found in events.values() for event in found),
        templates=() if pods else templates(document, namespace),
        refusal=creation_refusal(
            event for uid, found in events.items() if uid in current for event in found
        ),
    )


async def _read_workload(
    reader: ClusterReader, kind: WorkloadKind, *, namespace: str, name: str
) -> Mapping[str, Any]:
    try:
        return await reader.cluster.workload(kind, namespace, name)
    except NotFoundError as error:
        if error.reason == "NotFound":
            raise
        text = f'the server doesn\'t have a resource type "{kind.resource}"'
        raise UnknownKindError(text) from error


async def _intermediates(
    reader: ClusterReader, kind: WorkloadKind, maker: Maker, *, namespace: str
) -> Sequence[Maker]:
    """Return the ReplicaSets or Jobs that *maker* owns, the latest first."""
    if not kind.through:
        return ()
    own: list[Maker] = []
    for document in await reader.cluster.intermediates(kind, namespace, maker.labels):
        try:
            intermediate = _maker(document)
        except UnreadableError as error:
            reader.warn(str(error))
            continue
        own += [intermediate] if intermediate.metadata.is_owned_by({maker.metadata.uid}) else []
    own.sort(key=lambda owned: owned.metadata.creation_timestamp or _LONG_AGO, reverse=True)
    return own


async def _events(
    reader: ClusterReader, namespace: str, makers: Sequence[Maker]
) -> Mapping[str, tuple[EventView, ...]]:
    """Return the latest Events of each of *makers* by its uid."""
    uids = [maker.metadata.uid for maker in makers[:MOST_MAKERS]]
    return {uid: await reader.events(namespace, uid) for uid in uids}


def _maker(document: Mapping[str, Any]) -> Maker:
    try:
        return maker_of(document)
    except ValueError as error:
        name = (document.get("metadata") or {}).get("name", "")
        raise UnreadableError(f"{quote(name)} cannot be read: {escaped(str(error))}") from error
