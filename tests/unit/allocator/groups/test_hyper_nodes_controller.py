"""What is written for vc-scheduler, and when nothing is."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

import orjson
import pytest

from allocator.groups.hyper_nodes import SOURCE, SOURCE_LABEL
from allocator.groups.hyper_nodes_controller import (
    HyperNodesController,
    PodGroupTopologyController,
)
from allocator.groups.members import GroupPod
from allocator.groups.tree import Tree, decode_tree
from kube.client import CallOptions
from kube.errors import ConflictError, NotFoundError
from tests.builders.supernodes import node_group
from tests.fakes.api_client import FakeApiClient

TREE = decode_tree(json.dumps(node_group({"sb1": {"df1": ("n1", "n2")}}))).tree
Json = dict[str, Any]


@dataclass(slots=True)
class Volcano(FakeApiClient):
    """HyperNodes and PodGroups; without ``served`` there are no such kinds."""

    served: bool = True
    hyper_nodes: dict[str, Json] = field(default_factory=dict)
    pod_groups: dict[str, Json] = field(default_factory=dict)
    conflicts: int = 0
    calls: int = 0

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        self.calls += 1
        if "/podgroups/" in path:
            found = self.pod_groups.get(path.rpartition("/")[2])
            if found is None:
                raise NotFoundError(404, "NotFound", path)
            return orjson.dumps(found)
        if not self.served:
            raise NotFoundError(404, "NotFound", path)
        return orjson.dumps({"items": list(self.hyper_nodes.values())})

    async def apply(
        self, path: str, body: bytes, *, field_manager: str, **_: Unpack[CallOptions]
    ) -> bytes:
        del field_manager
        self.hyper_nodes[path.rpartition("/")[2]] = orjson.loads(body)
        return body

    async def delete(
        self, path: str, *, body: bytes | None = None, **_: Unpack[CallOptions]
    ) -> bytes:
        del body
        del self.hyper_nodes[path.rpartition("/")[2]]
        return b""

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        if self.conflicts:
            self.conflicts -= 1
            raise ConflictError(409, "Conflict", path)
        found = self.pod_groups[path.rpartition("/")[2]]
        found["spec"] |= changes["spec"]
        return orjson.dumps(found)


@dataclass(slots=True)
class Site:
    """Volcano, the tree and the setting."""

    volcano: Volcano = field(default_factory=Volcano)
    tree: Tree | None = TREE
    enabled: bool = True
    controller: HyperNodesController = field(init=False)

    def __post_init__(self) -> None:
        self.controller = HyperNodesController(
            self.volcano, tree=lambda: self.tree, enabled=lambda: self.enabled
        )

    def sweep(self) -> list[str]:
        asyncio.run(self.controller.sweep())
        return sorted(self.volcano.hyper_nodes)


def test_hyper_nodes_follow_the_tree_and_the_setting() -> None:
    """They go with either; while the tree is unknown they stay."""
    site = Site()
    assert site.sweep() == ["df1", "sb1"]
    labels = site.volcano.hyper_nodes["df1"]["metadata"]["labels"]
    assert labels == {SOURCE_LABEL: SOURCE}
    site.tree = None
    assert site.sweep() == ["df1", "sb1"]
    site.tree = Tree()
    assert site.sweep() == []
    site.tree = TREE
    assert site.sweep() == ["df1", "sb1"]
    site.enabled = False
    assert site.sweep() == []


def test_without_the_setting_the_api_server_is_asked_once() -> None:
    """A program that was restarted may have left some."""
    site = Site(enabled=False)
    for _ in range(3):
        site.sweep()
    assert site.volcano.calls == 1


def test_without_volcano_nothing_fails() -> None:
    """It may be installed later."""
    site = Site(volcano=Volcano(served=False))
    assert site.sweep() == []
    site.volcano.served = True
    assert site.sweep() == ["df1", "sb1"]


def test_hyper_nodes_of_others_stay() -> None:
    """Also where they have a name of the tree."""
    foreign = {"metadata": {"name": "df1", "labels": {SOURCE_LABEL: "ufm"}}, "spec": {"tier": 7}}
    site = Site(volcano=Volcano(hyper_nodes={"df1": foreign}))
    site.sweep()
    assert site.volcano.hyper_nodes["df1"] is foreign
    site.enabled = False
    assert site.sweep() == ["df1"]


JOB = "team-a/podgroup demo"
GPU, SLOT = "metax-tech.com/gpu", "volcano.sh/vgpu-number"


def members(
    count: int, *, size: int = 64, limits: tuple[tuple[str, int], ...] = ((GPU, 8),)
) -> list[GroupPod]:
    """Return pods of one PodGroup, of which the first names the size of a group."""
    return [
        GroupPod(uid=str(number), job=JOB, name="p", size=0 if number else size, limits=limits)
        for number in range(count)
    ]


def judged(spec: Json, *steps: list[GroupPod], job: str = JOB, conflicts: int = 0) -> Json:
    """Return the spec of a PodGroup once it was judged with each of the *steps* of its pods."""
    group = {"metadata": {"name": "demo", "uid": "u"}, "spec": dict(spec)}
    volcano = Volcano(pod_groups={"demo": group}, conflicts=conflicts)
    now: list[list[GroupPod]] = [[]]
    controller = PodGroupTopologyController(
        volcano,
        waiting=lambda: [(job, now[0])],
        counts=lambda: {GPU, SLOT},
        enabled=lambda: True,
    )

    async def run() -> None:
        for step in steps:
            now[0] = step
            await controller.sweep()
            await controller.sweep()

    asyncio.run(run())
    found: Json = volcano.pod_groups["demo"]["spec"]
    return found


TOPOLOGY = {"mode": "hard", "highestTierAllowed": 2}


@pytest.mark.parametrize("conflicts", [0, 1])
@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({"minMember": 8}, members(1)),
        ({"minMember": 8}, members(8)),
        ({"minMember": 1}, members(8)),
        ({}, members(8)),
        ({"minMember": None, "minResources": {"pods": "8"}}, members(8)),
        ({"minMember": 8}, members(8, limits=((SLOT, 8), (GPU, 8)))),
        ({"minMember": 1}, members(1, size=4)),
    ],
)
def test_a_pod_group_that_is_one_group_stays_in_one_hyper_node(
    spec: Json, pods: list[GroupPod], conflicts: int
) -> None:
    """GPUs are counted in one vocabulary only; a conflict is tried again."""
    assert judged(spec, pods, conflicts=conflicts)["networkTopology"] == TOPOLOGY


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({"minMember": 9}, members(1)),
        ({"minMember": 1}, members(9)),
        ({"minMember": 8}, members(8, size=0)),
        ({"minMember": 8}, members(8, limits=())),
        ({"minMember": 8}, members(8, limits=(("example.com/nic", 8),))),
        ({"minMember": 8}, members(8, limits=((GPU, 0),))),
        ({"minMember": 8}, members(8, limits=((GPU, 999999999),))),
        ({"minMember": "8"}, members(8)),
        ({"minMember": 1e30}, members(8)),
        ({"minMember": 2**63}, members(8)),
        ({"minMember": ["8"]}, members(8)),
        ({"minMember": {}}, members(8)),
    ],
)
def test_any_other_pod_group_is_left_alone(spec: Json, pods: list[GroupPod]) -> None:
    """It has several groups, asks for none of our GPUs, or cannot be read."""
    assert "networkTopology" not in judged(spec, pods)


def test_a_topology_of_ours_goes_with_the_first_pod_of_a_second_group() -> None:
    """Without it the pods of a job could not be in two domains."""
    assert judged({"minMember": 1}, members(8), members(9))["networkTopology"] is None


@pytest.mark.parametrize("pods", [members(8), members(9)])
def test_a_topology_that_is_there_stays(pods: list[GroupPod]) -> None:
    """Whoever wrote it knows better."""
    mine = {"mode": "soft"}
    assert judged({"minMember": 1, "networkTopology": mine}, pods)["networkTopology"] == mine


def test_a_job_without_a_pod_group_has_no_topology() -> None:
    """Its controller is known only."""
    assert "networkTopology" not in judged({"minMember": 8}, members(8), job="team-a/owner u")
