"""One fitting node among 5,000, of which a scheduler asks about a tenth."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.builders import T4, nodes_of
from tests.cluster.api import Json, wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.extender import add_extender, apply, extender
from tests.cluster.installation import Installation, installation
from tests.cluster.scheduler import MORE_THAN_THERE_IS, bound, kube_scheduler, schedulable
from tests.pods import MEMORY, NUMBER, container, pod

NODES = 5000
FITTING = "n02500"
WITHIN = 30.0  # seconds

pytestmark = pytest.mark.timeout(400)


def machine(name: str) -> Json:
    """Write a node that a scheduler takes for one with GPUs, and of which we know none."""
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", **MORE_THAN_THERE_IS}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    return {"metadata": {"name": name}, "status": status}


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation of 5,000 nodes, of which one has GPUs that are known."""
    folder = tmp_path_factory.mktemp("sampling")
    # Which would taint every new node until a controller has looked at it.
    settings = Settings(api_server_flags=["--disable-admission-plugins=TaintNodesByCondition"])
    with installation(programs, folder, settings=settings) as found:
        others = [name for i in range(NODES) if (name := f"n{i:05d}") != FITTING]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: found.api.create("/api/v1/nodes", machine(name)), others))
        found.add_node(nodes_of(1, T4, name=FITTING))
        schedulable(found, FITTING)
        apply(found, "rbac.yaml")
        _, port = add_extender(found)
        found.wait_for_models("T4")
        program = programs["kube-scheduler"]
        scheduler = kube_scheduler(program, found.plane, extenders=[extender(port)])
        yield found
        scheduler.stop()


def test_the_one_fitting_node_is_found(site: Installation) -> None:
    """The scheduler's sample does not hold it; the pod is bound there all the same, and soon."""
    team = site.namespace()

    site.create(team, pod(container(limits={NUMBER: 1, MEMORY: 3000})))

    wait_for(lambda: bound(site, team), within=WITHIN)
    found = site.api.get(f"/api/v1/namespaces/{team}/pods/p")
    hints = [line for line in site.replicas[1].lines() if line.get("event") == "hint given"]
    assert found["spec"]["nodeName"] == FITTING
    assert [hint["node"] for hint in hints] in ([FITTING], [])  # none where chance was kind
