"""The console's figures, and that its page names them all."""

import re
from http import HTTPStatus
from pathlib import Path

from console.receive.console_metrics import LOGINS, RESULTS, ConsoleMetrics
from console.records.rows import StoreFigures

PAGE = Path(__file__).parents[4] / "docs/console.md"


def samples(metrics: ConsoleMetrics) -> dict[str, float]:
    lines = metrics.text()[1].decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_the_page_names_every_metric_and_no_other() -> None:
    """In a table of its own."""
    text = ConsoleMetrics(version="1").text()[1].decode()
    table = PAGE.read_text().split("## Metrics")[1]

    assert re.findall(r"(?m)^\| `(\w+)` \|", table) == re.findall(r"(?m)^# TYPE (\w+)", text)


def test_what_can_happen_starts_at_zero() -> None:
    """So that an increase shows, the first one too."""
    found = samples(ConsoleMetrics(version="1"))

    for result in RESULTS:
        assert found[f'vgpu_console_records_total{{result="{result}"}}'] == 0
    for result in LOGINS:
        assert found[f'vgpu_console_logins_total{{result="{result}"}}'] == 0


def test_everything_is_counted() -> None:
    """Where it belongs."""
    metrics = ConsoleMetrics(version="1")
    metrics.count_batch(HTTPStatus.TOO_MANY_REQUESTS)
    metrics.count_records(3, 2, 1)
    metrics.count_login("throttled")
    metrics.observe_request(200, 0.02)
    metrics.set_figures(StoreFigures(records=7, decisions=5, size=1000, oldest="", newest=""))
    metrics.set_watches({"pods": 12.0})
    metrics.set_certificate_expiry(99.0)
    metrics.set_store_limit(5000)

    found = samples(metrics)
    expected = {
        'vgpu_build_info{component="console",version="1"}': 1,
        'vgpu_console_batches_total{code="429"}': 1,
        'vgpu_console_records_total{result="stored"}': 3,
        'vgpu_console_records_total{result="known"}': 2,
        'vgpu_console_records_total{result="rejected"}': 1,
        'vgpu_console_logins_total{result="throttled"}': 1,
        'vgpu_console_requests_total{code="200"}': 1,
        "vgpu_console_request_duration_seconds_count": 1,
        "vgpu_console_store_bytes": 1000,
        "vgpu_audit_store_limit_bytes": 5000,
        "vgpu_console_store_records": 7,
        "vgpu_console_store_decisions": 5,
        'vgpu_cache_synced_timestamp_seconds{kind="pods"}': 12,
        "vgpu_certificate_not_after_timestamp_seconds": 99,
    }
    assert {name: found[name] for name in expected} == expected


def test_figures_are_looked_up_when_they_are_asked_for() -> None:
    """So none is older than the answer."""
    metrics = ConsoleMetrics(version="1")

    text = metrics.text(lambda: metrics.set_store_limit(7))[1].decode()

    assert "vgpu_audit_store_limit_bytes 7.0" in text.splitlines()
