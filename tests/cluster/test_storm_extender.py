"""A storm whose scheduler asks two replicas about nodes, one of which dies in the middle."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.storm_cluster import gpu_node, node_names
from benchmarks.storm_run import Watch, pods
from benchmarks.storm_truth import truth
from tests.cluster.api import wait_for
from tests.cluster.extender import asked
from tests.cluster.installation import GPU_NODES, PODS, Installation
from tests.cluster.storm_site import answered

NODES = 6
PODS_OF_A_STORM = 60
WITHIN = 60.0  # seconds; the scheduler puts a pod off for up to ten, more than once


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield nodes, a scheduler, and the two replicas that it asks in turn."""
    nodes = [gpu_node(name, i) for i, name in enumerate(node_names(NODES))]
    folder = tmp_path_factory.mktemp("storm-extender")
    with asked(programs, folder, *nodes, by_request=True) as found:
        yield found


@pytest.mark.parametrize("victim", [1, 2])
def test_a_dying_extender_loses_nothing(site: Installation, victim: int) -> None:
    """Kill -9 of either replica: the other answers, and each pod is promised its share once."""
    team = site.namespace()
    replica, asked_of = site.replicas[victim], site.replicas[1:]
    before = [answered(one)["filter"] for one in asked_of]

    with Watch(site.api, team) as watch:
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(lambda one: site.api.create(PODS.format(team), one), pods(PODS_OF_A_STORM))
            )
        wait_for(lambda: len(watch.bound) >= PODS_OF_A_STORM // 6, within=WITHIN, every=0.005)
        after = [answered(one)["filter"] for one in asked_of]
        replica.process.kill()
        at_the_crash = len(watch.bound)
        try:
            wait_for(lambda: len(watch.bound) == PODS_OF_A_STORM, within=WITHIN)
        finally:
            replica.start()

    found = truth(site.api.get(PODS.format(team))["items"], site.api.get(GPU_NODES)["items"])
    assert all(there > had for had, there in zip(before, after, strict=True))
    assert at_the_crash < PODS_OF_A_STORM
    assert (found.lost, found.doubled, found.misled, found.overfull) == ((), (), (), ())
