"""The page of pods that exist: what each asks for, what it was given, how far it has come."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from allocator.report.terminal_lines import Tone
from console.cluster.assignment import DeviceRow
from console.cluster.pod import PodState, PodView
from console.cluster.snapshot import ClusterView, entries_in_use
from console.explain.headline import TONES
from console.get.pod_rows import ContainerRequestRow, PodRow, pod_rows
from console.languages.messages import joined_text, message
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
from console.pages.parts.words import asked_amounts, compute_text, pod_state_text
from console.records.query import PAGE, BadCursorError

COLUMNS: Final = (
    TableColumn(key="pod", title=message("Pod")),
    TableColumn(key="state", title=message("State")),
    TableColumn(key="asked", title=message("Asked"), wide=True),
    TableColumn(key="given", title=message("Given"), wide=True),
    TableColumn(key="node", title=message("Node")),
    TableColumn(key="mode", title=message("Mode")),
    TableColumn(key="created", title=message("Created")),
    TableColumn(key="since", title=message("Promised since")),
    TableColumn(key="decision", title=message("Decision")),
)
_EMPTY: Final = message(
    "No pod that asks for a GPU matches. Pods that are gone are found under "
    "Decisions; this pod asks for a slice:"
)
_COMMAND: Final = "kubectl apply -f manifests/example/pod.yaml"
_SOURCES: Final[Mapping[str, str]] = {
    "named": message("named"),
    "only": message("only"),
    "best": message("best"),
}
_MARKS: Final = {PodState.WAITING: "…", PodState.GONE: "□", PodState.ENDED: "□"}


def pods_page(question: PageQuestion, site: ClusterView, pods: Iterable[PodView]) -> PageView:
    """Return the page of pods; *pods* and *site* are what the viewer may see."""
    after = _cursor(question.value("after"))
    found = list(islice(_rows(question, site, pods, after=after), PAGE + 1))
    shown = found[:PAGE]
    more = question.with_values(after="/".join(_key(shown[-1]))) if len(found) > PAGE else ""
    table = PageTable(
        name="pods",
        caption=message("Pods that ask for GPUs, by name"),
        columns=COLUMNS,
        rows=tuple(_cells(question, row, limited=site.blind) for row in shown),
        empty=_EMPTY,
        command=_COMMAND,
        more=more,
    )
    return PageView(
        title=message("Pods"),
        heading=message("Pods"),
        blocks=(*_form(question), table),
        as_of=site.now,
    )


Key = tuple[str, ...]  # namespace, name, uid and node: by what pods are in order


def _key(row: PodRow) -> Key:
    return row.namespace, row.name, row.uid, row.node or ""


def _cursor(text: str) -> Key:
    """Return the key after which a page begins; raises :class:`BadCursorError`."""
    parts = tuple(text.split("/")) if text else ()
    if len(parts) not in (0, 4):
        raise BadCursorError(text)
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A pod that exists, or of which an entry is left, before its row is made."""

    namespace: str
    name: str
    uid: str
    pod: PodView | None = None

    @property
    def key(self) -> Key:
        """Return the beginning of the keys of its rows."""
        return self.namespace, self.name, self.uid


def _rows(
    question: PageQuestion, site: ClusterView, pods: Iterable[PodView], *, after: Key
) -> Iterator[PodRow]:
    """Yield the rows that follow *after*; one costs more than a name, so few are made at a time."""
    nodes: dict[str, set[str]] = {}  # with an entry of a pod, by its uid
    candidates: dict[str, _Candidate] = {}
    for name, ledger in site.ledgers.items():
        for entry in entries_in_use(ledger):
            nodes.setdefault(entry.uid, set()).add(name)
            candidates[entry.uid] = _Candidate(
                namespace=entry.namespace, name=entry.pod, uid=entry.uid
            )
    for pod in pods:
        candidates[pod.metadata.uid] = _Candidate(
            namespace=pod.namespace, name=pod.metadata.name, uid=pod.metadata.uid, pod=pod
        )
    wanted = sorted(
        (
            one
            for one in candidates.values()
            if _is_asked_for(question, one) and one.key >= after[:3]
        ),
        key=lambda one: one.key,
    )
    for begin in range(0, len(wanted), PAGE):
        part = wanted[begin : begin + PAGE]
        names = sorted({name for one in part for name in nodes.get(one.uid, ())})
        near = replace(site, ledgers={name: site.ledgers[name] for name in names})
        uids = {one.uid for one in part}
        existing = [one.pod for one in part if one.pod is not None]
        rows = sorted(pod_rows(near, existing, gone=True, namespace=None), key=_key)
        yield from (
            row
            for row in rows
            if row.uid in uids and _key(row) > after and _is_shown(question, row)
        )


def _is_asked_for(question: PageQuestion, one: _Candidate) -> bool:
    """Say whether a pod matches by what is known before its row, and may be seen."""
    namespace, name = question.value("ns"), question.value("pod")
    return (
        sees(question.viewer.scope, one.namespace)
        and namespace in ("", one.namespace)
        and name in ("", one.name)
    )


def _is_shown(question: PageQuestion, row: PodRow) -> bool:
    state, node = question.value("state"), question.value("node")
    return state.lower() in ("", row.state.lower()) and node in ("", row.node)


def _cells(question: PageQuestion, row: PodRow, *, limited: bool) -> tuple[TableCell, ...]:
    created = "" if row.created is None else stamp(row.created)
    since = "" if row.since is None else stamp(row.since)
    tone = TONES[row.state]
    decision = decision_address(row.decision or "", row.uid)
    return (
        code(f"{row.namespace}/{row.name}", href=decision),
        word(
            pod_state_text(row.state),
            tone,
            mark=_MARKS.get(row.state, "→" if tone is Tone.STRONG else ""),
        ),
        plain(
            joined_text(" + ", map(_asked, row.asked or ())),
            why=message("it cannot be read any more"),
        ),
        plain(_given(row.devices), why=message("nothing is promised to it")),
        code(
            row.node or "",
            href="" if limited else node_address(row.node or ""),
            why=message("none yet"),
        ),
        code(row.mode or "", why=message("admission wrote none"), note=_source(row)),
        ago(created, question.now, why=message("the pod is gone")),
        ago(since, question.now, why=message("nothing is promised to it")),
        code(row.decision or "", href=decision, why=message("admission did not see it")),
    )


def _source(row: PodRow) -> str:
    source = row.mode_source or ""
    return _SOURCES.get(source, source)


def _asked(request: ContainerRequestRow) -> str:
    return asked_amounts(
        count=request.count,
        memory_mib=request.memory_mib,
        memory_percent=request.memory_percent,
        cores_percent=request.cores_percent,
    )


def _given(devices: Sequence[DeviceRow]) -> str:
    texts = []
    for device in devices:
        what = f"{device.profile} " if device.profile else ""
        parts = [f"{what}{device.memory_mib:,} MiB", compute_text(device.cores_percent)]
        text = joined_text(", ", filter(None, parts))
        if device.index is not None:
            text = message("{device} on GPU {index}", device=text, index=device.index)
        texts.append(text)
    return joined_text(" + ", texts)


def _form(question: PageQuestion) -> Iterator[PageBlock]:
    states = (("", message("any")), *((state.lower(), pod_state_text(state)) for state in PodState))
    yield PageForm(
        name="search",
        title=message("Search"),
        action="/pods",
        fields=(
            FormField(name="ns", label=message("Namespace"), value=question.value("ns")),
            FormField(name="pod", label=message("Pod"), value=question.value("pod")),
            FormField(name="node", label=message("Node"), value=question.value("node")),
            FormField(
                name="state", label=message("State"), value=question.value("state"), choices=states
            ),
        ),
        submit=message("Search"),
    )
