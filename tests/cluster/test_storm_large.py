"""Storms of 1,000 pods on 1,000 nodes, in the middle of which one of two replicas is killed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.storm_cluster import CLIENT
from benchmarks.storm_truth import ALL_WELL
from tests.cluster.api import wait_for
from tests.cluster.installation import GPU_NODES, Installation
from tests.cluster.process import Process
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.storm_site import (
    ASKING,
    PODS_OF_A_STORM,
    WITHIN,
    answered,
    gathered,
    settled,
    storm_site,
)

PLAIN = "plain"  # asks nobody

pytestmark = [
    pytest.mark.patient,
    pytest.mark.timeout(2400),
    pytest.mark.parametrize("scheduler", [ASKING, PLAIN], ids=["extender", "plain"]),
    pytest.mark.parametrize("victim", [0, 1]),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A storm in namespace *team*: how many were bound when a replica died, and by whose work."""

    team: str
    bound: int
    answered: tuple[Mapping[str, float], ...]  # by each replica


Crashes = Mapping[tuple[str, int], Crash]


@pytest.fixture(scope="module")
def asking(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Installation, Process]]:
    """Yield the installation and the scheduler that asks it."""
    with storm_site(programs, tmp_path_factory.mktemp("storm-large")) as found:
        yield found


@pytest.fixture(scope="module")
def site(asking: tuple[Installation, Process]) -> Installation:
    return asking[0]


@pytest.fixture(scope="module")
def crashes(asking: tuple[Installation, Process], programs: Mapping[str, Path]) -> Crashes:
    """Return a storm of each kind; one after another, so that what they leave ages together."""
    site, scheduler = asking
    found = {(ASKING, victim): crash(site, scheduler, ASKING, victim=victim) for victim in (0, 1)}
    plain = kube_scheduler(
        programs["kube-scheduler"], site.plane, client=CLIENT, profiles=[{"schedulerName": PLAIN}]
    )
    try:
        found |= {(PLAIN, victim): crash(site, plain, PLAIN, victim=victim) for victim in (0, 1)}
    finally:
        plain.stop()
    return found


def crash(site: Installation, scheduler: Process, name: str, *, victim: int) -> Crash:
    """Kill a replica when a quarter of the pods are bound, start it again and see the storm out."""
    replica = site.replicas[victim]
    with gathered(site, scheduler, name) as (team, watch):
        before = [answered(one) for one in site.replicas]
        wait_for(lambda: len(watch.bound) >= PODS_OF_A_STORM // 4, within=WITHIN, every=0.005)
        after = [answered(one) for one in site.replicas]
        replica.process.kill()
        bound = len(watch.bound)
        replica.start()
        wait_for(lambda: len(watch.bound) == PODS_OF_A_STORM, within=WITHIN)
    work = [
        {what: there[what] - had[what] for what in there}
        for had, there in zip(before, after, strict=True)
    ]
    return Crash(team=team, bound=bound, answered=tuple(work))


def test_either_replica_was_at_work_when_it_died(
    crashes: Crashes, *, scheduler: str, victim: int
) -> None:
    """Both had decided binds, and answered both kinds of questions where any were asked."""
    found = crashes[scheduler, victim]

    asked = {(bool(done["filter"]), bool(done["prioritize"])) for done in found.answered}
    assert all(done["bind"] for done in found.answered)
    assert asked == {(scheduler == ASKING, scheduler == ASKING)}
    assert found.bound < PODS_OF_A_STORM


def test_each_pod_is_promised_its_share_once(
    site: Installation, crashes: Crashes, *, scheduler: str, victim: int
) -> None:
    """And bound, and told so; what a bind that failed had left on another node is gone."""
    assert settled(site, crashes[scheduler, victim].team) == ALL_WELL


def test_nobody_else_is_promised_anything(
    site: Installation, crashes: Crashes, *, scheduler: str, victim: int
) -> None:
    """Whoever has an entry in a ledger is bound."""
    team = crashes[scheduler, victim].team

    promised = {
        entry["pod"]["uid"]
        for ledger in site.api.get(GPU_NODES)["items"]
        for entry in ledger["spec"]["entries"]
        if entry["pod"]["namespace"] == team
    }
    pods = site.api.get(f"/api/v1/namespaces/{team}/pods")["items"]
    assert promised == {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}
