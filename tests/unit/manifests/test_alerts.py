"""Alert rules that a person can act on."""

import re
from pathlib import Path

import pytest
import yaml

from manifests.generator.names import Json
from manifests.generator.registrations import registrations

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
