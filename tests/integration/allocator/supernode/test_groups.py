"""Groups over what watches have: nodes that take nothing are room for no group."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from aiohttp import web

from allocator.cluster.assumed_pods import AssumedPods
from allocator.cluster.inventory import GPU_NODES, NODES, Inventory
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.groups.members import GroupPod
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.model.request import PodRequest
from allocator.scheduling.group_steering import GroupSteering, LedgerIndex
from allocator.supernode.groups import GroupService, group_service
from kube.clock import Clock
from kube.events import Event
from tests.builders.gpunodes import NOON, Json, entry, gpu_node
from tests.builders.groups import whole
from tests.builders.model import nodes_of, soft_grant
from tests.builders.supernodes import Boxes, node_group
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.integration.allocator.cluster.test_inventory import play, until
from tests.integration.allocator.groups.test_node_groups_client import topo_master

SETTINGS = "/api/v1/namespaces/system/configmaps"
NAMES = ("n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8")
TWO_FLIES: Boxes = {"sb1": {"df1": ("n1", "n2"), "df2": ("n3", "n4")}, "sb2": {"df3": NAMES[4:]}}
TREE = node_group(TWO_FLIES)
JOB = "team-a/owner j"


@dataclass(frozen=True, slots=True)
class Site:
    """A server, and the groups of a replica that follows it."""

    server: ApiServer
    groups: GroupService
    events: list[Event]

    def member(self, *uids: str, size: int = 16, node: str = "") -> None:
        """Let the pods of a job be known, of which the first names the size of its groups."""
        made = {
            uid: GroupPod(
                uid=uid,
                job=JOB,
                name=uid,
                size=0 if at else size,
                node=node,
                created=NOON,
            )
            for at, uid in enumerate(uids)
        }
        self.groups.pods.update(made)

    def steerings(self) -> list[GroupSteering]:
        """Return the cluster as watches have it, and as all ledgers read anew have it."""
        inventory, assumed = self.groups.inventory, AssumedPods()
        ledgers = LedgerIndex.of((inventory.ledgers() or {}).values())
        found = [
            self.groups.steering(assumed),
            self.groups.steering_on_ledgers(ledgers, assumed),
        ]
        assert None not in found
        return [one for one in found if one is not None]

    def open_nodes(self, uid: str, *, gpus: int = 8) -> list[list[str]]:
        """Return where each steering, and the extender, sends a pod."""
        known, request = self.groups.pods.pod(uid), whole(gpus)
        failed: list[Mapping[str, object]] = [
            one.failures(NAMES, pod=known, uid=uid, request=request) for one in self.steerings()
        ]
        failed.append(self.failures(asking(uid, gpus=gpus)))
        return [[name for name in NAMES if name not in one] for one in failed]

    def failures(self, pod: SchedulingPod) -> dict[str, str]:
        """Return what the extender says of each node, where it takes no pod because of groups."""
        found = self.groups.failures(self.groups.inventory.index(), pod, NAMES)
        return {name: failure.text for name, failure in found.items()}


def asking(
    uid: str, *, gpus: int = 8, member: GroupPod | None = None, claim: PodRequest | None = None
) -> SchedulingPod:
    """Return a pod that a scheduler asks about."""
    return SchedulingPod(
        uid=uid,
        namespace="team-a",
        name=uid,
        claim=PodClaim(uid=uid, request=claim or whole(gpus)),
        member=member,
    )


def played(
    scene: Callable[[Site], Awaitable[None]], *, nodes: Mapping[str, Json], answer: str | None
) -> None:
    """Run *scene* with GPUNodes *nodes*; topo-master answers *answer*, ``None``: is not asked."""

    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(text=answer)

    async def run(server: ApiServer, inventory: Inventory) -> None:
        for document in nodes.values():
            name = document["metadata"]["name"]
            server.objects.create(parsed(GPU_NODES), document)
            status = {"nodeInfo": {"bootID": "boot-1"}}
            server.objects.create(parsed(NODES), {"metadata": {"name": name}, "status": status})
        await until(lambda: len(inventory.nodes() or ()) == len(inventory.ledgers() or ()) == 8)
        events: list[Event] = []
        made = group_service(inventory, "system", events.append)
        site = Site(server, replace(made, clock=Clock(wall=lambda: NOON)), events)
        async with topo_master(serve) as url:
            if answer is not None:
                text = f"nodeGroupURL: {url}\ngangTimeoutSeconds: 60\n"
                written = {"settings.yaml": text}
                settings = {"metadata": {"name": "vgpu-admission-settings"}, "data": written}
                server.objects.create(parsed(SETTINGS), settings)
                await until(lambda: inventory.settings.node_group_url)
                await made.node_groups.read(url)
            await scene(site)

    play(run)


def fleet(**changed: Json) -> dict[str, Json]:
    """Return eight nodes of 8 GPUs, of which some are *changed*."""
    return {name: gpu_node(nodes_of(8, name=name)) for name in NAMES} | changed


def filled(name: str, uid: str, *, gpus: int = 8) -> tuple[Node, Entry]:
    """Return a node of whose GPUs a pod has some."""
    node = nodes_of(8, name=name)
    return node, entry(uid, *(soft_grant(40000, 100, gpu=gpu.uuid) for gpu in node.gpus[:gpus]))


CLOSED = gpu_node(nodes_of(8, name="n2"), inventory="", closed="its agent has gone")
STALE = gpu_node(nodes_of(8, name="n2"), bootID="boot-0")
OTHERS = gpu_node(nodes_of(8, name="n2"), nodeUID="of-a-node-before")
DELETED = gpu_node(nodes_of(8, name="n2"))
DELETED["metadata"] |= {"deletionTimestamp": "2026-11-21T12:00:00Z", "finalizers": ["a/b"]}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(CLOSED, id="closed"),
        pytest.param(STALE, id="of-an-earlier-boot"),
        pytest.param(OTHERS, id="of-an-earlier-node"),
        pytest.param(DELETED, id="deleted"),
    ],
)
def test_a_node_that_takes_nothing_is_room_for_no_group(document: Json) -> None:
    """The next domain that has room is taken, by caches and by ledgers that are read anew."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        assert site.open_nodes("a-0") == [["n3", "n4"]] * 3

    played(scene, nodes=fleet(n2=document), answer=json.dumps(TREE))


def test_an_open_fleet_gives_the_first_domain() -> None:
    """Without this the other tests would prove nothing."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        assert site.open_nodes("a-0") == [["n1", "n2"]] * 3

    played(scene, nodes=fleet(), answer=json.dumps(TREE))


def test_a_cordoned_node_is_room_for_no_group() -> None:
    """No scheduler sends a pod there, though its ledger is open."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        path = f"{NODES}/n1"
        body = json.dumps({"spec": {"unschedulable": True}}).encode()
        site.server.objects.patch(parsed(path), "application/merge-patch+json", body)
        nodes = site.groups.inventory.nodes
        await until(lambda: (nodes() or {})["n1"].cordoned)
        assert site.open_nodes("a-0") == [["n3", "n4"]] * 3

    played(scene, nodes=fleet(), answer=json.dumps(TREE))


def test_the_entry_of_a_member_decides_for_the_others() -> None:
    """Also where its node is closed by now; a node full of others is no room."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        assert site.open_nodes("a-1") == [["n4"]] * 3

    node, held = filled("n3", "a-0")
    played(scene, nodes=fleet(n3=gpu_node(node, [held])), answer=json.dumps(TREE))


def test_a_pod_without_a_group_leaves_room_to_one_that_waits() -> None:
    """For as long as the settings say that groups are waited for."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        assert site.open_nodes("b-0") == [["n1", "n2", "n3", *NAMES[4:]]] * 3
        late = Site(
            site.server,
            replace(site.groups, clock=Clock(wall=lambda: NOON + timedelta(seconds=61))),
            [],
        )
        assert late.open_nodes("b-0") == [list(NAMES)] * 3

    node, held = filled("n3", "a-0")
    played(scene, nodes=fleet(n3=gpu_node(node, [held])), answer=json.dumps(TREE))


def test_a_pod_that_is_being_bound_counts_as_placed() -> None:
    """Neither a cache nor a ledger has its entry yet."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        assumed = AssumedPods()
        binding = asking("a-0")
        assumed.begin(replace(binding, nominated="n5", priority=BINDING_PRIORITY))
        for steering in (
            site.groups.steering(assumed),
            site.groups.steering_on_ledgers(
                LedgerIndex.of((site.groups.inventory.ledgers() or {}).values()), assumed
            ),
        ):
            assert steering is not None
            pod, request = site.groups.pods.pod("a-1"), whole()
            failed = steering.failures(NAMES, pod=pod, uid="a-1", request=request)
            assert [name for name in NAMES if name not in failed] == ["n6", "n7", "n8"]

    played(scene, nodes=fleet(), answer=json.dumps(TREE))


def test_a_ledger_that_was_not_read_is_no_room() -> None:
    """What watches knew of its node does not count then."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        ledgers = dict(site.groups.inventory.ledgers() or {})
        del ledgers["n1"]
        steering = site.groups.steering_on_ledgers(LedgerIndex.of(ledgers.values()), AssumedPods())
        assert steering is not None
        failed = steering.failures(
            NAMES, pod=site.groups.pods.pod("a-0"), uid="a-0", request=whole()
        )
        assert [name for name in NAMES if name not in failed] == ["n3", "n4"]

    played(scene, nodes=fleet(), answer=json.dumps(TREE))


def test_a_pod_says_itself_of_which_job_it_is() -> None:
    """Where no watch has told of it; without a size it is kept from nothing."""
    sized = GroupPod(uid="new", job="team-a/owner k", name="new", size=16, created=NOON)

    async def scene(site: Site) -> None:
        unsized = replace(sized, size=0)
        assert set(site.failures(asking("new", member=sized))) == {*NAMES} - {"n1", "n2"}
        assert site.failures(asking("new", member=unsized)) == {}
        assert site.failures(asking("new")) == {}

    played(scene, nodes=fleet(), answer=json.dumps(TREE))


def test_a_pod_that_asks_for_nothing_is_kept_from_nothing() -> None:
    """Nor one whose request cannot be read: something else refuses it."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        assert site.failures(replace(asking("a-0"), claim=None)) == {}

    played(scene, nodes=fleet(), answer=json.dumps(TREE))


def test_without_a_setting_there_are_no_groups() -> None:
    """Whatever pods say of themselves."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        ledgers = LedgerIndex.of((site.groups.inventory.ledgers() or {}).values())
        assert site.groups.steering(AssumedPods()) is None
        assert site.groups.steering_on_ledgers(ledgers, AssumedPods()) is None
        assert site.failures(asking("a-0")) == {}
        assert site.events == []

    played(scene, nodes=fleet(), answer=None)


def test_a_tree_that_cannot_be_read_lets_groups_wait_and_no_others() -> None:
    """An Event on the settings says why, with the address."""

    async def scene(site: Site) -> None:
        site.member("a-0", "a-1")
        assert set(site.failures(asking("a-0"))) == set(NAMES)
        assert {*site.failures(asking("a-0")).values()} == {
            "the tree of dragonflies and switchboxes is not known"
        }
        assert site.failures(asking("b-0")) == {}
        (event,) = site.events
        url = site.groups.inventory.settings.node_group_url
        assert (event.reason, event.action) == ("VgpuNodeGroupsUnknown", "Read")
        assert event.regarding.name == "vgpu-admission-settings"
        assert event.regarding.namespace == "system"
        assert event.note.startswith(f"nodeGroupURL {url} could not be read: ")
        assert event.note.endswith("; pods of groups wait, or go by the last tree")

    played(scene, nodes=fleet(), answer="<html>")
