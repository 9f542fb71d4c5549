"""Properties of the real node that other tests build on."""

from collections.abc import Iterator

import pytest

from tests.cluster.api import Json, wait_for
from tests.cluster.image.archive import PROBE
from tests.cluster.installation import PODS
from tests.cluster.kubelet import Node

pytestmark = pytest.mark.node

RUN_WITHIN = 60.0


def plain(*verbs: str, **spec: object) -> Json:
    """Write a pod that does these things and asks for no GPU."""
    container = {"name": "main", "image": PROBE, "command": ["/probe", *verbs]}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}}


@pytest.fixture
def team(node: Node) -> Iterator[str]:
    """Yield a namespace whose pods go when the test ends."""
    name = node.site.namespace()
    yield name
    node.site.api.delete(PODS.format(name), {"gracePeriodSeconds": 0})


def pod_of(node: Node, team: str, name: str = "p") -> Json:
    found: Json = node.site.api.get(f"{PODS.format(team)}/{name}")
    return found


def test_a_pod_runs_to_completion(node: Node, team: str) -> None:
    """A pod without a GPU is bound by kube-scheduler, runs, and its output can be read."""
    node.site.create(team, plain("say", "hello", "exit", "3", restartPolicy="Never"))

    wait_for(lambda: pod_of(node, team)["status"].get("phase") == "Failed", within=RUN_WITHIN)

    found = pod_of(node, team)
    (status,) = found["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3
    assert node.log(found, "main") == ["say hello"]


def test_a_kubelet_restart_leaves_containers_alone(node: Node, team: str) -> None:
    """A container keeps running while its kubelet is away, and is the same one after it."""
    node.site.create(team, plain("sleep", "1000"))
    wait_for(lambda: pod_of(node, team)["status"].get("phase") == "Running", within=RUN_WITHIN)
    tasks = node.runtime.tasks()

    node.kubelet.stop()
    node.start()
    wait_for(node.ready, within=RUN_WITHIN)

    assert node.runtime.tasks() == tasks
    (status,) = pod_of(node, team)["status"]["containerStatuses"]
    assert status["restartCount"] == 0


def test_a_rebooted_node_starts_its_pods_again(node: Node, team: str) -> None:
    """The node tells its new boot id, and a pod that should run has a new container."""
    node.site.create(team, plain("sleep", "1000"))
    wait_for(lambda: pod_of(node, team)["status"].get("phase") == "Running", within=RUN_WITHIN)
    before = pod_of(node, team)["status"]["containerStatuses"][0]["containerID"]

    node.reboot()

    wait_for(lambda: node.status()["nodeInfo"]["bootID"] == node.host.boot_id, within=RUN_WITHIN)
    wait_for(
        lambda: pod_of(node, team)["status"]["containerStatuses"][0]["restartCount"] == 1,
        within=RUN_WITHIN,
    )
    after = pod_of(node, team)["status"]["containerStatuses"][0]["containerID"]
    assert after != before
