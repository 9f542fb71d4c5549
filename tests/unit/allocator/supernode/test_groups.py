"""What decisions about groups rest on: nodes that take pods, entries, and pods that are coming."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import msgspec
import orjson
import pytest

from allocator.cluster.assumed_pods import AssumedPods
from allocator.cluster.inventory import GPU_NODES, NODES, Inventory
from allocator.config.settings import DEFAULTS
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.extender.reasons import FailureReason
from allocator.groups.members import GroupPod
from allocator.groups.node_groups_client import NodeGroups
from allocator.groups.tree import NO_TREE, Tree, decode_tree
from allocator.ledger.assign import PodClaim
from allocator.ledger.ledger import parse_ledger
from allocator.model.allocation import Entry
from allocator.scheduling.group_steering import GroupSteering, LedgerIndex
from allocator.supernode.group_pods import GroupPods
from allocator.supernode.groups import GroupService, group_service
from kube.client import Client
from kube.clock import Clock
from kube.events import Event, Severity
from kube.stream import END_OF_LIST
from tests.builders.gpunodes import NOON, Json, entry, gpu_node
from tests.builders.groups import whole
from tests.builders.model import nodes_of, soft_grant
from tests.builders.supernodes import node_group

GPUS = 2  # of each node
NAMES = ("n1", "n2", "n3", "n4")
TREE = decode_tree(json.dumps(node_group({"sb1": {"df1": ("n1", "n2"), "df2": ("n3", "n4")}}))).tree
URL = "http://topo-master/node_group"


@dataclass(slots=True)
class StillClient:
    """Lists the objects of each collection once, and has no news of them."""

    objects: Mapping[str, list[Json]]

    @asynccontextmanager
    async def stream(self, path: str, **_: object) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        yield self._lines(path)

    async def _lines(self, path: str) -> AsyncIterator[list[bytes]]:
        end = {"metadata": {"resourceVersion": "1", "annotations": {END_OF_LIST: "true"}}}
        found = [{"type": "ADDED", "object": one} for one in self.objects.get(path, [])]
        yield list(map(orjson.dumps, [*found, {"type": "BOOKMARK", "object": end}]))
        await asyncio.Event().wait()


class KnownTree(NodeGroups):
    """A tree that was read, or of which it is known why not."""

    def __init__(self, *, url: str = URL, tree: Tree = TREE, why_unknown: str = "") -> None:
        """Have *tree*, and *url* as the address that the settings name."""
        super().__init__(lambda: url)
        self._tree, self._why_unknown = tree, why_unknown

    @property
    def tree(self) -> Tree:
        return self._tree

    @property
    def why_unknown(self) -> str:
        return self._why_unknown


@dataclass(slots=True, kw_only=True)
class Supernode:
    """Four nodes of two GPUs in two dragonflies, as the API server has them."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)  # by node
    statuses: dict[str, Json] = field(default_factory=dict)  # of GPUNodes, where not usual
    nodes: dict[str, Json] = field(default_factory=dict)  # specs of Nodes, where not usual
    missing: frozenset[str] = frozenset()  # nodes without a GPUNode
    groups: NodeGroups = field(default_factory=KnownTree)
    pods: GroupPods = field(default_factory=GroupPods)
    clock: Clock = field(default_factory=lambda: Clock(wall=lambda: NOON))

    def gpu_nodes(self) -> list[Json]:
        return [
            gpu_node(
                nodes_of(GPUS, name=name),
                self.entries.get(name, ()),
                **{"bootID": "boot-1", "nodeUID": f"node-{name}", **self.statuses.get(name, {})},
            )
            for name in NAMES
            if name not in self.missing
        ]

    def _nodes(self) -> list[Json]:
        return [
            {
                "metadata": {"name": name, "uid": f"node-{name}"},
                "spec": self.nodes.get(name, {}),
                "status": {"nodeInfo": {"bootID": "boot-1"}},
            }
            for name in NAMES
        ]

    def service(self) -> GroupService:
        """Return the service once all watches have listed."""
        client = StillClient({GPU_NODES: self.gpu_nodes(), NODES: self._nodes()})
        inventory = Inventory(cast("Client", client), namespace="vgpu")

        async def list_all() -> None:
            following = asyncio.create_task(inventory.run())
            async with asyncio.timeout(5):
                while not inventory.synced:  # noqa: ASYNC110 -- of another task
                    await asyncio.sleep(0)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

        asyncio.run(list_all())
        return GroupService(
            inventory=inventory, node_groups=self.groups, pods=self.pods, clock=self.clock
        )

    def ledgers(self) -> LedgerIndex:
        return LedgerIndex.of(parse_ledger(one) for one in self.gpu_nodes())

    def both(self, coming: AssumedPods | None = None) -> list[GroupSteering]:
        """Return what watches have, and the same on ledgers that were read just now."""
        service, assumed = self.service(), coming or AssumedPods()
        found = [service.steering(assumed), service.steering_on_ledgers(self.ledgers(), assumed)]
        return [one for one in found if one is not None]


def open_nodes(steering: GroupSteering) -> list[str]:
    """Return the nodes whose GPUs may be given out."""
    return [name for name in (*NAMES, "n9") if steering.node_of(name) is not None]


def taken(uid: str, node: str) -> Entry:
    """Return the entry of a pod that has both GPUs of *node*."""
    return entry(uid, *(soft_grant(40000, 100, gpu=f"GPU-{node}-{n}") for n in range(GPUS)))


def scheduling_pod(uid: str = "p0", **more: Any) -> SchedulingPod:  # noqa: ANN401 -- its fields
    claim = PodClaim(uid=uid, request=whole(GPUS))
    return SchedulingPod(**{"uid": uid, "namespace": "team-a", "name": uid, "claim": claim, **more})


def member(uid: str, *, size: int = 0, node: str = "") -> GroupPod:
    return GroupPod(uid=uid, job="team-a/owner train", name=uid, size=size, node=node, created=NOON)


@pytest.mark.parametrize(
    "site",
    [
        pytest.param(
            Supernode(statuses={"n2": {"inventory": "", "closed": "it changes"}}), id="closed"
        ),
        pytest.param(Supernode(statuses={"n2": {"bootID": "boot-0"}}), id="former-boot"),
        pytest.param(Supernode(statuses={"n2": {"nodeUID": "node-old"}}), id="former-node"),
        pytest.param(Supernode(nodes={"n2": {"unschedulable": True}}), id="cordoned"),
        pytest.param(Supernode(missing=frozenset({"n2"})), id="without-a-gpunode"),
    ],
)
def test_a_node_that_takes_no_pods_has_no_room_for_a_group(site: Supernode) -> None:
    """By watches and by ledgers that were read just now."""
    steerings = site.both()

    assert [open_nodes(steering) for steering in steerings] == [["n1", "n3", "n4"]] * 2
    for steering in steerings:
        first, last = (member(f"p{n}", size=2 * GPUS) for n in range(2))
        site.pods.update({first.uid: first, last.uid: last})
        failures = steering.failures(NAMES, pod=first, uid="p0", request=whole(GPUS))
        assert sorted(failures) == ["n1", "n2"]  # a dragonfly in which it would be half


def test_all_nodes_are_open_where_nothing_is_the_matter() -> None:
    """Those that nobody knows are not."""
    assert list(map(open_nodes, Supernode().both())) == [list(NAMES)] * 2


def test_what_pods_have_counts() -> None:
    """With the node on which they have it."""
    held = taken("a", "n3")

    for steering in Supernode(entries={"n3": [held]}).both():
        assert steering.entry_of("a") == ("n3", held)
        assert steering.entry_of("b") is None
        node = steering.node_of("n3")
        assert node is not None
        assert all(gpu.grants for gpu in node.gpus)


def test_a_second_look_believes_the_ledgers_and_not_the_watches() -> None:
    """It is there to see what watches have not brought yet."""
    old, new = taken("a", "n3"), taken("b", "n1")
    service = Supernode(entries={"n3": [old]}).service()
    ledgers = Supernode(entries={"n1": [new]}, statuses={"n4": {"inventory": ""}}).ledgers()

    watched = service.steering(AssumedPods())
    read = service.steering_on_ledgers(ledgers, AssumedPods())

    assert watched is not None
    assert read is not None
    assert [watched.entry_of(uid) for uid in "ab"] == [("n3", old), None]
    assert [read.entry_of(uid) for uid in "ab"] == [None, ("n1", new)]
    assert open_nodes(read) == ["n1", "n2", "n3"]


def test_a_ledger_of_a_former_boot_counts_for_nothing_in_a_second_look() -> None:
    """The Node that the watch has is the newer one of the two."""
    service = Supernode().service()
    ledgers = Supernode(statuses={"n1": {"bootID": "boot-0"}}).ledgers()

    read = service.steering_on_ledgers(ledgers, AssumedPods())

    assert read is not None
    assert open_nodes(read) == ["n2", "n3", "n4"]


def test_an_entry_on_a_closed_node_is_found() -> None:
    """A group that has begun there goes on beside it."""
    site = Supernode(entries={"n3": [taken("a", "n3")]}, statuses={"n3": {"inventory": ""}})

    for steering in site.both():
        found = steering.entry_of("a")
        assert found is not None
        assert found[0] == "n3"


def test_pods_that_are_being_bound_count() -> None:
    """As if they were there, for both looks."""
    assumed = AssumedPods()
    coming = scheduling_pod("c", nominated="n4", priority=BINDING_PRIORITY)
    assumed.begin(coming)

    for steering in Supernode().both(assumed):
        assert dict(steering.nominations) == {"n4": (coming,)}


def test_settings_and_clock_are_handed_on() -> None:
    """For how long a group holds room, since when, and why there is no tree."""
    site = Supernode(groups=KnownTree(tree=NO_TREE, why_unknown="no answer"))
    service = site.service()
    service.inventory.settings = msgspec.structs.replace(DEFAULTS, gang_timeout_seconds=77)

    for steering in (
        service.steering(AssumedPods()),
        service.steering_on_ledgers(site.ledgers(), AssumedPods()),
    ):
        assert steering is not None
        assert (steering.now, steering.patience) == (NOON, timedelta(seconds=77))
        assert (steering.tree, steering.why_unknown) == (NO_TREE, "no answer")
        assert steering.pods is site.pods


def failures(site: Supernode, pod: SchedulingPod) -> Mapping[str, FailureReason]:
    """Return what the extender hears of all nodes."""
    service = site.service()
    return service.failures(service.inventory.index(), pod, NAMES)


def test_without_an_address_nobody_is_kept_from_anything() -> None:
    """Also pods that name the size of a group."""
    site = Supernode(groups=KnownTree(url="", why_unknown="no answer"))
    site.pods.update({"p0": member("p0", size=2 * GPUS)})

    assert site.both() == []
    assert failures(site, scheduling_pod()) == {}


def test_a_group_waits_while_the_tree_is_unknown() -> None:
    """Wherever the pod may go."""
    site = Supernode(groups=KnownTree(tree=NO_TREE, why_unknown="no answer"))
    site.pods.update({"p0": member("p0", size=2 * GPUS)})

    assert set(failures(site, scheduling_pod())) == set(NAMES)


@pytest.mark.parametrize(
    ("known", "own", "kept"),
    [
        pytest.param(None, None, False, id="of-no-job"),
        pytest.param(None, 0, False, id="of-a-job-without-groups"),
        pytest.param(None, 2 * GPUS, True, id="in-its-own-words"),
        pytest.param(2 * GPUS, None, True, id="by-the-watch"),
        pytest.param(2 * GPUS, 0, True, id="by-the-watch-first"),
    ],
)
def test_a_member_is_known_by_the_watch_or_else_by_itself(
    known: int | None, own: int | None, *, kept: bool
) -> None:
    """A pod may ask before the watch tells of it; n1 is full, so a group goes to n3 and n4."""
    site = Supernode(entries={"n1": [taken("a", "n1")]})
    if known is not None:
        site.pods.update({"p0": member("p0", size=known)})
    pod = scheduling_pod(member=None if own is None else member("p0", size=own))

    assert sorted(failures(site, pod)) == (["n1", "n2"] if kept else [])


def test_a_pod_of_no_group_leaves_alone_what_groups_need() -> None:
    """A group of two has begun on n3, and holds n4."""
    site = Supernode(entries={"n3": [taken("g0", "n3")]})
    site.pods.update({"g0": member("g0", size=2 * GPUS, node="n3"), "g1": member("g1")})

    assert sorted(failures(site, scheduling_pod())) == ["n4"]
    assert sorted(failures(site, scheduling_pod("g1"))) == ["n1", "n2", "n3"]


def test_a_pod_without_gpus_goes_anywhere() -> None:
    """Groups hold GPUs and nothing else."""
    site = Supernode(entries={"n3": [taken("g0", "n3")]})
    site.pods.update({"g0": member("g0", size=2 * GPUS, node="n3"), "g1": member("g1")})

    assert failures(site, scheduling_pod(claim=None)) == {}


def test_an_entry_that_the_index_has_not_yet_is_none() -> None:
    """The index follows the watch of GPUNodes some time later; by it no pod has begun on n3."""
    site = Supernode(entries={"n3": [taken("g0", "n3")]})
    site.pods.update({"g0": member("g0", size=2 * GPUS), "g1": member("g1")})
    earlier = Supernode().service().inventory.index()

    found = site.service().failures(earlier, scheduling_pod("g1"), NAMES)

    assert sorted(found) == ["n3", "n4"]


def test_before_the_watches_have_listed_there_is_no_node_and_no_error() -> None:
    """A group has room nowhere then."""
    inventory = Inventory(cast("Client", StillClient({})), namespace="vgpu")
    steering = GroupService(inventory=inventory, node_groups=KnownTree()).steering(AssumedPods())

    assert steering is not None
    assert open_nodes(steering) == []


def test_an_event_says_why_the_tree_could_not_be_read() -> None:
    """On the ConfigMap that names the address, with the address."""
    events: list[Event] = []
    inventory = Supernode().service().inventory
    service = group_service(inventory, "vgpu-system", events.append)
    assert not service.node_groups.wanted

    url = "http://127.0.0.1:9/node_group"  # nobody listens at the port for discarding
    inventory.settings = msgspec.structs.replace(DEFAULTS, node_group_url=url)
    assert service.node_groups.wanted
    asyncio.run(service.node_groups.read(url))

    (event,) = events
    assert (event.severity, event.reason) == (Severity.WARNING, "VgpuNodeGroupsUnknown")
    assert (event.regarding.kind, event.regarding.namespace) == ("ConfigMap", "vgpu-system")
    assert event.note.startswith(f"nodeGroupURL {url} could not be read: ")
