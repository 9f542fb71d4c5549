"""The page of pods that exist: what each asks for, what it was given, how far it has come."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from allocator.report.terminal_lines import Tone
from console.cluster.assignment import DeviceRow
from console.cluster.pod import PodState, PodView
from console.cluster.snapshot import ClusterView
from console.explain.headline import TONES
from console.get.pod_rows import ContainerRequestRow, PodRow, pod_rows
from console.pages.parts.blocks import (
    FormField,
    PageBlock,
    PageForm,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
)
from console.pages.parts.cell import TableCell, ago, code, plain, stamp, word
from console.pages.parts.links import decision_address, node_address
from console.pages.parts.visible import sees
from console.records.query import PAGE

COLUMNS: Final = (
    TableColumn(key="pod", title="Pod"),
    TableColumn(key="state", title="State"),
    TableColumn(key="asked", title="Asked", wide=True),
    TableColumn(key="given", title="Given", wide=True),
    TableColumn(key="node", title="Node"),
    TableColumn(key="mode", title="Mode"),
    TableColumn(key="created", title="Created"),
    TableColumn(key="since", title="Promised since"),
    TableColumn(key="decision", title="Decision"),
)
_EMPTY: Final = (
    "No pod that asks for a GPU matches. Pods that are gone are found under Decisions; this pod"
    " asks for a slice:"
)
_COMMAND: Final = "kubectl apply -f manifests/example/pod.yaml"
_MARKS: Final = {PodState.WAITING: "…", PodState.GONE: "□", PodState.ENDED: "□"}


def pods_page(question: PageQuestion, site: ClusterView, pods: Iterable[PodView]) -> PageView:
    """Return the page of pods; *pods* and *site* are what the viewer may see."""
    rows = _rows(question, site, pods)
    after = question.value("after")
    found = list(islice((row for row in rows if _key(row) > after), PAGE + 1))
    shown = found[:PAGE]
    more = question.with_values(after=_key(shown[-1])) if len(found) > PAGE else ""
    table = PageTable(
        name="pods",
        caption="Pods that ask for GPUs, by name",
        columns=COLUMNS,
        rows=tuple(_cells(question, row, limited=site.blind) for row in shown),
        empty=_EMPTY,
        command=_COMMAND,
        more=more,
    )
    return PageView(title="Pods", heading="Pods", blocks=(*_form(question), table), as_of=site.now)


def _key(row: PodRow) -> str:
    """Return by what pods are in order; it is the cursor of a page."""
    return f"{row.namespace}/{row.name}/{row.node or ''}"


def _rows(question: PageQuestion, site: ClusterView, pods: Iterable[PodView]) -> Iterator[PodRow]:
    scope = question.viewer.scope
    wanted = [(key, question.value(key)) for key in ("ns", "state", "node", "pod")]
    found = pod_rows(site, pods, gone=True, namespace=None)
    for row in sorted(found, key=_key):
        values = {
            "ns": row.namespace,
            "state": row.state.lower(),
            "node": row.node or "",
            "pod": row.name,
        }
        matches = all(not text or values[key] == text.lower() for key, text in wanted)
        if matches and sees(scope, row.namespace):
            yield row


def _cells(question: PageQuestion, row: PodRow, *, limited: bool) -> tuple[TableCell, ...]:
    created = "" if row.created is None else stamp(row.created)
    since = "" if row.since is None else stamp(row.since)
    tone = TONES[row.state]
    decision = decision_address(row.decision or "", row.uid)
    return (
        code(f"{row.namespace}/{row.name}", href=decision),
        word(
            row.state.lower(), tone, mark=_MARKS.get(row.state, "→" if tone is Tone.STRONG else "")
        ),
        plain(" + ".join(map(_asked, row.asked or ())), why="it cannot be read any more"),
        plain(_given(row.devices), why="nothing is promised to it"),
        code(row.node or "", href="" if limited else node_address(row.node or ""), why="none yet"),
        code(row.mode or "", why="admission wrote none", note=_source(row)),
        ago(created, question.now, why="the pod is gone"),
        ago(since, question.now, why="nothing is promised to it"),
        code(row.decision or "", href=decision, why="admission did not see it"),
    )


def _source(row: PodRow) -> str:
    return row.mode_source or ""


def _asked(request: ContainerRequestRow) -> str:
    gpus = "" if request.count == 1 else f"{request.count} x "
    if request.memory_mib is not None:
        memory = f"{request.memory_mib:,} MiB"
    elif request.memory_percent is not None:
        memory = f"{request.memory_percent} % of the memory"
    else:
        memory = "all memory"
    cores = f", {request.cores_percent} % compute" if request.cores_percent else ""
    return f"{gpus}{memory}{cores}"


def _given(devices: Sequence[DeviceRow]) -> str:
    texts = []
    for device in devices:
        cores = f", {device.cores_percent} % compute" if device.cores_percent else ""
        what = f"{device.profile} " if device.profile else ""
        gpu = "" if device.index is None else f" on GPU {device.index}"
        texts.append(f"{what}{device.memory_mib:,} MiB{cores}{gpu}")
    return " + ".join(texts)


def _form(question: PageQuestion) -> Iterator[PageBlock]:
    states = (("", "any"), *((state.lower(), state.lower()) for state in PodState))
    yield PageForm(
        name="search",
        title="Search",
        action="/pods",
        fields=(
            FormField(name="ns", label="Namespace", value=question.value("ns")),
            FormField(name="pod", label="Pod", value=question.value("pod")),
            FormField(name="node", label="Node", value=question.value("node")),
            FormField(name="state", label="State", value=question.value("state"), choices=states),
        ),
        submit="Search",
    )
