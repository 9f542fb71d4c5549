"""What the webhook exports about the lease holder's duties."""

from prometheus_client import CollectorRegistry, generate_latest

from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.scheduling.capacity import FreeCapacity
from kube.clock import Clock
from tests.fakes.kube_clock import FakeClock
from webhook.records.waiting_controller import WaitingFigure
from webhook.serve.metrics import LeaderFigures, WebhookMetrics


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


CAPACITY = FreeCapacity(
    largest={(Mode.MIG, "NVIDIA A30"): MiB(6144), (Mode.HAMI_CORE, "Tesla T4"): MiB(0)},
    stranded=MiB(1024),
)


def test_figures_of_the_lease_holder_end_with_its_term() -> None:
    """Those of the holder before would stay for ever beside those of the new one."""
    seconds = [0.0]
    registry = CollectorRegistry()
    figures = LeaderFigures(Clock(monotonic=lambda: seconds[0]))
    registry.register(figures)
    assert generate_latest(registry) == b""

    figures.set_capacity(CAPACITY)
    waiting = {
        ("team-a", "Unschedulable"): WaitingFigure(3, 90.5),
        ("team-b", ""): WaitingFigure(1, 1),
    }
    figures.set_waiting(waiting)
    text = generate_latest(registry).decode()
    seconds[0] = 121.0

    assert 'largest_fit_bytes{mode="mig",model="NVIDIA A30"} 6.442450944e+09' in text
    assert 'largest_fit_bytes{mode="hami-core",model="Tesla T4"} 0.0' in text
    assert "vgpu_cluster_stranded_memory_bytes 1.073741824e+09" in text
    assert 'vgpu_waiting_pods{namespace="team-a",reason="Unschedulable"} 3.0' in text
    assert 'waiting_oldest_seconds{namespace="team-a",reason="Unschedulable"} 90.5' in text
    assert 'vgpu_waiting_pods{namespace="team-b",reason="unknown"} 1.0' in text
    assert generate_latest(registry) == b""


def test_nobody_makes_series_without_end_by_waiting() -> None:
    """What schedulers wrote, and in how many namespaces, is bounded; nobody is lost."""
    figures = LeaderFigures(FakeClock().clock())
    figures.set_waiting(
        {
            (f"team-{space}", f"Reason{reason}" * 100): WaitingFigure(1, float(reason))
            for space in range(40)
            for reason in range(50)
        }
    )
    waiting, oldest = figures.collect()

    reasons = {sample.labels["reason"] for sample in waiting.samples}
    assert len(reasons) == 33
    assert "other" in reasons
    assert max(map(len, reasons)) <= 64
    assert sum(sample.value for sample in waiting.samples) == 2000
    assert max(sample.value for sample in oldest.samples) == 49.0
