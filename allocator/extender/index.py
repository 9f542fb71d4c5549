"""Index: what schedulers ask about many nodes at a time, updated node by node."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from allocator.extender.equivalence import GpuGroup, NodeClass, NodeClasses
from allocator.extender.pod import SchedulingPod, Terminations
from allocator.extender.score import Scorer, ScoreTable, ScoreTables
from allocator.model.allocation import Entry
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.gpu import Node, Snapshot
from allocator.model.usage import without_entries
from allocator.placement.fleet import Shape, is_mixed, offers_of
from allocator.placement.topology import Idle, idle_of

Entries = Mapping[str, Entry]  # by pod uid
_NONE: Entries = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node."""

    node: Node  # with all grants
    entries: Entries
    node_class: NodeClass
    idle: Idle  # its idle GPUs and how close they are to each other

    @property
    def closed(self) -> bool:
        """Say whether no GPUs may be given out there at the moment, whatever is free."""
        return self.node_class.closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The cluster at one version, as far as a scheduler asks; replaced, never edited."""

    snapshot: Snapshot
    all_nodes_known: bool = False  # a node that is missing below has no inventory
    # By name, of the nodes whose GPUs are known; emptiest_groups repeats NodeClass.emptiest.
    node_infos: Mapping[str, NodeInfo] = field(default_factory=lambda: MappingProxyType({}))
    node_classes: Mapping[str, NodeClass] = field(default_factory=lambda: MappingProxyType({}))
    emptiest_groups: Mapping[str, GpuGroup | None] = field(
        default_factory=lambda: MappingProxyType({})
    )
    # By the usual ways of scoring.
    score_tables: Mapping[Scorer, ScoreTable] = field(default_factory=lambda: MappingProxyType({}))
    # All pods, by uid.
    pods: Mapping[str, SchedulingPod] = field(default_factory=lambda: MappingProxyType({}))
    # Unbound pods that a scheduler makes room for, by node.
    nominations: Mapping[str, tuple[SchedulingPod, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    terminations: Terminations | None = None  # None: ending pods are waited for without limit

    def entries(self, name: str) -> Entries:
        """Return the entries of node *name*, by pod uid; none where it is not known."""
        site = self.node_infos.get(name)
        return _NONE if site is None else site.entries

    def node(self, name: str, *, without: Collection[str] = ()) -> Node | None:
        """Return node *name* without the entries of the pods *without*."""
        site = self.node_infos.get(name)
        if site is None:
            return None
        gone = [site.entries[uid] for uid in without if uid in site.entries]
        return without_entries(site.node, gone) if gone else site.node

    def nominated_pods(self, name: str, pod: SchedulingPod) -> tuple[SchedulingPod, ...]:
        """Return the other pods nominated to node *name* whose priority is at least *pod*'s."""
        return tuple(
            other
            for other in self.nominations.get(name, ())
            if other.uid != pod.uid and other.priority >= pod.priority
        )

    def nomination(self, pod: SchedulingPod) -> str:
        """Return the node *pod* is nominated to, also where its scheduler cleared that since."""
        names = (name for name, pods in self.nominations.items() for p in pods if p.uid == pod.uid)
        return pod.nominated or next(names, "")


class IndexBuilder:
    """Takes one node at a time, and returns indexes that never change.

    A change costs the work for that node; an index costs copies of the tables of nodes.
    """

    def __init__(self) -> None:
        """Begin with an empty cluster."""
        self._infos: dict[str, NodeInfo] = {}
        self._nodes: dict[str, Node] = {}
        self._node_classes: dict[str, NodeClass] = {}
        self._emptiest_groups: dict[str, GpuGroup | None] = {}
        self._score_tables = ScoreTables()
        self._classes = NodeClasses()
        self._shapes: Counter[Shape] = Counter()
        self._stale = 0

    def put(self, node: Node, entries: Iterable[Entry] = (), *, closed: bool = False) -> None:
        """Add or replace *node*, whose grants include those of *entries*."""
        entry_by_uid = MappingProxyType({entry.uid: entry for entry in entries})
        known = self._infos.get(node.name)
        if known and (known.node, known.entries, known.closed) == (node, entry_by_uid, closed):
            return  # a list repeats what is known
        self.drop(node.name)
        node_class = self._classes.class_of(node, closed=closed)
        self._infos[node.name] = NodeInfo(node, entry_by_uid, node_class, idle_of(node.gpus))
        self._nodes[node.name], self._node_classes[node.name] = node, node_class
        self._emptiest_groups[node.name] = node_class.emptiest
        self._score_tables.put(node.name, node_class.load)
        self._shapes[node_class.shape] += 1
        self._stale += not node.fresh

    def drop(self, name: str) -> None:
        """Forget node *name*, if it is known."""
        site = self._infos.pop(name, None)
        if site is None:
            return
        del self._nodes[name], self._node_classes[name], self._emptiest_groups[name]
        self._score_tables.drop(name)
        shape = site.node_class.shape
        self._shapes[shape] -= 1
        if not self._shapes[shape]:
            del self._shapes[shape]
        self._stale -= not site.node.fresh

    def index(
        self,
        *,
        version: str,
        complete: bool,
        demand: Demand = NOTHING_LEARNED,
        scorers: Collection[Scorer] = (),
    ) -> Index:
        """Return the cluster as it is now; *complete* says that every node was put.

        *scorers* are the usual ways of scoring.
        """
        loads = ((name, node_class.load) for name, node_class in self._node_classes.items())
        snapshot = Snapshot(
            version=version,
            nodes=MappingProxyType(self._nodes.copy()),
            offers=offers_of(self._shapes),
            mixed=any(map(is_mixed, self._shapes)),
            complete=complete and not self._stale,
            demand=demand,
        )
        return Index(
            snapshot=snapshot,
            all_nodes_known=complete,
            node_infos=MappingProxyType(self._infos.copy()),
            # Looked into for each node of a question.
            node_classes=self._node_classes.copy(),
            emptiest_groups=self._emptiest_groups.copy(),
            score_tables=self._score_tables.tables_for(scorers, loads),
        )


class NodesByPod:
    """On which nodes each pod has an entry, updated node by node."""

    def __init__(self) -> None:
        """Begin empty."""
        self._uids: dict[str, frozenset[str]] = {}
        self._nodes: dict[str, frozenset[str]] = {}

    def put(self, name: str, uids: Iterable[str]) -> None:
        """Take *uids* as all pods with an entry on node *name*."""
        before, now = self._uids.pop(name, frozenset()), frozenset(uids)
        if now:
            self._uids[name] = now
        for uid in before - now:
            left = self._nodes.pop(uid) - {name}
            if left:
                self._nodes[uid] = left
        here = frozenset((name,))  # shared: nearly all pods have an entry on one node
        for uid in now - before:
            self._nodes[uid] = self.nodes_of(uid) | here if uid in self._nodes else here

    def nodes_of(self, uid: str) -> frozenset[str]:
        """Return the nodes on which pod *uid* has an entry."""
        return self._nodes.get(uid, frozenset())
