"""Alert rules that a person can act on."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from agent.monitor.metric_names import OURS
from agent.monitor.metrics import AgentMetrics
from allocator.model.units import MiB
from allocator.scheduling.capacity import FreeCapacity
from console.receive.console_metrics import ConsoleMetrics
from manifests.generator.names import Json
from manifests.generator.registrations import registrations
from webhook.serve.metrics import WebhookMetrics

PLACEHOLDER = "https://vgpu-admission.example"
FILE = Path(__file__).parents[3] / "manifests/monitoring/alerts.yaml"
RULES = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: Json) -> None:
    """Severity routes it; summary and description are what the person who is paged reads."""
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"]
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_alerts_about_hooks_match_every_hook() -> None:
    """The pattern in the rules covers each name that the registrations give."""
    patterns = {p for rule in RULES for p in re.findall(r'name=~"([^"]+)"', rule["expr"])}
    names = [entry["name"] for config in registrations() for entry in config["webhooks"]]

    (pattern,) = patterns
    assert [name for name in names if not re.fullmatch(pattern, name)] == []


def test_alerts_ask_for_metrics_that_exist() -> None:
    """A misspelt name would never fire."""
    asked = {name for rule in RULES for name in re.findall(r"\bvgpu_\w+", rule["expr"])}
    metrics = WebhookMetrics(version="0")
    metrics.set_certificate_expiry(1.0)
    metrics.leader.set_capacity(FreeCapacity(largest={}, stranded=MiB(0)))
    metrics.leader.set_waiting({})
    agent = AgentMetrics(version="0", snapshot=lambda: None, hung=lambda: 0.0, old=lambda: False)
    texts = (generate_latest(metrics.registry), agent.exposition()[1])
    exposed = b"".join((*texts, ConsoleMetrics(version="0").text()[1])).decode()
    known = {family.name for family in OURS}
    known |= set(re.findall(r"(?m)^# TYPE (\w+) ", exposed))

    assert asked
    assert {name.removesuffix("_bucket") for name in asked} <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_runbook_that_begins_with_a_command(rule: Json) -> None:
    """Whoever is paged finds the section, and in it first what to run."""
    page = (FILE.parents[2] / "docs/runbooks.md").read_text()
    section = page.partition(f"## {rule['alert']}\n")[2].partition("\n## ")[0]

    address = f"{PLACEHOLDER}/docs/runbooks.md#{rule['alert'].lower()}"
    assert rule["annotations"]["runbook_url"] == address
    assert section.lstrip().startswith("```")


def test_the_command_that_puts_an_address_in_changes_every_alert() -> None:
    """It is pasted from the page, and leaves valid rules."""
    page = (FILE.parents[2] / "docs/runbooks.md").read_text()
    (command,) = re.findall(r"(?m)^sed .*$", page)
    words = shlex.split(command.partition(" > ")[0])

    done = subprocess.run(words, cwd=FILE.parents[2], capture_output=True, check=True, text=True)

    groups = yaml.safe_load(done.stdout)["groups"]
    addresses = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]
    assert len(addresses) == len(RULES)
    assert all(one.startswith("https://git.example.com/platform/") for one in addresses)
