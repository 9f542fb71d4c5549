"""Two real PodGroups that keep each other from starting: both are told, and neither loses a pod."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.model.request import Mode
from tests.builders.model import A30, nodes_of
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import ApiError, wait_for
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.volcano import apply_crds

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
SETTINGS = "gangTimeoutSeconds: 10\n"
WITHIN = 60.0  # seconds; a gang must have been stuck for ten


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield a GPU of two halves, and the kind PodGroup."""
    with installation(programs, tmp_path_factory.mktemp("gangs")) as found:
        apply_crds(found.api)
        found.configure(SETTINGS)
        wait_for(lambda: found.first.obeys(SETTINGS))
        found.add_node(nodes_of(1, A30, mode=Mode.MIG, name="halves"))
        found.wait_for_models("A30")
        yield found


def gang(site: Installation, team: str, name: str) -> None:
    """Make a group of two that can only start together, each with half of the GPU."""
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    group = {**kind, "metadata": {"name": name}, "spec": {"minMember": 2}}
    site.api.create(GROUPS.format(team), group)
    half = container(limits={NUMBER: 1, MEMORY: 11000})
    keys = {MODE: "mig", "scheduling.k8s.io/group-name": name}
    for number in range(2):
        written = pod(half, annotations=keys)
        metadata = {**written["metadata"], "name": f"{name}-{number}"}
        site.stored(team, {**written, "metadata": metadata})


def bind(site: Installation, team: str, name: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": "halves"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    site.api.create(f"{PODS.format(team)}/{name}/binding", body)


def binds(site: Installation, team: str, name: str) -> bool:
    try:
        bind(site, team, name)
    except ApiError:
        return False
    return True


def events(site: Installation, team: str, reason: str) -> set[str]:
    """Return the names of the groups that were told of *reason*."""
    found = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    groups = [event["regarding"] for event in found if event["reason"] == reason]
    return {group["name"] for group in groups if group["kind"] == "PodGroup"}


def leaving(site: Installation, team: str) -> set[str]:
    found = site.api.get(PODS.format(team))["items"]
    return {one["metadata"]["name"] for one in found if "deletionTimestamp" in one["metadata"]}


def test_half_bound_gangs_are_told_and_keep_their_pods(site: Installation) -> None:
    """Each is told that it is short, and after the timeout that it is stuck; none is evicted."""
    team = site.namespace()
    gang(site, team, "older")
    gang(site, team, "younger")
    bind(site, team, "older-0")
    bind(site, team, "younger-0")

    refused = [binds(site, team, name) for name in ("older-1", "younger-1")]
    wait_for(lambda: events(site, team, "VgpuGangShort") == {"older", "younger"}, within=WITHIN)
    wait_for(lambda: events(site, team, "VgpuGangStuck") == {"older", "younger"}, within=WITHIN)

    assert refused == [False, False]
    assert leaving(site, team) == set()
    entries = site.api.get(f"{GPU_NODES}/halves")["spec"]["entries"]
    assert {entry["pod"]["name"] for entry in entries} == {"older-0", "younger-0"}
