"""A storm of 1,000 pods on 1,000 nodes, beside a tenant that takes every seat it can get."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.storm_metrics import Hooks, hooks
from benchmarks.storm_truth import ALL_WELL
from tests.cluster.api import wait_for
from tests.cluster.installation import Installation
from tests.cluster.noise import SEATS, noise, queued
from tests.cluster.process import Process
from tests.cluster.storm_site import (
    PODS_OF_A_STORM,
    WITHIN,
    answered,
    gathered,
    settled,
    storm_site,
)

pytestmark = [pytest.mark.patient, pytest.mark.timeout(1200)]  # seconds; some 60 on a quiet machine


@pytest.fixture(scope="module")
def asking(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Installation, Process]]:
    """Yield the installation, whose API server has few seats, and the scheduler that asks it."""
    with storm_site(programs, tmp_path_factory.mktemp("storm-noise"), SEATS) as found:
        yield found


def counted(site: Installation) -> Hooks:
    return hooks(site.api.get("/metrics")["message"])


def test_a_tenant_that_takes_all_seats_delays_no_bind(
    asking: tuple[Installation, Process],
) -> None:
    """No call of a hook of ours goes unanswered, and each pod is promised its share once."""
    site, scheduler = asking
    before = counted(site)

    with noise(site):
        wait_for(lambda: queued(site) > 0, within=WITHIN)
        with gathered(site, scheduler) as (team, watch):
            wait_for(lambda: len(watch.bound) == PODS_OF_A_STORM, within=WITHIN)
            wait_for(lambda: queued(site) > 0, within=WITHIN)  # it was no lull that let us through

    since = counted(site).difference(before)
    assert since.unanswered == 0
    assert since.binds >= PODS_OF_A_STORM
    assert all(answered(replica)["filter"] for replica in site.replicas)
    assert settled(site, team) == ALL_WELL
