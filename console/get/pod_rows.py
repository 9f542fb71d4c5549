"""Pods as rows: the request of each, the GPUs that it got, and its node."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from allocator.model.allocation import Entry
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.request.admitted import AdmissionMarks, admission_marks
from console.cluster.assignment import (
    DeviceRow,
    assigned_devices,
    device_row,
    is_accounted_elsewhere,
)
from console.cluster.pod import PodState, PodView, request_of, state_of
from console.cluster.snapshot import ClusterView, entries_in_use
from console.get.listing import Listing
from console.get.table import NONE, UNKNOWN, age, word

SPACE: Final = "NAMESPACE"
COLUMNS: Final = ("NAME", "STATE", "ASKED", "GIVEN", "ON", "AGE")
WIDE: Final = ("MODE", "SOURCE", "SCHEDULER", "DECISION", "GPUS")


class ContainerRequestRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The request of one container for each of *count* GPUs."""

    container: str
    count: int
    memory_mib: int | None = msgspec.field(name="memoryMiB")
    memory_percent: int | None
    cores_percent: int


class PodRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod on one node."""

    namespace: str
    name: str
    uid: str
    state: PodState
    asked: tuple[ContainerRequestRow, ...] | None  # None: it cannot be read any more
    profile: str | None = None
    devices: tuple[DeviceRow, ...] = ()
    node: str | None = None  # where it is bound or has a promise
    since: datetime | None = None  # time of the promise
    created: datetime | None = None
    mode: Mode | None = None
    mode_source: str | None = None
    scheduler: str | None = None
    decision: str | None = None


@dataclass(frozen=True, slots=True)
class _Promise:
    node: str
    entry: Entry


def pod_rows(
    site: ClusterView, pods: Iterable[PodView], *, gone: bool, namespace: str | None
) -> list[PodRow]:
    """Return the pods with a request or a promise, sorted by namespace and name.

    *gone* says that *pods* are all pods of *namespace* (``None``: of the cluster). A promise
    whose pod is not among them then belongs to a pod that does not exist any more.
    """
    promises: dict[str, list[_Promise]] = {}
    for name, ledger in site.ledgers.items():
        for entry in entries_in_use(ledger):
            promises.setdefault(entry.uid, []).append(_Promise(name, entry))
    rows: list[PodRow] = []
    for pod in pods:
        rows += _rows(pod, promises.pop(pod.metadata.uid, []), site)
    if gone:
        gone_promises = (promise for promised in promises.values() for promise in promised)
        rows += (
            _gone_row(p, site) for p in gone_promises if namespace in (None, p.entry.namespace)
        )
    return sorted(rows, key=lambda row: (row.namespace, row.name, row.node or ""))


def _rows(pod: PodView, promises: Sequence[_Promise], site: ClusterView) -> Iterator[PodRow]:
    """Yield a row for each promise; a pod that is not bound yet may have two."""
    request = request_of(pod, site.configuration.vocabularies)
    if not promises and (request is None or pod.over):
        return
    known = {v.name: v for v in site.configuration.vocabularies}
    pod_request = request if isinstance(request, PodRequest) else None
    vocabulary = known.get(pod_request.vocabulary) if pod_request else None
    marks = admission_marks(pod.annotations, vocabulary)
    promises_or_none: Sequence[_Promise | None] = promises or (None,)
    for promise in promises_or_none:
        yield _row(pod, pod_request, marks, promise=promise, site=site)


def _row(
    pod: PodView,
    pod_request: PodRequest | None,
    marks: AdmissionMarks,
    *,
    promise: _Promise | None,
    site: ClusterView,
) -> PodRow:
    bound = pod.spec.node_name
    node = promise.node if promise else bound or None
    is_left_over = promise is not None and bound not in ("", promise.node)
    accounted = promise is not None or is_accounted_elsewhere(pod, blind=site.blind)
    return PodRow(
        namespace=pod.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        state=PodState.ENDED if is_left_over else state_of(pod, promised=accounted),
        asked=None
        if pod_request is None
        else tuple(map(_container_request_row, pod_request.containers)),
        profile=None if pod_request is None else pod_request.profile,
        devices=assigned_devices(pod) if site.blind else _devices(promise, site),
        node=node,
        since=None if promise is None else promise.entry.since,
        created=pod.metadata.creation_timestamp,
        mode=marks.mode,
        mode_source=None if marks.source is None else str(marks.source),
        scheduler=pod.spec.scheduler_name or None,
        decision=marks.digest or None,
    )


def _gone_row(promise: _Promise, site: ClusterView) -> PodRow:
    entry = promise.entry
    return PodRow(
        namespace=entry.namespace,
        name=entry.pod,
        uid=entry.uid,
        state=PodState.GONE,
        asked=None,
        devices=_devices(promise, site),
        node=promise.node,
        since=entry.since,
    )


def _container_request_row(container_request: ContainerRequest) -> ContainerRequestRow:
    return ContainerRequestRow(
        container=container_request.name,
        count=container_request.count,
        memory_mib=container_request.memory,
        memory_percent=container_request.percent,
        cores_percent=container_request.cores,
    )


def _devices(promise: _Promise | None, site: ClusterView) -> tuple[DeviceRow, ...]:
    if promise is None:
        return ()
    indexes = {gpu.uuid: gpu.index for gpu in site.ledgers[promise.node].node.gpus}
    return tuple(
        device_row(container, grant, indexes)
        for container in promise.entry.containers
        for grant in container.grants
    )


def pod_listing(rows: Sequence[PodRow], now: datetime, *, spaces: bool) -> Listing:
    """Return pods as a listing; *spaces* puts their namespaces first."""
    return Listing(
        kind="PodList",
        row=PodRow,
        columns=(SPACE, *COLUMNS) if spaces else COLUMNS,
        wide=WIDE,
        rows=rows,
        cells=[_cells(row, now, spaces=spaces) for row in rows],
        created=[_created_at(row) for row in rows],
    )


def _created_at(row: PodRow) -> datetime | None:
    """Return when a pod was created, or when it got its promise where it is gone."""
    return row.created or row.since


def _cells(row: PodRow, now: datetime, *, spaces: bool) -> tuple[str, ...]:
    gpus = ",".join(dict.fromkeys(word(device.gpu) for device in row.devices))
    wide_texts = (row.mode, row.mode_source, row.scheduler, row.decision)
    return (
        *((row.namespace,) if spaces else ()),
        row.name,
        str(row.state),
        UNKNOWN if row.asked is None else _asked_text(row),
        _given_text(row),
        _place_text(row),
        age(_created_at(row), now),
        *(word(text) if text else NONE for text in wide_texts),
        gpus or NONE,
    )


def _asked_text(row: PodRow) -> str:
    return "+".join(_ask_text(ask_row, row.profile) for ask_row in row.asked or ()) or NONE


def _ask_text(ask_row: ContainerRequestRow, profile: str | None) -> str:
    if ask_row.memory_mib is not None:
        memory = f"{ask_row.memory_mib}Mi"
    elif ask_row.memory_percent is not None:
        memory = f"{ask_row.memory_percent}%mem"
    else:
        memory = "whole" if profile is None else word(profile)
    return _times(ask_row.count) + memory + _cores(ask_row.cores_percent)


def _given_text(row: PodRow) -> str:
    """Return what was promised, with equal grants counted."""
    counts: dict[str, int] = {}
    for device in row.devices:
        text = device.profile or f"{device.memory_mib}Mi{_cores(device.cores_percent)}"
        counts[text] = counts.get(text, 0) + 1
    return "+".join(f"{_times(count)}{text}" for text, count in counts.items()) or NONE


def _times(count: int) -> str:
    return "" if count == 1 else f"{count}x"


def _cores(percent: int) -> str:
    return f"/{percent}%" if percent else ""


def _place_text(row: PodRow) -> str:
    """Return the node and the indexes of its GPUs."""
    if row.node is None:
        return NONE
    indexes = sorted({d.index for d in row.devices if d.index is not None})
    return f"{row.node}/{','.join(map(str, indexes))}" if indexes else row.node
