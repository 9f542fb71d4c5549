"""Pages that must say what the code does."""

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from itertools import groupby
from pathlib import Path
from typing import assert_never

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from agent.doctor.checks import DRIVER_FLOOR, SEVERAL_INSTANCES, TOOLKIT_FLOOR
from agent.health.xid import XIDS, Xid
from agent.monitor.metric_names import OLD, OURS
from agent.monitor.metrics import AgentMetrics
from allocator.catalog.injection import (
    MOST_DEVICES,
    MOUNTS,
    VARIABLES,
    Annotation,
    Column,
    Field,
    Form,
    Literal,
    LiteralOrField,
)
from allocator.catalog.reserved_paths import RESERVED_PATHS
from allocator.config.settings import ScoreWeights, Settings
from allocator.ledger.schema import MOST_ENTRIES
from allocator.model.decision import Reason
from allocator.model.request import MOST_CONTAINERS, Mode
from allocator.model.units import MiB
from allocator.scheduling.capacity import FreeCapacity
from allocator.volcano.scheduler_samples import FAMILIES
from console.receive.console_metrics import ConsoleMetrics
from webhook.records.waiting_controller import WaitingFigure
from webhook.serve.metrics import WebhookMetrics

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]
PACKAGES = (
    "agent",
    "allocator",
    "benchmarks",
    "certs",
    "console",
    "demo",
    "kube",
    "manifests",
    "webhook",
)
CITED = re.compile(r"[\w./-]+\.md\b")


def cell(form: Form | None) -> str:
    match form:
        case None:
            return ""
        case Literal(text):
            return f"`{text}`" if text else "empty"
        case Annotation(suffix):
            return f"*{suffix}*"
        case Field(path):
            return f"`{path}`"
        case LiteralOrField(literal, otherwise):
            other = f", else *{otherwise.suffix}*" if otherwise.suffix else ""
            return f"`{literal.text}`{other}"
        case _:
            assert_never(form)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def variables() -> str:
    rows = (
        [f"`{row.name}`", *(cell(row.forms.get(column)) for column in Column), row.why]
        for row in VARIABLES
    )
    return table(["variable", *Column, "why"], rows)


def mounts() -> str:
    rows = (
        [
            str(column),
            f"`{mount.path}`",
            mount.volume,
            f"`{mount.sub_path or mount.sub_path_expr}`",
            "read-only" if mount.read_only else "writable",
        ]
        for column, found in MOUNTS.items()
        for mount in found
    )
    return table(["column", "mounted at", "volume", "sub-path", ""], rows)


def agent_metrics() -> str:
    rows = ([f"`{f.name}`", ", ".join(f"`{n}`" for n in f.labels), f.about] for f in OURS)
    return table(["name", "labels", "what"], rows)


def control_plane_metrics() -> str:
    instruments = WebhookMetrics(version="")
    instruments.set_certificate_expiry(0)
    # Without a sample a family does not tell its labels.
    instruments.set_drift("", 0)
    instruments.failure_counter("")()
    instruments.synced.labels("").set(0)
    instruments.leader.set_capacity(FreeCapacity(largest={(Mode.MIG, ""): MiB(0)}, stranded=MiB(0)))
    instruments.leader.set_waiting({("", ""): WaitingFigure(0, 0.0)})
    return metrics_table(instruments.registry)


def console_metrics() -> str:
    instruments = ConsoleMetrics(version="")
    instruments.count_batch(HTTPStatus.OK)
    instruments.observe_request(200, 0)
    instruments.set_watches({"": 0})
    return metrics_table(instruments.registry)


def metrics_table(registry: CollectorRegistry) -> str:
    rows = (
        [
            f"`{family.name}_total`" if family.type == "counter" else f"`{family.name}`",
            family.type,
            ", ".join(label_cells(family)),
            family.documentation,
        ]
        for family in sorted(registry.collect(), key=lambda family: family.name)
    )
    return table(["name", "type", "labels", "what"], rows)


def label_cells(family: Metric) -> Iterator[str]:
    """Yield the labels, each with its values where they are few and known from the start."""
    for label in family.samples[0].labels:
        values = {sample.labels.get(label, "") for sample in family.samples} - {""}
        if label != "le":
            few = 1 < len(values) < len(Reason)
            yield f"`{label}` ({', '.join(sorted(values))})" if few else f"`{label}`"


def volcano_metrics() -> str:
    rows = ([f"`{f.name}`", ", ".join(f"`{n}`" for n in f.labels)] for f in (*FAMILIES, *OLD))
    return table(["name", "labels"], rows)


def xids() -> str:
    alike = groupby(sorted(XIDS.values(), key=meaning, reverse=True), key=meaning)
    rows = (
        [", ".join(map(str, sorted(xid.number for xid in same))), title, verdict, source]
        for (verdict, source, title), same in alike
    )
    return table(["XID", "what", "out of service", "source"], rows)


def meaning(xid: Xid) -> tuple[str, str, str]:
    return xid.verdict.value, xid.source, xid.title


@pytest.mark.parametrize(
    ("file", "name", "rendered"),
    [
        pytest.param("injection.md", "variables", variables(), id="variables"),
        pytest.param("injection.md", "mounts", mounts(), id="mounts"),
        pytest.param("enforcement.md", "agent metrics", agent_metrics(), id="agent-metrics"),
        pytest.param("health.md", "xids", xids(), id="xids"),
        pytest.param(
            "observability.md",
            "control plane metrics",
            control_plane_metrics(),
            id="control-plane-metrics",
        ),
        pytest.param(
            "observability.md", "console metrics", console_metrics(), id="console-metrics"
        ),
        pytest.param(
            "observability.md", "volcano metrics", volcano_metrics(), id="volcano-metrics"
        ),
    ],
)
def test_a_page_shows_the_table_that_the_code_goes_by(
    file: str, name: str, rendered: str, *, request: pytest.FixtureRequest
) -> None:
    """The table in the docs is the code's own data; --update-golden writes it anew."""
    page = DOCS / file
    marked = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if request.config.getoption("--update-golden"):
        page.write_text(marked.sub(lambda m: m[1] + rendered + m[2], page.read_text()))

    found = marked.search(page.read_text())
    assert found is not None
    assert found[0] == f"<!-- table: {name} -->\n{rendered}<!-- end -->"


def test_every_metric_on_a_page_exists() -> None:
    """A query for a name that nobody exports answers nothing, for ever."""
    ours = {family.name for family in (*OURS, *OLD, *FAMILIES)}
    agents = AgentMetrics(version="", snapshot=lambda: None, hung=lambda: 0.0, old=lambda: True)
    exposed = re.findall(r"(?m)^# TYPE (\w+)", agents.exposition()[1].decode())
    tables = control_plane_metrics() + console_metrics()
    known = {*ours, *exposed, *re.findall(r"(?m)^\| `(\w+)` \|", tables)}

    named = {
        (page.name, re.sub("_(bucket|sum|count)$", "", name))
        for page in PAGES
        for name in re.findall(r"\bv(?:olcano_v)?gpu_[a-z_]+[a-z]\b", page.read_text())
    }
    assert len(named) > 50
    assert sorted((page, name) for page, name in named if name not in known) == []


def test_every_event_has_a_row() -> None:
    """The reason is what a person searches for."""
    sources = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
    text = "".join(path.read_text() for path in sources if path.parts[-2] != "benchmarks")
    words = set(re.findall(r'"((?:Certificate|Gpu|Mig|Vgpu)[A-Z][A-Za-z]+)"', text))
    page = (DOCS / "observability.md").read_text()

    kinds = {"GpuList", "GpuUseList"}  # of documents
    events = words - kinds - ({*map(str, Reason)} - {"GpuUnhealthy"})
    rows = re.findall(r"(?m)^\| `([A-Z]\w+)` \| (?:Normal|Warning) \|", page)
    assert sorted(rows) == sorted(events)


def test_every_reserved_path_is_named() -> None:
    """A tenant who is refused finds the path."""
    page = (DOCS / "injection.md").read_text()

    assert [path.path for path in RESERVED_PATHS if f"`{path.path}`" not in page] == []


def test_every_reason_is_documented_with_an_example() -> None:
    """A code in brackets that cannot be looked up explains nothing."""
    rows = dict(re.findall(r"(?m)^\| `(\w+)` \|.*\| `(.+)` \|$", (DOCS / "reasons.md").read_text()))

    assert set(rows) == {str(reason) for reason in Reason}
    assert all("; " in example or ": " in example for example in rows.values())


def test_every_setting_is_documented_with_its_default() -> None:
    """The page and the ConfigMap that is shipped name each key."""
    page = (DOCS / "settings.md").read_text()
    shipped = (ROOT / "manifests/base/settings.yaml").read_text()
    keys = Settings.__struct_encode_fields__

    assert [key for key in keys if f"| `{key}` |" not in page] == []
    assert [key for key in keys if f"{key}:" not in shipped] == []
    weights = msgspec.structs.asdict(ScoreWeights())
    assert f"| `scoreWeights` | `{{{', '.join(weights)}}}`" in page
    defaults = ", ".join(f"{name}: {weight}" for name, weight in weights.items())
    assert f"scoreWeights: {{{defaults}}}" in shipped


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of *page*."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """No page points at a file or a heading that is not there."""
    broken = []
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


def test_versions_and_bounds_are_those_of_the_code() -> None:
    """A number that has changed in the code only is a wrong number."""
    install, limits = ((DOCS / name).read_text() for name in ("install.md", "limits.md"))

    assert f"driver {DRIVER_FLOOR} or newer" in install
    assert f"Before R{SEVERAL_INSTANCES}" in install
    assert f"toolkit {TOOLKIT_FLOOR} or newer" in install
    assert f"at most {MOST_DEVICES} GPUs" in limits
    assert (
        f"at most {MOST_CONTAINERS} containers, a node at most {MOST_ENTRIES:,} entries" in limits
    )


def test_the_index_has_every_page() -> None:
    """A page that nothing leads to is not read."""
    index = set(re.findall(r"(?m)^\| \[([\w./]+)\]", (ROOT / "README.md").read_text()))
    pages = {str(page.relative_to(ROOT)) for page in PAGES} - {"README.md"}

    assert index == {*pages, "CONTRIBUTING.md"}


def test_the_glossary_can_be_searched() -> None:
    """Each word stands once, in the order of the alphabet."""
    glossary = (DOCS / "concepts.md").read_text().partition("## Glossary")[2]
    words = re.findall(r"(?m)^\| ([^|]+?) \|", glossary)[1:]

    assert len(words) > 30
    assert words == sorted(set(words), key=str.lower)


def test_code_cites_only_pages_of_this_repository() -> None:
    """A citation that cannot be followed explains nothing."""
    sources = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
    cited = {(path.name, page) for path in sources for page in CITED.findall(path.read_text())}

    assert "docs/design.md" in {page for _, page in cited}
    assert [(name, page) for name, page in sorted(cited) if not (ROOT / page).exists()] == []


def test_code_cites_rules_that_the_design_has() -> None:
    """The numbers in comments are those of the headings."""
    sources = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
    text = " ".join(" ".join(path.read_text().split()) for path in sources)
    cited = re.findall(r"docs/design\.md, commit rules? (\d)(?: and (\d))?", text)
    headings = re.findall(r"(?m)^### Commit rule (\d):", (DOCS / "design.md").read_text())

    assert headings == [str(number) for number in range(1, 8)]
    assert {number for pair in cited for number in pair if number} <= set(headings)
    assert cited


def test_the_guide_for_contributors_names_what_there_is() -> None:
    """A path with a folder stands for itself, and one without for a file of the same list."""
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|md|toml))`", guide)

    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []
    for folder in re.findall(r"^  (\w+/) ", guide, re.MULTILINE):
        assert list(ROOT.glob(f"*/{folder}")), folder
