"""The scheduler configuration that gpushare's documents give, with its bind verb, against us."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.config.scheduler_policy import scheduler_configuration
from allocator.ledger.decode import decode
from allocator.model.problem import Loaded
from manifests.generator.names import CONTROL_PLANE
from tests.builders.model import T4, nodes_of
from tests.builders.pods import GPU_MEM, container, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.extender import apply
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.ports import free_port
from tests.cluster.scheduler import bound, kube_scheduler, refusals, schedulable

GUIDES = Path(__file__).parents[1] / "guides"
WITHIN = 60.0  # seconds; the scheduler's back-off is ten at most


def documented(port: int) -> Json:
    """Return the configuration that ``vgpu convert`` makes of the guide's Policy file.

    Only the port is another, because each test has its own.
    """
    text = (GUIDES / "gpushare-scheduler-policy.json").read_text().replace("32766", str(port))
    converted = scheduler_configuration(text, kubeconfig="")
    assert isinstance(converted, Loaded)
    return {key: converted.value[key] for key in ("extenders",)}


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield a node of two GPUs, and a scheduler that leaves filtering and binding to us."""
    folder, port = tmp_path_factory.mktemp("gpushare"), free_port()
    options = [f"--extender=127.0.0.1:{port}"]
    with installation(programs, folder, options=options) as found:
        found.configure("extenderBind: true")
        wait_for(lambda: found.first.obeys("extenderBind: true"))
        apply(found, "rbac.yaml")
        apply(found, "bind.yaml")
        found.add_node(nodes_of(2, T4, name="shared"))
        found.wait_for_models("T4")
        schedulable(found, "shared")
        room = {"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
        change = {"status": {"capacity": room, "allocatable": room}}
        found.api.patch("/api/v1/nodes/shared/status", change)
        scheduler = kube_scheduler(programs["kube-scheduler"], found.plane, **documented(port))
        yield found
        scheduler.stop()


def asking(name: str, gib: int) -> Json:
    """Write a pod as gpushare's documents do: memory in GiB, nothing else."""
    written = pod(container(limits={GPU_MEM: gib}))
    return written | {"metadata": {**written["metadata"], "name": name}}


def records(site: Installation, team: str) -> list[Json]:
    lines = site.first.lines()
    return [line for line in lines if line.get("kind") == "bind" and line["namespace"] == team]


def test_we_post_the_binding_and_the_hook_decides(site: Installation) -> None:
    """The pod is bound by our account, in its scheduler's stead, and promised its share."""
    team = site.namespace()
    created = site.create(team, asking("gpu-1", 1)).body["metadata"]["uid"]

    wait_for(lambda: bound(site, team), within=WITHIN)

    (entry,) = (e for e in decode(site.api.get(f"{GPU_NODES}/shared")).entries if e.uid == created)
    stored = site.api.get(f"{PODS.format(team)}/gpu-1")
    (record,) = wait_for(lambda: records(site, team))  # written a moment after the answer
    assert entry.containers[0].grants[0].memory == 1024
    assert stored["spec"]["nodeName"] == "shared"
    assert record["user"] == CONTROL_PLANE


def test_what_no_single_gpu_has_waits(site: Installation) -> None:
    """The node's sum would do, so only the filter can know; it is heard, and nothing is posted."""
    team = site.namespace()
    for name in ("a", "b"):
        site.create(team, asking(name, 9))
    wait_for(lambda: len(bound(site, team)) == 2, within=WITHIN)
    site.create(team, asking("c", 8))

    texts = wait_for(lambda: refusals(site, team), within=WITHIN)

    assert bound(site, team) == {"a", "b"}
    assert all(text.startswith("0/1 nodes are available: 1 ") for text in texts)
