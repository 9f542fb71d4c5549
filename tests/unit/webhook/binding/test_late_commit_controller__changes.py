"""A controller that follows changes acts as one that just started and looks at everything."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import example, given
from hypothesis import strategies as st

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.objects import NodeObject
from allocator.cluster.picture import Picture
from allocator.cluster.pods import Pods
from allocator.config.settings import DEFAULTS
from allocator.controllers.closed_nodes import ClosedNodesController
from allocator.controllers.drift import DriftController
from allocator.controllers.gang import GangController
from allocator.controllers.gpunode import GpuNodeController
from allocator.controllers.reclaim import ReclaimController
from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import NodeIdentity
from allocator.request.pod_summary import PodSummary
from kube.clock import Clock
from tests.builders.gpunodes import entry, ledger
from tests.builders.model import nodes_of, snapshot, soft_grant
from tests.builders.pods import NUMBER
from tests.fakes.api_client import FakeApiClient
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.late_commit_controller import Caches, LateCommitController

NODES = ("n0", "n1")
AROUND = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(nodes_of(1)))
POD = PodSummary(uid="a", name="p", node="n0", deleting=False, over=False, extended=(NUMBER,))
PODS = st.none() | st.builds(
    replace,
    st.just(POD),
    node=st.sampled_from(("", *NODES)),
    deleting=st.booleans(),
    over=st.booleans(),
    extended=st.sampled_from(((NUMBER,), ("x.com/other",), ())),
    assignment_json=st.sampled_from(("", "[]")),
    group=st.sampled_from(("", "g")),
)
UIDS = st.sampled_from("abc")
LEDGERS = st.none() | st.tuples(
    st.sets(UIDS),  # entries
    st.sets(UIDS),  # held
    st.sampled_from(("", "sha256:1")),  # inventory
)
IDENTITIES = st.none() | st.builds(
    NodeIdentity,
    name=st.just(""),
    uid=st.sampled_from("uv"),
    boot=st.just("boot-1"),
    agent=st.booleans(),
)
STEPS = st.lists(
    st.tuples(
        st.dictionaries(UIDS, PODS),
        st.dictionaries(st.sampled_from(NODES), LEDGERS),
        st.dictionaries(st.sampled_from(NODES), IDENTITIES),
        st.booleans(),  # everybody sweeps
    )
)


def ledger_of(name: str, made: tuple[set[str], set[str], str] | None) -> Ledger | None:
    if made is None:
        return None
    uids, held, inventory = made
    node = nodes_of(1, name=name)
    entries = [entry(uid, soft_grant(100, gpu=f"GPU-{name}-0")) for uid in sorted(uids)]
    return replace(ledger(node, entries), held=frozenset(held), inventory=inventory)


@dataclass(slots=True)
class Cluster(FakeApiClient):
    """What watches have told so far."""

    pods: Pods = field(default_factory=Pods)
    known_ledgers: Picture[Ledger] = field(default_factory=Picture)
    known_nodes: Picture[NodeIdentity] = field(default_factory=Picture)

    def ledgers(self) -> Mapping[str, Ledger]:
        return self.known_ledgers

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        return node.identity()

    def node_identities(self) -> Mapping[str, NodeIdentity]:
        return self.known_nodes


class Leader:
    """The controllers of one leader, and what they would look at more closely."""

    def __init__(self, cluster: Cluster) -> None:
        clock = Clock(monotonic=lambda: 0.0, random=lambda: 0)
        self.cluster = cluster
        self.reclaim = ReclaimController(
            cluster, pods=cluster.pods, ledgers=cluster.ledgers, agents_serve=lambda: True
        )
        self.drift = DriftController(
            cluster.ledgers, cluster.pods, record=lambda _: None, count=lambda *_: None
        )
        self.closed = ClosedNodesController(
            cluster,
            cluster,
            upstream=lambda: False,
            slot=lambda: NUMBER,
            record=lambda _: None,
        )
        self.upkeep = GpuNodeController(cluster, cluster, upstream=lambda: False)
        self.gangs = GangController(
            cluster, cluster.pods, vocabularies=lambda: VOCABULARIES, record=lambda _: None
        )
        binder = BindingHandler(
            calls=cluster, context_of=lambda _: AROUND, nodes_with_entry=lambda _: frozenset()
        )
        caches = Caches(pods=cluster.pods, ledgers=cluster.ledgers, context_of=lambda _: AROUND)
        self.late = LateCommitController(calls=cluster, binder=binder, caches=caches, clock=clock)

    def looks_at(self) -> dict[str, object]:
        """Return what the next sweep of each would go on with."""
        pods, ledgers = self.cluster.pods.by_uid or {}, self.cluster.ledgers()
        nodes = self.cluster.node_identities()
        late = self.late._pods_without_entry()  # noqa: SLF001 -- the first half of its sweep
        stranded = self.late._stranded._since  # noqa: SLF001
        return {
            "reclaim": {
                name: {one.uid for one in entries}
                for name, entries in self.reclaim._unsettled_entries(pods, ledgers).items()  # noqa: SLF001
            },
            "drift": dict(asyncio.run(self.drift._drifts_by_node(pods, ledgers))),  # noqa: SLF001
            "closed": dict(self.closed._closed_nodes(nodes, ledgers)),  # noqa: SLF001
            "upkeep": sorted(self.upkeep._due_nodes(nodes, ledgers)),  # noqa: SLF001
            "gangs": {
                name: (members.bound, set(members.holding), set(members.waiting))
                for name, members in self.gangs._partly_bound_groups().items()  # noqa: SLF001
            },
            "late": {pod.uid: version for pod, version in late},
            "stranded": set(stranded),
        }


TOLD = replace(POD, assignment_json="[]")
PROMISED = ({"a"}, set[str](), "sha256:1")
NOT_PROMISED = (set[str](), set[str](), "sha256:1")


@given(STEPS)
@example([({"a": TOLD}, {"n0": PROMISED}, {}, True), ({}, {"n0": NOT_PROMISED}, {}, True)])
@example([({"a": POD}, {"n0": PROMISED}, {}, True), ({"a": TOLD}, {}, {}, True)])
def test_changes_are_enough(
    steps: list[
        tuple[
            dict[str, PodSummary | None],
            dict[str, tuple[set[str], set[str], str] | None],
            dict[str, NodeIdentity | None],
            bool,
        ]
    ],
) -> None:
    """Whatever changes between two sweeps, in whatever order."""
    cluster = Cluster()
    cluster.pods.update({})
    leader = Leader(cluster)
    leader.looks_at()

    for pods, ledgers, nodes, sweeps in steps:
        cluster.pods.update({uid: pod and replace(pod, uid=uid) for uid, pod in pods.items()})
        cluster.known_ledgers.apply({n: ledger_of(n, made) for n, made in ledgers.items()})
        cluster.known_nodes.apply({n: node and replace(node, name=n) for n, node in nodes.items()})
        if sweeps:
            assert leader.looks_at() == Leader(cluster).looks_at()
