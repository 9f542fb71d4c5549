"""What is written for vc-scheduler, and when nothing is."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import orjson
import pytest
from structlog.testing import capture_logs

from allocator.catalog.keys import GROUP_LABEL
from allocator.groups.hyper_nodes import SOURCE, SOURCE_LABEL
from allocator.groups.hyper_nodes_controller import (
    PARTLY_BOUND_SECONDS,
    REPEAT_SECONDS,
    HyperNodesController,
    PodGroupTopologyController,
)
from allocator.groups.members import GroupPod
from allocator.groups.tree import Tree, decode_tree
from kube.client import CallOptions
from kube.errors import ApiError, ConflictError, NotFoundError
from tests.builders.supernodes import node_group
from tests.fakes.api_client import FakeApiClient
from tests.fakes.kube_clock import FakeClock

TREE = decode_tree(json.dumps(node_group({"sb1": {"df1": ("n1", "n2")}}))).tree
Json = dict[str, Any]


@dataclass(slots=True)
class Volcano(FakeApiClient):
    """HyperNodes and PodGroups; without ``served`` there are no such kinds."""

    served: bool = True
    allowed: bool = True  # by the component hyper-nodes
    hyper_nodes: dict[str, Json] = field(default_factory=dict)
    pod_groups: dict[str, Json] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # of pods, by name
    written: list[Json] = field(default_factory=list)  # specs of PodGroups, in order
    conflicts: int = 0
    fails_at: int = 0  # which change of a PodGroup from now on fails; 0: none
    calls: int = 0

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        self.calls += 1
        if "/podgroups/" in path:
            found = self.pod_groups.get(path.rpartition("/")[2])
            if found is None:
                raise NotFoundError(404, "NotFound", path)
            return orjson.dumps(found)
        if not self.allowed:
            raise ApiError(403, "Forbidden", path)
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
        name = path.rpartition("/")[2]
        if "/pods/" in path:
            self.labels[name] = changes["metadata"]["labels"][GROUP_LABEL]
            return b"{}"
        self.fails_at -= 1
        if self.fails_at == 0:
            raise ApiError(503, "ServiceUnavailable", path)
        found = self.pod_groups[name]
        found["spec"] |= changes["spec"]
        self.written.append(dict(changes["spec"]))
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


def test_the_setting_may_be_switched_on_again() -> None:
    """As often as somebody likes."""
    site = Site()
    for _ in range(2):
        site.enabled = True
        assert site.sweep() == ["df1", "sb1"]
        site.enabled = False
        assert site.sweep() == []
        assert site.sweep() == []


def test_what_was_left_by_an_earlier_volcano_goes_with_the_setting() -> None:
    """While it was not installed, nothing was cleared."""
    ours = {"metadata": {"name": "old", "labels": {SOURCE_LABEL: SOURCE}}, "spec": {"tier": 1}}
    site = Site(volcano=Volcano(served=False))
    site.sweep()
    site.volcano.served, site.volcano.hyper_nodes["old"] = True, ours
    site.enabled = False

    assert site.sweep() == []


def test_without_volcano_and_setting_the_api_server_is_asked_once() -> None:
    """Most clusters have neither."""
    site = Site(volcano=Volcano(served=False), enabled=False)
    for _ in range(3):
        site.sweep()

    assert site.volcano.calls == 1


@pytest.mark.parametrize("labels", [None, {}, {SOURCE_LABEL: ""}, {SOURCE_LABEL: "ufm"}])
def test_hyper_nodes_without_our_label_are_those_of_others(labels: object) -> None:
    """They may have been written by hand, without any."""
    foreign = {"metadata": {"name": "hand-made", "labels": labels}, "spec": {"tier": 7}}
    site = Site(volcano=Volcano(hyper_nodes={"hand-made": foreign}))

    assert site.sweep() == ["df1", "hand-made", "sb1"]


def test_the_log_says_once_what_was_written_and_what_is_in_the_way() -> None:
    """Sweeps come every few seconds."""
    site = Site()
    with capture_logs() as logs:
        for _ in range(2):
            site.sweep()
        for name in ("df1", "sb1"):
            foreign = {"metadata": {"name": name, "labels": None}, "spec": {"tier": 7}}
            site.volcano.hyper_nodes[name] = foreign
            for _ in range(2):
                site.sweep()
        site.volcano.hyper_nodes.clear()
        site.sweep()
        site.tree = Tree()
        site.sweep()

    assert [line for line in logs if line["log_level"] == "info"] == [
        {"event": "HyperNodes", "log_level": "info", "written": 2, "deleted": 0},
        {"event": "HyperNodes", "log_level": "info", "written": 2, "deleted": 0},
        {"event": "HyperNodes", "log_level": "info", "written": 0, "deleted": 2},
    ]
    warned = [list(line["names"]) for line in logs if line["log_level"] == "warning"]
    assert warned == [["df1"], ["df1", "sb1"]]


def test_without_the_component_and_the_setting_nothing_fails() -> None:
    """As in the base, whose webhook has no right to read HyperNodes; it is not asked again."""
    site = Site(volcano=Volcano(allowed=False), enabled=False)
    for _ in range(3):
        site.sweep()
    assert site.volcano.calls == 1


def test_the_setting_without_the_component_fails() -> None:
    """The log says which right is missing."""
    site = Site(volcano=Volcano(allowed=False))
    for _ in range(2):
        with pytest.raises(ApiError, match="403 Forbidden"):
            site.sweep()


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
    count: int,
    *,
    size: int = 64,
    limits: tuple[tuple[str, int], ...] = ((GPU, 8),),
    start: int = 0,
) -> list[GroupPod]:
    """Return pods of one PodGroup, of which the first names the size of a group."""
    return [
        GroupPod(
            uid=f"u{number}",
            job=JOB,
            name=f"w-{number}",
            size=size if number == start else 0,
            limits=limits,
        )
        for number in range(start, start + count)
    ]


@dataclass(slots=True)
class Topologies:
    """One PodGroup, and who judges it."""

    volcano: Volcano
    job: str = JOB
    pods: list[GroupPod] = field(default_factory=list)
    enabled: bool = True
    clock: FakeClock = field(default_factory=FakeClock)
    controller: PodGroupTopologyController = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.controller = PodGroupTopologyController(
            self.volcano,
            waiting=lambda: [(self.job, self.pods)] if self.pods else [],
            counts=lambda: {GPU, SLOT},
            enabled=lambda: self.enabled,
            clock=self.clock.clock(),
        )

    def judge(self, pods: list[GroupPod]) -> Json:
        """Return the spec of the PodGroup once it was judged twice with these *pods*."""
        self.pods = pods

        async def twice() -> None:
            await self.controller.sweep()
            await self.controller.sweep()

        asyncio.run(twice())
        spec: Json = self.volcano.pod_groups["demo"]["spec"]
        return {name: value for name, value in spec.items() if value is not None}


def topologies(spec: Json, *, job: str = JOB, conflicts: int = 0) -> Topologies:
    group = {"metadata": {"name": "demo", "uid": "u"}, "spec": dict(spec)}
    return Topologies(Volcano(pod_groups={"demo": group}, conflicts=conflicts), job=job)


TOPOLOGY = {"mode": "hard", "highestTierAllowed": 2}


def policy(size: int) -> Json:
    """Return what keeps groups of *size* pods together."""
    return {
        "name": "vgpu-admission.io",
        "matchLabelKeys": ["vgpu-admission.io/group"],
        "subGroupSize": size,
        "networkTopology": TOPOLOGY,
    }


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
    ],
)
def test_a_pod_group_that_is_one_group_stays_in_one_hyper_node(
    spec: Json, pods: list[GroupPod], conflicts: int
) -> None:
    """GPUs are counted in one vocabulary only; a conflict is tried again."""
    scene = topologies(spec, conflicts=conflicts)
    assert scene.judge(pods)["networkTopology"] == TOPOLOGY
    assert not scene.volcano.labels


@pytest.mark.parametrize("conflicts", [0, 1, 9])
def test_several_groups_are_told_by_labels(conflicts: int) -> None:
    """Once all pods of all groups are there; a conflict is tried again."""
    scene = topologies({"minMember": 16}, conflicts=conflicts)
    assert scene.judge(members(15)) == {"minMember": 16}
    for _ in range(conflicts):
        scene.judge(members(16))
    assert scene.judge(members(16))["subGroupPolicy"] == [policy(8)]
    assert scene.volcano.labels == {f"w-{number}": str(number // 8) for number in range(16)}


def test_a_pod_that_is_made_again_gets_its_label() -> None:
    """Also from a new leader, who finds the policy that the one before wrote."""
    scene = topologies({"minMember": 16})
    scene.judge(members(16))
    for restart in (False, True):
        scene.volcano.labels.clear()
        if restart:
            scene.restart()
        again = [replace(pod, uid=f"{restart}{pod.uid}") for pod in members(16)[5:6]]
        scene.judge([*members(5), *again, *members(16)[6:]])
        assert scene.volcano.labels["w-5"] == "0"
        assert scene.volcano.pod_groups["demo"]["spec"]["subGroupPolicy"] == [policy(8)]


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({"minMember": 9}, members(1)),
        ({"minMember": 1}, members(9)),
        ({"minMember": 17}, members(16)),
        ({"minMember": 12}, [*members(7), *members(9, size=0, start=9)]),
        ({"minMember": 8}, members(8, size=0)),
        ({"minMember": 8}, members(8, size=8)),
        ({"minMember": 8}, members(8, limits=())),
        ({"minMember": 8}, members(8, limits=(("example.com/nic", 8),))),
        ({"minMember": 8}, members(8, limits=((GPU, 0),))),
        ({"minMember": 8}, members(8, limits=((GPU, 999999999),))),
        ({"minMember": "8"}, members(8)),
        ({"minMember": 1e30}, members(8)),
        ({"minMember": 2**63}, members(8)),
        ({"minMember": ["8"]}, members(8)),
        ({"minMember": {}}, members(8)),
        ({"subGroupPolicy": "x"}, members(8)),
        ({"subGroupPolicy": [None]}, members(8)),
        ({"subGroupPolicy": [{"name": 8}]}, members(8)),
        ({"subGroupPolicy": [{}]}, members(8)),
        ({"subGroupPolicy": [{"name": "vgpu-admission.io "}]}, members(16)),
        ({"subGroupPolicy": [policy(4), {"name": "worker"}]}, members(16)),
        ({"networkTopology": {"mode": "soft"}}, members(8)),
        ({"networkTopology": {"mode": "soft"}}, members(16)),
    ],
)
def test_any_other_pod_group_is_left_alone(spec: Json, pods: list[GroupPod]) -> None:
    """Groups are incomplete, it asks for none of our GPUs, or somebody else knows better."""
    scene = topologies(spec)
    scene.judge(pods)
    assert scene.volcano.pod_groups["demo"]["spec"] == spec
    assert not scene.volcano.labels


def test_a_topology_of_ours_follows_the_number_of_pods() -> None:
    """With one of one group, pods of a second could never be in another domain."""
    scene = topologies({})
    assert scene.judge(members(8)) == {"networkTopology": TOPOLOGY}
    assert scene.judge(members(9)) == {}
    assert scene.judge(members(16)) == {"subGroupPolicy": [policy(8)]}
    assert scene.judge(members(17)) == {}


def test_a_job_without_a_pod_group_has_no_topology() -> None:
    """Its controller is known only."""
    scene = topologies({"minMember": 8}, job="team-a/owner u")
    assert scene.judge(members(8)) == {"minMember": 8}
    assert scene.volcano.calls == 0


@pytest.mark.parametrize(
    ("spec", "calls"),
    [
        pytest.param({}, 1, id="written"),
        pytest.param({"minMember": 9}, 1, id="nothing-to-write"),
        pytest.param({"subGroupPolicy": [{"name": "worker"}]}, 1, id="of-others"),
        pytest.param({"minMember": "8"}, 1, id="malformed"),
    ],
)
def test_a_pod_group_is_judged_once_for_its_pods(spec: Json, calls: int) -> None:
    """Sweeps come every few seconds; new pods are a reason to look again."""
    scene = topologies(spec)
    for count in (1, 2):
        scene.judge(members(8, start=8 * (count - 1)))
        assert scene.volcano.calls == count * calls


def test_a_pod_group_that_is_not_there_is_not_asked_for_again() -> None:
    """Until there are new pods."""
    scene = topologies({})
    del scene.volcano.pod_groups["demo"]
    scene.pods = members(8)
    for _ in range(3):
        asyncio.run(scene.controller.sweep())
    assert scene.volcano.calls == 1
    scene.pods = members(9)
    asyncio.run(scene.controller.sweep())
    assert scene.volcano.calls == 2


def test_a_conflict_is_tried_again_at_the_next_look() -> None:
    """With the same pods."""
    scene = topologies({}, conflicts=1)
    scene.judge(members(8))
    assert scene.volcano.calls == 2


def test_without_the_setting_no_pod_group_is_touched() -> None:
    """Once it is on again, all are looked at again, and who wrote what is not known any more."""
    scene = topologies({})
    scene.enabled = False
    assert scene.judge(members(8)) == {}
    assert scene.volcano.calls == 0
    scene.enabled = True
    assert scene.judge(members(8)) == {"networkTopology": TOPOLOGY}
    scene.enabled = False
    scene.judge(members(8))
    scene.enabled = True
    scene.judge(members(8))
    assert scene.volcano.calls == 2
    assert scene.judge(members(9)) == {"networkTopology": TOPOLOGY}


def test_a_job_that_is_over_is_forgotten() -> None:
    """A later one of its name may have a topology of its own."""
    scene = topologies({})
    assert scene.judge(members(8)) == {"networkTopology": TOPOLOGY}
    scene.judge([])
    soft = {"mode": "soft"}
    scene.volcano.pod_groups["demo"]["spec"] = {"networkTopology": soft}
    assert scene.judge(members(8)) == {"networkTopology": soft}
    assert scene.volcano.calls == 2


def test_a_topology_that_somebody_writes_beside_our_policy_is_theirs() -> None:
    """Ours was taken back when the PodGroup became several groups."""
    scene = topologies({})
    assert scene.judge(members(8)) == {"networkTopology": TOPOLOGY}
    assert scene.judge(members(16)) == {"subGroupPolicy": [policy(8)]}
    soft = {"mode": "soft"}
    scene.volcano.pod_groups["demo"]["spec"]["networkTopology"] = soft
    assert scene.judge(members(17)) == {"networkTopology": soft, "subGroupPolicy": [policy(8)]}


def test_the_log_says_what_was_written_and_what_could_not_be_read() -> None:
    """Once each."""
    with capture_logs() as logs:
        topologies({}).judge(members(8))
        topologies({"minMember": "8"}).judge(members(8))
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("network topology of a PodGroup", "info"),
        ("PodGroup not read", "warning"),
    ]


def bound(*numbers: int, count: int = 16) -> list[GroupPod]:
    """Return *count* pods of one PodGroup, of which these *numbers* have a node."""
    pods = members(count)
    return [replace(pod, node="n1" if i in numbers else "") for i, pod in enumerate(pods)]


TELLS: list[Json] = [
    {"networkTopology": None, "subGroupPolicy": None},
    {"networkTopology": None, "subGroupPolicy": [policy(8)]},
]


def told_of(pods: list[GroupPod], *, conflicts: int = 0) -> Topologies:
    """Return a PodGroup of two groups that was told of them, after which *pods* are as they are."""
    scene = topologies({"minMember": 16})
    scene.judge(members(16))
    scene.volcano.written.clear()
    scene.volcano.labels.clear()
    scene.judge(pods)
    scene.volcano.conflicts = conflicts
    return scene


def test_a_group_bound_in_part_is_told_again() -> None:
    """The policy goes and comes; labels are there. Not at once: binds take their time."""
    scene = told_of(bound(3))
    for after, times in (
        (PARTLY_BOUND_SECONDS - 0.1, 0),
        (0.1, 1),
        (REPEAT_SECONDS - 0.1, 1),
        (0.1, 2),
    ):
        scene.clock.now += after
        with capture_logs() as logs:
            scene.judge(bound(3))
        assert scene.volcano.written == TELLS * times
        warned = [line["job"] for line in logs if line["log_level"] == "warning"]
        assert warned == ([JOB] if after == 0.1 else [])
    assert not scene.volcano.labels


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(bound(), id="none-is-bound"),
        pytest.param(bound(*range(8)), id="one-whole-group-is-bound"),
        pytest.param(bound(*range(8, 16)), id="the-other-is"),
        pytest.param(bound(*range(1, 8))[1:], id="who-is-not-bound-has-ended"),
    ],
)
def test_whole_groups_that_wait_are_not_told_again(pods: list[GroupPod]) -> None:
    """They wait for room."""
    scene = told_of(pods)
    scene.clock.now += PARTLY_BOUND_SECONDS
    scene.judge(pods)
    assert scene.volcano.written == []


def test_the_time_in_which_a_group_is_whole_does_not_count() -> None:
    """It was bound and a pod of it was made again."""
    scene = told_of(bound(3))
    scene.clock.now += PARTLY_BOUND_SECONDS - 0.1
    scene.judge(bound(*range(8)))
    scene.clock.now += 0.1
    scene.judge(bound(3))
    assert scene.volcano.written == []


def test_a_pod_group_that_is_one_group_is_not_told_again() -> None:
    """It has no labels that vc-scheduler could see too late."""
    scene = topologies({"minMember": 8})
    scene.judge(members(8))
    scene.volcano.written.clear()
    for _ in range(2):
        scene.judge(bound(3, count=8))
        scene.clock.now += PARTLY_BOUND_SECONDS
    assert scene.volcano.written == []


def test_what_fails_while_a_group_is_told_again_is_made_good() -> None:
    """Also where the policy was withdrawn already and the API server fails then."""
    scene = told_of(bound(3), conflicts=1)
    scene.clock.now += PARTLY_BOUND_SECONDS
    scene.judge(bound(3))
    assert scene.volcano.pod_groups["demo"]["spec"]["subGroupPolicy"] == [policy(8)]
    scene.clock.now += REPEAT_SECONDS
    scene.volcano.fails_at = 2
    with pytest.raises(ApiError, match="503"):
        scene.judge(bound(3))
    assert scene.volcano.pod_groups["demo"]["spec"]["subGroupPolicy"] is None
    assert scene.judge(bound(3))["subGroupPolicy"] == [policy(8)]


def test_who_wrote_a_policy_of_his_own_meanwhile_keeps_it() -> None:
    """He knows better."""
    scene = told_of(bound(3))
    theirs = [{"name": "worker"}]
    scene.volcano.pod_groups["demo"]["spec"]["subGroupPolicy"] = theirs
    scene.clock.now += PARTLY_BOUND_SECONDS
    assert scene.judge(bound(3))["subGroupPolicy"] == theirs


def test_a_later_job_of_the_same_name_begins_anew() -> None:
    """What was known of the groups and the waiting of the one before is gone."""
    scene = told_of(bound(3))
    scene.judge([])
    scene.clock.now += PARTLY_BOUND_SECONDS
    scene.judge(bound(3))
    assert scene.volcano.written == []
