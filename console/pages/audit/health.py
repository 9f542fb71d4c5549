"""The page of health: what is stored, who sends, what is out of service, which settings hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Final

from allocator.audit.record import CertificateRecord, SettingsRecord
from allocator.report.terminal_lines import Tone
from console.cluster.snapshot import ClusterView
from console.get.node_rows import node_rows
from console.languages.messages import NOTHING, joined_text, message
from console.pages.audit.settings import CONFIGMAP
from console.pages.parts.blocks import (
    PageBlock,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
)
from console.pages.parts.cell import TableCell, ago, code, plain, time_of, unknown, word
from console.pages.parts.life import with_end
from console.pages.parts.links import node_address
from console.pages.parts.words import UNRECORDED
from console.records.rows import StoredRecord, StoreFigures

QUIET: Final = timedelta(minutes=15)  # after which a component is said to be quiet
MOST_NODES: Final = 200
COLUMNS: Final = (
    TableColumn(key="check", title=message("Check")),
    TableColumn(key="state", title=message("State")),
    TableColumn(key="evidence", title=message("Evidence"), wide=True),
    TableColumn(key="since", title=message("When")),
    TableColumn(key="command", title=message("To look closer"), wide=True),
)
NODES: Final = (
    TableColumn(key="node", title=message("Node")),
    TableColumn(key="state", title=message("State")),
    TableColumn(key="why", title=message("Why"), wide=True),
    TableColumn(key="gpus", title=message("Healthy GPUs")),
    TableColumn(key="driver", title=message("Driver")),
)
_COMPONENTS: Final = {
    "webhook": message("Records of webhooks"),
    "agent": message("Records of agents"),
}
_SYSTEM: Final = "kubectl -n vgpu-admission-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """What the page is made from; records are the latest first."""

    figures: StoreFigures
    last_record: Mapping[str, str]  # by component
    certificates: Sequence[StoredRecord]
    settings: Sequence[StoredRecord]
    site: ClusterView | None
    measured: bool  # a Prometheus is configured


def health_page(question: PageQuestion, facts: HealthFacts) -> PageView:
    """Return the page of health."""
    return PageView(
        title=message("Health"),
        heading=message("Health"),
        blocks=tuple(_blocks(question, facts)),
        as_of=question.now,
    )


def _blocks(question: PageQuestion, facts: HealthFacts) -> Iterator[PageBlock]:
    yield PageTable(
        name="checks",
        caption=message("Checks"),
        columns=COLUMNS,
        rows=tuple(_checks(question, facts)),
    )
    if facts.site is not None:
        yield _nodes(facts.site)


def _checks(question: PageQuestion, facts: HealthFacts) -> Iterator[tuple[TableCell, ...]]:
    for component in _COMPONENTS:
        yield _component(question, component, facts.last_record.get(component, ""))
    yield _store(question, facts.figures)
    yield _certificate(question, facts.certificates)
    yield _settings(question, facts.settings)
    yield from _objects(question, facts.site)
    measured = (
        word(message("asked"), Tone.GOOD) if facts.measured else word(message("none"), Tone.PLAIN)
    )
    yield (
        plain("Prometheus"),
        measured,
        plain(
            message("what is used is known")
            if facts.measured
            else message("what is used is not known")
        ),
        unknown(message("a setting has no time")),
        unknown(message("there is nothing to look at")),
    )


def _component(question: PageQuestion, component: str, last: str) -> tuple[TableCell, ...]:
    moment = time_of(last)
    target = "deployment/vgpu-webhook" if component == "webhook" else "daemonset/vgpu-agent"
    system = _SYSTEM if component == "webhook" else "kubectl -n vgpu-admission-agents"
    if moment is None:
        state, evidence = word(message("silent"), Tone.WARN), message("no record of it is stored")
    elif question.now - moment > QUIET:
        state, evidence = (
            word(message("quiet"), Tone.PLAIN),
            message("it has sent no record for a while"),
        )
    else:
        state, evidence = word(message("heard"), Tone.GOOD), message("its records arrive")
    return (
        plain(_COMPONENTS[component]),
        state,
        plain(evidence),
        ago(last, question.now, why=message("never")),
        code(f"{system} logs {target}"),
    )


def _store(question: PageQuestion, figures: StoreFigures) -> tuple[TableCell, ...]:
    size = figures.size / 1024**2
    text = message(
        "{records:,} records of {decisions:,} decisions in {size:,.1f} MiB",
        records=figures.records,
        decisions=figures.decisions,
        size=size,
    )
    return (
        plain(message("Store of records")),
        word(message("readable"), Tone.GOOD),
        plain(text),
        ago(figures.oldest, question.now, why=message("it is empty")),
        code("kubectl vgpu records"),
    )


def _certificate(question: PageQuestion, records: Sequence[StoredRecord]) -> tuple[TableCell, ...]:
    found = [s.record for s in records if isinstance(s.record, CertificateRecord)]
    state, text, when = unknown(UNRECORDED), NOTHING, ""
    if found:
        last = found[0]
        end = time_of(last.not_after)
        expired = end is not None and end <= question.now
        bad = expired or not last.done
        words = message("issued") if last.done else message("failing")
        if expired:
            words = message("expired")
        state = word(words, Tone.BAD if bad else Tone.GOOD)
        text = with_end(last)
        when = last.at
    return (
        plain(message("Certificates")),
        state,
        plain(text, why=message("no certificate is recorded")),
        ago(when, question.now, why=UNRECORDED),
        code(f"{_SYSTEM} get secrets"),
    )


def _settings(question: PageQuestion, records: Sequence[StoredRecord]) -> tuple[TableCell, ...]:
    found = [s.record for s in records if isinstance(s.record, SettingsRecord)]
    state, text, when, href = unknown(UNRECORDED), "", "", ""
    if found:
        last = found[0]
        state = (
            word(message("in force"), Tone.GOOD)
            if last.accepted
            else word(message("rejected"), Tone.BAD)
        )
        text = f"{last.configmap} {last.content_digest}"
        when, href = last.at, f"/settings#{last.content_digest}"
    return (
        plain(message("Settings")),
        state,
        plain(text, href=href, why=message("no settings are recorded")),
        ago(when, question.now, why=UNRECORDED),
        code(f"{_SYSTEM} get configmap {CONFIGMAP} -o yaml"),
    )


def _objects(question: PageQuestion, site: ClusterView | None) -> Iterator[tuple[TableCell, ...]]:
    if site is None:
        state, when = word(message("not read yet"), Tone.WARN), ""
        text = message("nodes and pods are being read")
    elif site.unreadable:
        state, when = word(message("malformed"), Tone.WARN), site.now.isoformat()
        text = joined_text("; ", site.unreadable[:3])
    else:
        state, when = word(message("read"), Tone.GOOD), site.now.isoformat()
        text = message("{ledgers:,} GPUNodes", ledgers=len(site.ledgers))
    yield (
        plain(message("GPUNodes and Nodes")),
        state,
        plain(text),
        ago(when, question.now, why=message("not yet")),
        code("kubectl get gpunodes.vgpu-admission.io"),
    )


def _needs_attention(site: ClusterView, name: str) -> bool:
    ledger = site.ledgers[name]
    broken = not all(gpu.healthy for gpu in ledger.node.gpus)
    return bool(
        broken or ledger.strangers or site.account(name).exposed or site.closed_reason(name)
    )


def _nodes(site: ClusterView) -> PageTable:
    rows = []
    names = list(islice(filter(partial(_needs_attention, site), site.ledgers), MOST_NODES))
    for row in node_rows(replace(site, ledgers={name: site.ledgers[name] for name in names})):
        why: str = row.out or row.exposed
        if not row.out and row.strangers:
            why = message("{pods} pods without an entry use its GPUs", pods=len(row.strangers))
        state = word(message("out"), Tone.BAD) if row.out else word(message("ready"), Tone.WARN)
        rows.append(
            (
                code(row.name, href=node_address(row.name)),
                state,
                plain(why or message("some of its GPUs are unhealthy")),
                plain(message("{healthy} of {gpus}", healthy=row.healthy, gpus=row.gpus)),
                code(row.driver, why=message("the agent reports none")),
            )
        )
    return PageTable(
        name="nodes",
        caption=message("Nodes that need attention"),
        columns=NODES,
        rows=tuple(rows),
        empty=message("Every node with GPUs is in service."),
    )
