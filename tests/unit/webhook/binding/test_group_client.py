"""Groups at a bind: where a member may go, and which of two groups that begin at once stays."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Unpack

import orjson
import pytest

from allocator.catalog.keys import GROUP_SIZE_KEY
from allocator.cluster.assumed_pods import AssumedPods
from allocator.config.settings import DEFAULTS
from allocator.ledger.ledger import Ledger
from allocator.model.gpu import Node
from allocator.scheduling.group_steering import GroupSteering, LedgerIndex
from allocator.supernode.group_pods import GroupPods
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError, UnreachableError
from tests.builders.bindings import answered, binding, review, stored
from tests.builders.gpunodes import NOON, Json, entry, gpu_node
from tests.builders.groups import SupernodeCluster
from tests.builders.model import nodes_of, snapshot, soft_grant
from tests.builders.pods import CORES, NUMBER, admitted, container, pod, received
from tests.fakes.api_client import FakeApiClient
from tests.fakes.ledger_server import patched_or_refused
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.commit_client import LateError
from webhook.binding.group_client import GroupGuard

NODES = [f"n{number}" for number in range(1, 9)]
CONTEXT = AdmissionContext(
    settings=DEFAULTS, snapshot=snapshot(*(nodes_of(8, name=name) for name in NODES))
)
WHOLE = {NUMBER: 8, CORES: 100, "volcano.sh/vgpu-memory-percentage": 100}
ASKING = admitted(received(pod(container(limits=WHOLE))), CONTEXT)


@dataclass(slots=True)
class Ledgers(FakeApiClient):
    """An API server with eight GPUNodes and the pods of two jobs of four."""

    stored: dict[str, Json]
    pods: dict[str, Json]
    before_list: Callable[[], None] = lambda: None
    before_removal: Callable[[], None] = lambda: None
    removals: int = 0
    lists: int = 0

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        await asyncio.sleep(0)
        name = path.rpartition("/")[2]
        if name == "gpunodes":
            self.lists += 1
            self.before_list()
            return orjson.dumps({"items": list(self.stored.values())})
        return orjson.dumps((self.stored if "/gpunodes/" in path else self.pods)[name])

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        await asyncio.sleep(0)
        name = path.rpartition("/")[2]
        if any(op["op"] == "remove" for op in ops):
            self.removals += 1
            self.before_removal()
        self.stored[name] = patched_or_refused(self.stored[name], ops)
        return orjson.dumps(self.stored[name])


@dataclass(slots=True)
class Known:
    """What one replica knows: ledgers as they were when it last heard of them."""

    cluster: SupernodeCluster
    heard: LedgerIndex = field(default_factory=lambda: LedgerIndex({}, {}))

    @property
    def pods(self) -> GroupPods:
        return self.cluster.pods

    def steering(self, assumed_pods: AssumedPods) -> GroupSteering | None:
        del assumed_pods
        return self.cluster.steering()

    def steering_on_ledgers(
        self, ledgers: LedgerIndex, assumed_pods: AssumedPods
    ) -> GroupSteering | None:
        del assumed_pods
        known = self.cluster.steering()

        def node_of(name: str) -> Node | None:
            ledger = ledgers.ledgers.get(name)
            return None if ledger is None else ledger.node

        return replace(known, node_of=node_of, entry_of=ledgers.entries.get)


def server() -> Ledgers:
    names = [f"{job}-{number}" for job in "ab" for number in range(4)]
    return Ledgers(
        stored={name: gpu_node(nodes_of(8, name=name)) for name in NODES},
        pods={name: stored(ASKING, name=name, uid=name) for name in names},
    )


def replica(calls: Ledgers, *, boxes: Mapping[str, Mapping[str, Sequence[str]]]) -> BindingHandler:
    """Return a replica that has heard of the pods of both jobs, and of no entry."""
    cluster = SupernodeCluster(boxes=boxes, now=NOON + timedelta(hours=1))
    for job in "ab":
        cluster.make(job, *(f"{job}-{number}" for number in range(4)), size=32)
    clock = Clock(random=lambda: 0)
    binder = BindingHandler(
        calls=calls,
        context_of=lambda _: CONTEXT,
        nodes_with_entry=lambda _: frozenset(),
        clock=clock,
    )
    binder.groups = GroupGuard(
        calls=calls,
        groups=Known(cluster),
        assumed_pods=binder.assumed_pods,
        ledger_of=_unknown,
        clock=clock,
    )
    return binder


def unguarded(calls: Ledgers) -> BindingHandler:
    """Return a replica that knows no groups."""
    binder = replica(calls, boxes=TWO_BOXES)
    binder.groups = None
    return binder


def at_once(
    calls: Ledgers, boxes: Mapping[str, Mapping[str, Sequence[str]]], nodes: Mapping[str, str]
) -> list[Json]:
    """Bind each pod of *nodes* to its node at the same time, each by a replica of its own."""

    async def all_of_them() -> list[Json]:
        binds = (bind(replica(calls, boxes=boxes), pod, node) for pod, node in nodes.items())
        return list(await asyncio.gather(*binds))

    return asyncio.run(all_of_them())


def _unknown(_: str) -> Ledger | None:
    return None


ONE_BOX = {"sb1": {"df1": ("n1", "n2"), "df2": ("n3", "n4")}}
TWO_BOXES = {**ONE_BOX, "sb2": {"df3": ("n5", "n6"), "df4": ("n7", "n8")}}


async def bind(binder: BindingHandler, name: str, node: str, *, dry: bool = False) -> Json:
    written = binding(node=node, name=name, uid=name)
    return answered(await binder.bind(review(written, name=name, dryRun=dry)))


def entries(calls: Ledgers) -> dict[str, str]:
    """Return the node of each pod with an entry."""
    return {
        entry["pod"]["name"]: name
        for name, one in calls.stored.items()
        for entry in one["spec"]["entries"]
    }


def test_a_node_outside_the_domain_of_a_group_is_denied() -> None:
    """The sentence says so, and nothing is committed; a dry run gets the same answer."""
    calls = server()
    binder = replica(calls, boxes=ONE_BOX)
    for dry in (True, False):
        answer = asyncio.run(bind(binder, "a-0", "n5", dry=dry))
        assert not answer["allowed"]
        message = answer["status"]["message"]
        assert message == 'node "n5": outside the domain of the pod\'s group [GroupDoesNotFit]'
    assert entries(calls) == {}


def test_a_first_pod_gets_its_node() -> None:
    """Its group has the domain to itself."""
    calls = server()
    assert asyncio.run(bind(replica(calls, boxes=ONE_BOX), "a-0", "n2"))["allowed"]
    assert entries(calls) == {"a-0": "n2"}


def test_of_two_groups_that_begin_at_once_one_stays() -> None:
    """Two replicas that know nothing of each other would give half of the room to each."""
    calls = server()

    first, second = at_once(calls, ONE_BOX, {"a-0": "n1", "b-0": "n3"})
    assert first["allowed"]
    assert not second["allowed"]
    assert "another group takes its room" in str(second["status"])
    assert entries(calls) == {"a-0": "n1"}


def rivals(calls: Ledgers) -> list[Json]:
    """Return the answers to the first pods of two groups, of which one has room, at once."""

    async def both() -> list[Json]:
        replicas = [replica(calls, boxes=ONE_BOX) for _ in range(2)]
        binds = (bind(replicas[0], "a-0", "n1"), bind(replicas[1], "b-0", "n3"))
        return list(await asyncio.gather(*binds))

    return asyncio.run(both())


@pytest.mark.parametrize(
    "error",
    [
        ConflictError(409, "Conflict", "changed"),
        InvalidError(422, "Invalid", "a test failed"),
        NotFoundError(404, "NotFound", "gone"),
    ],
)
def test_an_entry_that_changed_meanwhile_is_left_to_expire(error: KubeError) -> None:
    """Until then its group has room that the other one needs, so both go back."""
    calls = server()

    def fail() -> None:
        raise error

    calls.before_removal = fail
    first, second = rivals(calls)

    for answer in (first, second):
        assert not answer["allowed"]
        assert "another group takes its room" in str(answer["status"])
        assert answer["status"]["code"] == 409
    assert entries(calls) == {"a-0": "n1", "b-0": "n3"}
    assert calls.removals == 2


def test_a_ledger_that_has_moved_on_keeps_the_entry() -> None:
    """An entry may be held by then, so it is removed on the version that was read or not at all."""
    calls = server()

    def move() -> None:
        calls.stored["n3"]["metadata"]["resourceVersion"] = "999"

    calls.before_removal = move
    _, second = rivals(calls)

    assert not second["allowed"]
    assert entries(calls) == {"b-0": "n3"}


def test_an_api_server_that_is_away_is_no_denial() -> None:
    """The API server asks again, and the pod's own entry is there already."""
    calls = server()

    def fail() -> None:
        raise UnreachableError("down", sent=False)

    calls.before_removal = fail
    with pytest.raises(LateError):
        rivals(calls)


def test_all_ledgers_are_read_until_a_pod_of_the_group_is_bound() -> None:
    """An entry may be withdrawn, or be one of two; later binds cost no more than any other."""
    calls = server()
    binder = replica(calls, boxes=ONE_BOX)
    assert isinstance(binder.groups, GroupGuard)
    known = binder.groups.groups
    assert isinstance(known, Known)

    assert asyncio.run(bind(binder, "a-0", "n1"))["allowed"]
    assert calls.lists == 1
    known.cluster.place("a-0", "n1")
    assert asyncio.run(bind(binder, "a-1", "n2"))["allowed"]
    assert calls.lists == 2
    known.cluster.place("a-0", "n1", bound=True)
    assert asyncio.run(bind(binder, "a-2", "n3"))["allowed"]
    assert calls.lists == 2


@pytest.mark.parametrize("node", ["n2", "n6"])
def test_nobody_opens_a_group_beside_a_member_on_two_nodes(node: str) -> None:
    """The answer to one of its binds was lost, and it may be bound to either of them."""
    calls = server()
    assert asyncio.run(bind(replica(calls, boxes=TWO_BOXES), "a-0", "n1"))["allowed"]
    assert asyncio.run(bind(unguarded(calls), "a-0", "n5"))["allowed"]

    answer = asyncio.run(bind(replica(calls, boxes=TWO_BOXES), "a-1", node))

    assert not answer["allowed"]
    assert "another group takes its room" in answer["status"]["message"]
    assert "a-1" not in entries(calls)


def test_two_groups_that_both_find_room_both_stay() -> None:
    """Each in a domain of its own."""
    calls = server()

    answers = at_once(calls, TWO_BOXES, {"a-0": "n1", "b-0": "n5"})

    assert [answer["allowed"] for answer in answers] == [True, True]


def test_two_pods_of_one_group_that_begin_at_once_end_in_one_domain() -> None:
    """Each replica may have chosen another; one of the two goes back to its scheduler."""
    calls = server()

    answers = at_once(calls, TWO_BOXES, {"a-0": "n1", "a-1": "n5"})

    assert sum(answer["allowed"] for answer in answers) == 1
    assert len(entries(calls)) == 1


def test_a_group_that_began_before_stays_whatever_its_name() -> None:
    """The later one withdraws, also if its key is the smaller one."""
    calls = server()
    assert asyncio.run(bind(replica(calls, boxes=ONE_BOX), "b-0", "n3"))["allowed"]
    answer = asyncio.run(bind(replica(calls, boxes=ONE_BOX), "a-0", "n1"))
    assert not answer["allowed"]
    assert entries(calls) == {"b-0": "n3"}


@pytest.mark.parametrize("size", ["32", None, "garbage"])
def test_a_pod_that_no_watch_told_of_is_judged_by_itself(size: str | None) -> None:
    """Its own metadata say which job it is of, and how large its groups are."""
    calls = server()
    owner = {"kind": "Job", "name": "new", "uid": "owner-1", "controller": True}
    named = {} if size is None else {GROUP_SIZE_KEY: size}
    annotations = {**ASKING["metadata"].get("annotations", {}), **named}
    calls.pods["new-0"] = stored(
        ASKING, name="new-0", uid="new-0", annotations=annotations, ownerReferences=[owner]
    )
    answer = asyncio.run(bind(replica(calls, boxes=ONE_BOX), "new-0", "n5"))
    if size == "garbage":
        assert "is not a number of GPUs" in str(answer["status"])
    else:
        assert answer["allowed"] == (size is None)


@pytest.mark.parametrize("scheduler", ["volcano", "default-scheduler"])
def test_only_a_scheduler_that_chooses_tiers_may_take_a_wider_one(scheduler: str) -> None:
    """A dragonfly has the room; another scheduler would spread a group for nothing."""
    calls = server()
    owner = {"kind": "Job", "name": "new", "uid": "owner-1", "controller": True}
    annotations = {**ASKING["metadata"].get("annotations", {}), GROUP_SIZE_KEY: "16"}
    asking = {**ASKING, "spec": {**ASKING["spec"], "schedulerName": scheduler}}
    metadata = {"annotations": annotations, "ownerReferences": [owner]}
    calls.pods["new-0"] = stored(asking, name="new-0", uid="new-0", **metadata)
    # One node of the other dragonfly is taken, so two pods fit there only across the switchbox.
    taken = entry("other", *(soft_grant(40000, 100, gpu=f"GPU-n3-{n}") for n in range(8)))
    calls.stored["n3"] = gpu_node(nodes_of(8, name="n3"), [taken])
    binder = replica(calls, boxes=ONE_BOX)
    assert isinstance(binder.groups, GroupGuard)
    known = binder.groups.groups
    assert isinstance(known, Known)
    known.cluster.entries["other"] = "n3", taken
    binder.groups = replace(binder.groups, tier_choosers=lambda: ["volcano"])

    answer = asyncio.run(bind(binder, "new-0", "n4"))

    assert answer["allowed"] == (scheduler == "volcano"), answer


def test_an_entry_that_is_gone_is_not_withdrawn() -> None:
    """Its GPUNode was lost, or somebody took the entry back meanwhile."""
    calls = server()
    assert asyncio.run(bind(replica(calls, boxes=ONE_BOX), "b-0", "n3"))["allowed"]
    calls.before_list = lambda: calls.stored.update(n1=gpu_node(nodes_of(8, name="n1")))

    answer = asyncio.run(bind(replica(calls, boxes=ONE_BOX), "a-0", "n1"))

    assert not answer["allowed"]
    assert entries(calls) == {"b-0": "n3"}


def test_whoever_withdraws_takes_nobody_else_s_entry() -> None:
    """Others of the same node stay."""
    calls = server()
    assert asyncio.run(bind(replica(calls, boxes=ONE_BOX), "b-0", "n3"))["allowed"]
    before = calls.stored["n1"]
    other = gpu_node(nodes_of(8, name="n1"), [entry("small", soft_grant(1, gpu="GPU-n9-0"))])
    calls.stored["n1"] = {**before, "spec": other["spec"]}

    answer = asyncio.run(bind(replica(calls, boxes=ONE_BOX), "a-0", "n1"))

    assert not answer["allowed"]
    assert entries(calls) == {"small": "n1", "b-0": "n3"}


@pytest.mark.parametrize("seen", [True, False])
def test_a_pod_with_an_earlier_entry_looks_again_and_leaves_it(*, seen: bool) -> None:
    """Of a review that crashed before its second look, or that lets the Binding pass just now."""
    calls = server()
    assert asyncio.run(bind(replica(calls, boxes=ONE_BOX), "b-0", "n3"))["allowed"]
    own = entry("a-0", *(soft_grant(40536, 100, gpu=f"GPU-n1-{n}") for n in range(8)))
    calls.stored["n1"] = gpu_node(nodes_of(8, name="n1"), [own])
    binder = replica(calls, boxes=ONE_BOX)
    assert isinstance(binder.groups, GroupGuard)
    known = binder.groups.groups
    assert isinstance(known, Known)
    if seen:
        known.cluster.entries["a-0"] = "n1", own

    answer = asyncio.run(bind(binder, "a-0", "n1"))

    assert not answer["allowed"]
    assert "another group takes its room" in str(answer["status"])
    assert entries(calls) == {"a-0": "n1", "b-0": "n3"}


def test_a_pod_whose_entry_another_review_withdrew_is_denied() -> None:
    """It would be bound without one."""
    calls = server()
    calls.before_list = lambda: calls.stored.update(n1=gpu_node(nodes_of(8, name="n1")))

    assert not asyncio.run(bind(replica(calls, boxes=ONE_BOX), "a-0", "n1"))["allowed"]
    assert entries(calls) == {}


@pytest.mark.parametrize("number", [1, 3])
def test_nobody_withdraws_what_another_review_has_renewed(number: int) -> None:
    """Reviews of one pod at once: one that let the Binding pass would leave it without an entry."""
    calls = server()
    assert asyncio.run(bind(replica(calls, boxes=ONE_BOX), "b-0", "n3"))["allowed"]
    answers: list[Json] = []

    def review_elsewhere() -> None:
        """Let replicas that see no other group review the same Binding within the same second."""
        calls.before_list = lambda: None
        with ThreadPoolExecutor(1) as another:
            for _ in range(number):
                work = bind(unguarded(calls), "a-0", "n1")
                answers.append(another.submit(asyncio.run, work).result())

    calls.before_list = review_elsewhere
    answer = asyncio.run(bind(replica(calls, boxes=ONE_BOX), "a-0", "n1"))

    assert all(one["allowed"] for one in answers)
    assert len(answers) == number
    assert not answer["allowed"]
    assert entries(calls) == {"a-0": "n1", "b-0": "n3"}
    assert calls.removals == 0
