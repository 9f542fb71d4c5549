"""Groups that several replicas bind at once: each ends inside one domain, whatever was heard."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import orjson
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from allocator.ledger.ledger import parse_ledger
from allocator.scheduling.group_steering import LedgerIndex
from tests.builders.bindings import answered, binding, review
from tests.builders.gpunodes import NOON, Json
from tests.builders.groups import SupernodeCluster
from tests.fakes.kube_clock import FakeClock
from tests.unit.webhook.binding.test_group_client import CONTEXT, Known, Ledgers, server
from webhook.binding.binding_server import BindingHandler
from webhook.binding.group_client import GroupGuard

BOXES = {
    "sb1": {"df1": ("n1", "n2"), "df2": ("n3", "n4")},
    "sb2": {"df3": ("n5", "n6"), "df4": ("n7", "n8")},
}
NODES = [f"n{number}" for number in range(1, 9)]
PODS = [f"{job}-{number}" for job in "ab" for number in range(4)]


Rounds = list[tuple[list[tuple[int, str, str]], set[int]]]


@dataclass(slots=True)
class Replica:
    """A replica, and what it has heard of."""

    calls: Ledgers
    size: int
    cluster: SupernodeCluster = field(init=False)
    binder: BindingHandler = field(init=False)

    def __post_init__(self) -> None:
        """Hear of the pods of both jobs, and of no entry."""
        clock = FakeClock().clock()
        self.cluster = SupernodeCluster(boxes=BOXES, now=NOON + timedelta(hours=1))
        for job in "ab":
            names = [name for name in PODS if name.startswith(job)]
            self.cluster.make(job, *names, size=self.size)
        self.binder = BindingHandler(
            calls=self.calls,
            context_of=lambda _: CONTEXT,
            nodes_with_entry=lambda _: frozenset(),
            clock=clock,
        )
        self.binder.groups = GroupGuard(
            calls=self.calls,
            groups=Known(self.cluster),
            assumed_pods=self.binder.assumed_pods,
            ledger_of=lambda _: None,
            clock=clock,
        )

    def hear(self) -> None:
        """Learn of all entries."""
        self.cluster.entries = dict(placed(self.calls).entries)

    async def bind(self, name: str, node: str) -> bool:
        """Bind a pod; say whether that was allowed."""
        written = binding(node=node, name=name, uid=name)
        answer: Json = answered(await self.binder.bind(review(written, name=name)))
        return bool(answer["allowed"])


def placed(calls: Ledgers) -> LedgerIndex:
    """Return the entries that are there."""
    stored: Sequence[Json] = [orjson.loads(orjson.dumps(one)) for one in calls.stored.values()]
    return LedgerIndex.of(map(parse_ledger, stored))


def groups(size: int) -> Mapping[str, list[str]]:
    """Return the pods of each group: consecutive ones of a job, of 8 GPUs each."""
    each = size // 8
    found: dict[str, list[str]] = {}
    for name in PODS:
        job, _, number = name.partition("-")
        found.setdefault(f"{job}/{int(number) // each}", []).append(name)
    return found


ROUNDS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 1), st.sampled_from(PODS), st.sampled_from(NODES)),
            min_size=1,
            max_size=3,
            unique_by=lambda one: one[1],
        ),
        st.sets(st.integers(0, 1)),  # which replicas hear of it afterwards
    ),
    min_size=1,
    max_size=4,
)


# Two that come to a wrong domain at once must not vouch for each other.
TOGETHER: Rounds = [([(0, "b-1", "n5")], set()), ([(0, "b-0", "n1"), (0, "b-2", "n2")], set())]


@example(TOGETHER, 32)
@given(ROUNDS, st.sampled_from([16, 32]))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_every_group_stays_within_one_domain(rounds: Rounds, size: int) -> None:
    """Whatever each replica knew, all entries of a group are below one switchbox.

    And every pod whose bind was allowed has its entry, on the node that it was bound to.
    """
    calls = server()
    replicas = [Replica(calls, size) for _ in range(2)]
    bound: dict[str, str] = {}

    async def play() -> None:
        for binds, listening in rounds:
            waiting = [one for one in binds if one[1] not in bound]
            tasks = (replicas[at].bind(name, node) for at, name, node in waiting)
            allowed = await asyncio.gather(*tasks)
            found = zip(waiting, allowed, strict=True)
            bound.update({name: node for (_, name, node), well in found if well})
            for at in listening:
                replicas[at].hear()

    asyncio.run(play())
    entries = placed(calls).entries
    event(f"bound: {min(len(bound), 4)}")
    assert {name: entries[name][0] for name in bound if name in entries} == bound
    boxes = {
        node: box for box, flies in BOXES.items() for nodes in flies.values() for node in nodes
    }
    for members in groups(size).values():
        assert len({boxes[bound[name]] for name in members if name in bound}) <= 1
