"""Dashboards, alerts and documented queries, asked of a real Prometheus."""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.records.query import EVERYTHING, NOTHING, Scope
from console.use.figures import (
    container_question,
    containers_in_use,
    gpu_question,
    gpus_in_use,
)
from manifests.dashboards.panels import expressions
from tests.harness.debian_packages import METRICS, require
from tests.harness.prometheus import Prometheus, prometheus
from tests.integration.manifests.alert_cases import CASES, RULES_FILE, promtool_document
from tests.integration.manifests.situations import NAMESPACE, NODE, gone, ill, well

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "manifests/monitoring"
CONSOLE = ROOT / "manifests/components/console/console.yaml"
MONITORS = list(yaml.safe_load_all((MONITORING / "podmonitor.yaml").read_text()))
SITUATIONS = {"well": well, "ill": ill, "gone": gone}
# API servers and kubelets are scraped too, by whoever runs the cluster.
OTHERS = {
    "metadata": {"name": "others"},
    "spec": {"podMetricsEndpoints": [{"honorLabels": True, "path": "/metrics", "relabelings": []}]},
}
SCRAPES = 8  # before anything is asked: rates need several
WITHIN = 60.0  # seconds
RULES = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
# What nobody can complain of any more where nothing answers.
OF_SILENCE = frozenset({"VgpuAdmissionDown", "VgpuAgentDown", "VgpuConsoleDown"})
PANELS = [
    pytest.param(expression, id=f"{path.stem}-{title}")
    for path in sorted((MONITORING / "dashboards").glob("*.json"))
    for title, expression in expressions(json.loads(path.read_text()))
]
QUERIES = re.findall(
    r"(?m)^\| [^|]+ \| `([^`]*vgpu_[^`]*)` \|$",
    "".join((ROOT / "docs" / page).read_text() for page in ("observability.md", "grafana.md")),
)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Prometheus]]:
    """Yield a Prometheus for each situation, once each has enough samples."""
    require(METRICS)
    with contextlib.ExitStack() as stack:
        running = {}
        for name, targets in SITUATIONS.items():
            folder = tmp_path_factory.mktemp(name)
            running[name] = stack.enter_context(prometheus(folder, [*MONITORS, OTHERS], targets()))
        for each in running.values():
            _wait_for_samples(each)
        yield running


def _wait_for_samples(running: Prometheus) -> None:
    until = time.monotonic() + WITHIN
    while time.monotonic() < until:
        counts = [count for _, count in running.query("count_over_time(up[5m])")]
        if counts and min(counts) >= SCRAPES:
            return
        time.sleep(0.5)
    raise AssertionError(f"not scraped within {WITHIN:g} s")


def filled(expression: str) -> str:
    """Return *expression* as Grafana sends it."""
    values = {"node": NODE, "namespace": NAMESPACE, "__rate_interval": "1m"}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expression)


@pytest.mark.parametrize("expression", PANELS)
def test_every_panel_shows_something(expression: str, clusters: Mapping[str, Prometheus]) -> None:
    """What a panel asks for is exported, with the labels that it goes by."""
    assert clusters["ill"].query(filled(expression)) != []


@pytest.mark.parametrize("expression", QUERIES)
def test_every_query_on_a_page_answers(expression: str, clusters: Mapping[str, Prometheus]) -> None:
    """It is pasted as it stands."""
    assert clusters["ill"].query(expression) != []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_what_is_wrong_and_nothing_else(
    rule: dict[str, Any], clusters: Mapping[str, Prometheus]
) -> None:
    """It finds its trouble, and is silent where all is well."""
    bad = "gone" if rule["alert"] in OF_SILENCE else "ill"

    assert clusters["well"].query(rule["expr"]) == []
    found = clusters[bad].query(rule["expr"])
    assert found != []
    texts = " ".join(rule["annotations"].values())
    for label in re.findall(r"\$labels\.(\w+)", texts):
        assert all(label in labels for labels, _ in found), label


def test_labels_of_a_target_hide_none_of_an_exporter(clusters: Mapping[str, Prometheus]) -> None:
    """`namespace` and `pod` are those of a tenant, and `instance` is a node or a pod."""
    held = clusters["well"].query("vgpu_container_memory_limit_bytes")
    decided = clusters["well"].query("vgpu_admission_decisions_total")
    names = {labels["__name__"] for labels, _ in clusters["well"].query('{__name__=~".+"}')}

    assert {labels["namespace"] for labels, _ in held} == {NAMESPACE}
    assert {labels["instance"] for labels, _ in held} == {NODE}
    assert {labels.get("namespace", "") for labels, _ in decided} == {"", NAMESPACE}
    assert {labels["instance"] for labels, _ in decided} == {"vgpu-webhook-a", "vgpu-webhook-b"}
    assert not any("exported_" in label for labels, _ in held for label in labels)
    assert "vgpu_build_info" in names


def test_variables_of_dashboards_have_values(clusters: Mapping[str, Prometheus]) -> None:
    """Each list to choose from is filled by a metric and a label that are there."""
    asked = 0
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        for variable in json.loads(path.read_text())["templating"]["list"]:
            if variable["type"] != "query":
                continue
            asked += 1
            call = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
            assert call is not None
            series = clusters["well"].query(call[1])
            assert series
            assert all(call[2] in labels for labels, _ in series)
    assert asked == 2


def test_the_console_reads_what_prometheus_answers(clusters: Mapping[str, Prometheus]) -> None:
    """`kubectl vgpu top` rests on these questions, and a scope bounds them."""
    running, team = clusters["well"], Scope(namespaces=frozenset({NAMESPACE}))
    of_gpus = gpu_question(EVERYTHING)
    assert of_gpus is not None

    for scope in (EVERYTHING, team):
        answer = running.read("/api/v1/query", query=container_question(scope))
        found = {use.pod: use for use in containers_in_use(answer, scope, time.time())}
        assert found["train-0"].promised_mib == 8192
        assert found["train-0"].used_mib == 3072
        assert found["train-0"].node == NODE
        assert found["train-1"].used_mib is None
    nobody = running.read("/api/v1/query", query=container_question(NOTHING))
    assert nobody["result"] == []
    gpus = gpus_in_use(running.read("/api/v1/query", query=of_gpus), EVERYTHING)
    assert [(gpu.node, gpu.device, gpu.mode) for gpu in gpus] == [
        (NODE, "0", "hami-core"),
        (NODE, "1", "mig"),
        (NODE, "2", "mps"),
    ]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    require(METRICS)
    return subprocess.run(
        ["promtool", *arguments], cwd=MONITORING, capture_output=True, check=False, text=True
    )


def test_rules_are_what_promtool_accepts() -> None:
    """A file with a mistake would load no rule at all."""
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES_FILE)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_on_the_page_is_one_of_prometheus(tmp_path: Path) -> None:
    """It is pasted by whoever has no operator, and does what the PodMonitors do."""
    page = (ROOT / "docs/grafana.md").read_text()
    (text,) = re.findall(r"(?ms)^```yaml\n(scrape_configs:.*?)^```$", page)
    document = yaml.safe_load(text)
    (job,) = document["scrape_configs"]
    kept = job["relabel_configs"][0]["regex"].split("|")
    # Debian builds Prometheus without the discovery of Kubernetes, so that part is not checked.
    (discovery,) = job.pop("kubernetes_sd_configs")
    spaces = discovery["namespaces"]["names"]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(document))

    done = promtool("check", "config", "--lint=none", str(file))

    assert done.returncode == 0, done.stdout + done.stderr
    assert set(spaces) == {monitor["metadata"]["namespace"] for monitor in MONITORS}
    assert set(kept) == {
        f"{monitor['spec']['selector']['matchLabels']['app.kubernetes.io/component']};"
        f"{monitor['spec']['podMetricsEndpoints'][0]['port']}"
        for monitor in MONITORS
    }


def test_monitors_find_the_ports_that_pods_have() -> None:
    """A port without that name would never be scraped, and nothing would say so."""
    ports = {}
    for path in [*sorted((ROOT / "manifests/base").glob("*.yaml")), CONSOLE]:
        for item in yaml.safe_load_all(path.read_text()):
            if item.get("kind") in ("Deployment", "DaemonSet"):
                template = item["spec"]["template"]
                component = template["metadata"]["labels"]["app.kubernetes.io/component"]
                ports[component, item["metadata"]["namespace"]] = {
                    port["name"]
                    for container in template["spec"]["containers"]
                    for port in container.get("ports", ())
                }

    for monitor in MONITORS:
        component = monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in ports[component, monitor["metadata"]["namespace"]]
    assert len(MONITORS) == 3


def test_alerts_fire_at_their_time_and_say_what_is_wrong(tmp_path: Path) -> None:
    """Neither before, nor where nothing is wrong; the texts are those that a person reads."""
    by_name = {rule["alert"]: rule for rule in RULES}
    file = tmp_path / "cases.yaml"
    file.write_text(yaml.safe_dump(promtool_document(by_name, str(MONITORING / RULES_FILE))))

    done = promtool("test", "rules", str(file))

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    """An alert without a case would be no more than a hope."""
    assert sorted(case.alert for case in CASES) == sorted(rule["alert"] for rule in RULES)
    assert all(case.calm for case in CASES)
