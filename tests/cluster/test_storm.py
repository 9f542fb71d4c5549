"""Storms of pods through two replicas: neither crash, outage nor noise costs a pod its GPU."""

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.storm_cluster import CLIENT, FLAGS, gpu_node, inventory, node_names, ready_node
from benchmarks.storm_metrics import Hooks, hooks
from benchmarks.storm_run import Watch, pods
from benchmarks.storm_truth import ALL_WELL, Truth, truth
from tests.builders.pods import container, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.bind_failure import binds_ignored
from tests.cluster.control_plane import Settings
from tests.cluster.forwarder import forwarding
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.noise import SEATS, noise, queued
from tests.cluster.scheduler import bound, kube_scheduler, refusals

NODES = 20
PODS_OF_A_STORM = 80
WITHIN = 60.0  # seconds; the scheduler puts a pod off for up to ten, more than once


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield nodes with GPUs, two replicas behind one address, and a plain, quick scheduler."""
    folder = tmp_path_factory.mktemp("storm")
    settings = Settings(api_server_flags=(*FLAGS, *SEATS))
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(installation(programs, folder, replicas=2, settings=settings))
        names = node_names(NODES)
        for name in names:
            found.api.create("/api/v1/nodes", ready_node(name))
        inventory(found.api, [gpu_node(name, i) for i, name in enumerate(names)])
        found.wait_for_models("A100")
        port = stack.enter_context(forwarding([replica.port for replica in found.replicas]))
        found.point_at(port)
        found.wait_until_called()
        scheduler = kube_scheduler(programs["kube-scheduler"], found.plane, client=CLIENT)
        stack.callback(scheduler.stop)
        yield found


def create(site: Installation, team: str, written: list[Json]) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: site.api.create(PODS.format(team), one), written))


def told(site: Installation, team: str) -> Truth:
    """Return what is wrong, but for promises that a failed bind left elsewhere: they age and go."""
    found = truth(site.api.get(PODS.format(team))["items"], site.api.get(GPU_NODES)["items"])
    return replace(found, stray=())


def counted(site: Installation) -> Hooks:
    return hooks(site.api.get("/metrics")["message"])


@pytest.mark.parametrize("victim", [0, 1])
def test_a_crash_in_the_middle_loses_nothing(site: Installation, victim: int) -> None:
    """Kill -9 of either replica: each pod is bound, and promised its share once."""
    team = site.namespace()
    replica = site.replicas[victim]

    with Watch(site.api, team) as watch:
        create(site, team, pods(PODS_OF_A_STORM))
        wait_for(lambda: len(watch.bound) >= PODS_OF_A_STORM // 4, within=WITHIN, every=0.005)
        replica.process.kill()
        at_the_crash = len(watch.bound)
        try:
            wait_for(lambda: len(watch.bound) == PODS_OF_A_STORM, within=WITHIN)
        finally:
            replica.start()

    assert at_the_crash < PODS_OF_A_STORM
    assert told(site, team) == ALL_WELL


def test_while_we_are_down_only_those_wait_who_opted_in(site: Installation) -> None:
    """Binds elsewhere go on; ours wait, those of pods without a GPU too, and recover by themselves.

    A pod that asks cannot even be created while we are down, so these were there before.
    """
    team, elsewhere = site.namespace(), site.namespace({})
    plain = pod(container()) | {"metadata": {"name": "plain"}}
    gated = [held_back(one) for one in [*pods(8), plain]]
    create(site, team, gated)

    for replica in site.replicas:
        replica.process.kill()
    try:
        for one in gated:
            path = f"{PODS.format(team)}/{one['metadata']['name']}"
            site.api.patch(path, {"spec": {"schedulingGates": None}})
        create(site, elsewhere, [plain])
        wait_for(lambda: len(bound(site, elsewhere)) == 1, within=WITHIN)
        wait_for(lambda: "failed calling webhook" in " ".join(refusals(site, team)), within=WITHIN)
        waiting = bound(site, team)
    finally:
        for replica in site.replicas:
            replica.start()
    wait_for(lambda: len(bound(site, team)) == 9, within=WITHIN)

    site.api.delete(f"{PODS.format(team)}/plain", {"gracePeriodSeconds": 0})
    assert waiting == set()
    assert told(site, team) == ALL_WELL


def test_with_ignore_binds_go_on_while_we_are_down(site: Installation) -> None:
    """Component bind-ignore: nothing waits, and what was bound is promised its share late."""
    team = site.namespace()
    gated = [held_back(one) for one in pods(PODS_OF_A_STORM // 2)]
    create(site, team, gated)
    with binds_ignored(site):
        try:
            for replica in site.replicas:
                replica.process.kill()
            for one in gated:
                path = f"{PODS.format(team)}/{one['metadata']['name']}"
                site.api.patch(path, {"spec": {"schedulingGates": None}})
            wait_for(lambda: len(bound(site, team)) == len(gated), within=WITHIN)
            without_us = told(site, team)
        finally:
            for replica in site.replicas:
                replica.start()

    wait_for(lambda: told(site, team) == ALL_WELL, within=WITHIN)
    assert len(without_us.lost) == len(gated)


def test_a_tenant_that_takes_all_seats_delays_no_bind(site: Installation) -> None:
    """Our calls have a priority level of their own, so no hook of ours goes unanswered."""
    team = site.namespace()
    before = counted(site)

    with noise(site), Watch(site.api, team) as watch:
        create(site, team, pods(PODS_OF_A_STORM))
        wait_for(lambda: queued(site) > 0, within=WITHIN)
        wait_for(lambda: len(watch.bound) == PODS_OF_A_STORM, within=WITHIN)
        wait_for(lambda: queued(site) > 0, within=WITHIN)  # it was no lull that let us through

    assert counted(site).difference(before).unanswered == 0
    assert told(site, team) == ALL_WELL


def held_back(written: Json) -> Json:
    return {**written, "spec": {**written["spec"], "schedulingGates": [{"name": "example.com/a"}]}}
