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
