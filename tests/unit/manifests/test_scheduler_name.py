"""The scheduler of our own has one name: admission writes it, the overlay brings it."""

from pathlib import Path

import yaml

from webhook.admission.rewrite import OWN_SCHEDULER

OVERLAY = Path(__file__).parents[3] / "manifests" / "overlays" / "kube-scheduler"


def test_the_overlay_brings_the_scheduler_that_pods_are_sent_to() -> None:
    """Otherwise a pod with `schedulerName: set` would wait for ever."""
    configuration = yaml.safe_load((OVERLAY / "configuration.yaml").read_text(encoding="utf-8"))

    assert [profile["schedulerName"] for profile in configuration["profiles"]] == [OWN_SCHEDULER]
