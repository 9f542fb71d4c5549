"""A storm whose scheduler asks two replicas about nodes, one of which dies in the middle."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from benchmarks.storm_cluster import gpu_node, node_names, run_all
from benchmarks.storm_run import Watch, pods
from benchmarks.storm_truth import truth
from tests.cluster.api import wait_for
from tests.cluster.extender import asked
from tests.cluster.installation import GPU_NODES, PODS, Installation
from tests.cluster.storm_site import answered

NODES = 6
PODS_OF_A_STORM = 60
BEFORE_THE_CRASH = 40  # pods; however quick the scheduler is, some are left for the one that lives
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
    create = partial(site.api.create, PODS.format(team))
    replica, asked_of = site.replicas[victim], site.replicas[1:]
    before = [answered(one)["filter"] for one in asked_of]

    with Watch(site.api, team) as watch:
        storm = pods(PODS_OF_A_STORM)
        run_all(create, storm[:BEFORE_THE_CRASH])
        wait_for(lambda: len(watch.bound) >= PODS_OF_A_STORM // 6, within=WITHIN, every=0.005)
        after = [answered(one)["filter"] for one in asked_of]
        replica.process.kill()
        try:
            run_all(create, storm[BEFORE_THE_CRASH:])  # the first replica admits; it lives
            wait_for(lambda: len(watch.bound) == PODS_OF_A_STORM, within=WITHIN)
        finally:
            replica.start()

    found = truth(site.api.get(PODS.format(team))["items"], site.api.get(GPU_NODES)["items"])
    assert all(there > had for had, there in zip(before, after, strict=True))
    assert (found.lost, found.doubled, found.misled, found.overfull) == ((), (), (), ())
