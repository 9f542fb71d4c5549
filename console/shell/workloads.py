"""Reading a workload: the object, what stands between it and its pods, and the pods themselves."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from allocator.core.wording import quoted, shown
from console.core.event import Event, latest
from console.core.workload import Kind, Maker, Workload, maker_of, templates
from console.shell.gather import Gatherer
from kube.errors import KubeError, NotFoundError, UnreadableError

MOST_MAKERS: Final = 5  # whose Events are read: the workload's, and those of the latest between
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class UnknownKindError(KubeError):
    """The server knows no such kind; the text names it."""


async def workload(gather: Gatherer, kind: Kind, *, namespace: str, name: str) -> Workload:
    """Return a workload with the pods that are its own."""
    document = await _stored(gather, kind, namespace=namespace, name=name)
    maker = _maker(document)
    makers = (maker, *await _between(gather, kind, maker, namespace=namespace))
    uids = {one.metadata.uid for one in makers}
    every = await gather.pods(namespace, maker.labels)
    pods = tuple(pod for pod in every if pod.metadata.made_by(uids))
    return Workload(
        kind=kind,
        maker=maker,
        pods=pods,
        events=await _said(gather, namespace, makers),
        templates=() if pods else templates(document, namespace),
    )


async def _stored(gather: Gatherer, kind: Kind, *, namespace: str, name: str) -> Mapping[str, Any]:
    try:
        return await gather.cluster.workload(kind, namespace, name)
    except NotFoundError as error:
        if error.reason == "NotFound":
            raise
        text = f'the server doesn\'t have a resource type "{kind.resource}"'
        raise UnknownKindError(text) from error


async def _between(
    gather: Gatherer, kind: Kind, maker: Maker, *, namespace: str
) -> Sequence[Maker]:
    """Return what *maker* makes pods through, the latest first."""
    if not kind.through:
        return ()
    own: list[Maker] = []
    for document in await gather.cluster.between(kind, namespace, maker.labels):
        try:
            found = _maker(document)
        except UnreadableError as error:
            gather.tell(str(error))
            continue
        own += [found] if found.metadata.made_by({maker.metadata.uid}) else []
    own.sort(key=lambda one: one.metadata.creation_timestamp or _LONG_AGO, reverse=True)
    return own


async def _said(gather: Gatherer, namespace: str, makers: Sequence[Maker]) -> tuple[Event, ...]:
    found: list[Event] = []
    for one in makers[:MOST_MAKERS]:
        found += await gather.events(namespace, one.metadata.uid)
    return latest(found)


def _maker(document: Mapping[str, Any]) -> Maker:
    try:
        return maker_of(document)
    except ValueError as error:
        name = (document.get("metadata") or {}).get("name", "")
        raise UnreadableError(f"{quoted(name)} cannot be read: {shown(str(error))}") from error
