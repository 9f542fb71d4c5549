"""What the webhook exports about the lease holder's duties."""

from prometheus_client import generate_latest

from webhook.serve.metrics import WebhookMetrics


def test_a_failed_round_of_a_duty_is_counted_from_zero_on() -> None:
    """An increase shows only where there was something before."""
    metrics = WebhookMetrics(version="1")
    metrics.failure_counter("drift")
    metrics.failure_counter("upkeep")()

    text = generate_latest(metrics.registry).decode()

    assert 'vgpu_duty_failures_total{duty="drift"} 0.0' in text
    assert 'vgpu_duty_failures_total{duty="upkeep"} 1.0' in text


def test_no_series_says_when_another_began() -> None:
    """They double the series of every counter, and nobody reads them."""
    metrics = WebhookMetrics(version="1")
    metrics.count_decision("rewritten", mode="mig", namespace="team-a")
    metrics.observe_decision("mutate", 0.1)

    assert b"_created" not in generate_latest(metrics.registry)


def test_a_namespace_that_cannot_be_one_is_no_label() -> None:
    """5 MB of it once stayed as a label, in each scrape from then on."""
    metrics = WebhookMetrics(version="0")

    for namespace in ("team-a", "x" * 63, "x" * 64, "y" * 5_000_000):
        metrics.count_decision("refused", namespace=namespace)

    text = generate_latest(metrics.registry).decode()
    assert len(text) < 100_000
    assert 'namespace="team-a"' in text
    assert f'namespace="{"x" * 63}"' in text
    assert 'decision="refused",mode="",namespace="other",reason=""} 2.0' in text
