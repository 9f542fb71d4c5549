"""What one replica sees: production caches behind watches that lag, each on its own."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.inventory import Inventory
from allocator.cluster.nominated_pods import NominatedPods
from allocator.cluster.pods import Pods, pod_informer
from allocator.config.settings import DEFAULTS
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import Index
from allocator.extender.pod import SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.placement.choose import PlacementPolicy
from allocator.request.pod_fields import WatchedPod
from allocator.supernode.group_pods import GroupPods
from kube.client import Client
from kube.clock import Clock
from tests.builders.model import ask, pod
from tests.model.invariants import BrokenError
from tests.model.watches import Feed
from webhook.binding.scheduler_pod import unbound_pod, watched_pod
from webhook.binding.unbound_pods_informer import UnboundPods
from webhook.serve.extender_verbs import Extender

Task = asyncio.Task[Any]
Reader = Callable[[WatchedPod, bytes], SchedulingPod]

NEUTRAL = FilterContext(policy=PlacementPolicy())
ASKING = SchedulingPod(
    uid="u", namespace="team-a", name="p", claim=PodClaim(uid="u", request=pod(ask(9000)))
)


def reader(found: WatchedPod, raw: bytes) -> SchedulingPod:
    """Read a pod as the extender's watch does."""
    return watched_pod(found, lambda: raw, VOCABULARIES)


@dataclass(slots=True, kw_only=True)
class Sight:
    """The caches of one replica, and the questions that its extender answers from them."""

    feeds: tuple[Feed, Feed]  # of the inventory, and of all pods
    clock: Clock
    inventory: Inventory
    read: Reader = reader
    pods: Pods = field(default_factory=Pods)
    pending: UnboundPods = field(default_factory=UnboundPods)
    nominees: NominatedPods = field(init=False)
    extender: Extender = field(init=False)
    groups: GroupPods = field(default_factory=GroupPods)
    tasks: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin to follow everything."""
        self.nominees = NominatedPods(self.clock)
        self.extender = Extender(
            index=self.index,
            read_pod=lambda raw: unbound_pod(raw, VOCABULARIES),
            settings=lambda: DEFAULTS,
            context_of=self.circumstances,
        )
        watch = pod_informer(clock=self.clock)
        self.pods.follow(watch)
        self.pending.follow(watch)
        self.nominees.follow(watch, self.read)
        self.groups.follow(watch)
        self.tasks.append(asyncio.ensure_future(self.inventory.run()))
        self.tasks.append(asyncio.ensure_future(watch.follow(cast("Client", self.feeds[1]))))

    def index(self) -> Index:
        return self.nominees.with_nominations(self.inventory.index())

    def circumstances(self, pod: SchedulingPod) -> FilterContext:
        return FilterContext(
            policy=PlacementPolicy(), own_nodes=self.inventory.nodes_with_entry(pod.uid)
        )

    def catch_up(self) -> None:
        """Let every watch catch up."""
        for feed in self.feeds:
            feed.catch_up()

    def begin_with(self, other: "Sight") -> None:
        """Be sent what *other* was sent, all of it at once."""
        for mine, theirs in zip(self.feeds, other.feeds, strict=True):
            mine.sent = theirs

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()


def differ(one: Sight, anew: Sight) -> None:
    """Raise :class:`BrokenError` where what was kept up to date is not what is seen anew (S14)."""
    for found in _differences(one, anew):
        raise BrokenError(f"S14 {found}")


def _differences(one: Sight, anew: Sight) -> Iterator[str]:
    """Yield what a sight that grew change by change has otherwise than one built at once (S14).

    Nominations are left out: they are remembered for a while, which nobody can know who is new.
    """
    mine, fresh = one.index(), anew.index()
    pairs: dict[str, tuple[object, object]] = {
        "nodes": (dict(mine.snapshot.nodes), dict(fresh.snapshot.nodes)),
        "offers": (mine.snapshot.offers, fresh.snapshot.offers),
        "entries": (_entries(mine), _entries(fresh)),
        "closed": (_closed(mine), _closed(fresh)),
        "answers": (_answers(mine), _answers(fresh)),
        "ratings": (_ratings(mine), _ratings(fresh)),
        "ledgers": (one.inventory.ledgers(), anew.inventory.ledgers()),
        "pods": (dict(mine.pods), dict(fresh.pods)),
        "seen": (one.pods.by_uid, anew.pods.by_uid),
        "machines": (one.inventory.node_identities(), anew.inventory.node_identities()),
        "pending": (_pending(one, mine), _pending(anew, mine)),
        "holders": (_holders(one, mine), _holders(anew, mine)),
    }
    for what, (here, there) in pairs.items():
        if here != there:
            yield f"{what}: {here} in place of {there}"


def _entries(index: Index) -> object:
    return {name: dict(site.entries) for name, site in index.node_infos.items()}


def _closed(index: Index) -> object:
    return {name: site.closed for name, site in index.node_infos.items()}


def _answers(index: Index) -> object:
    """Return what a filter says of every node, where no room is kept for anybody."""
    plain = replace(index, nominations=MappingProxyType({}))
    found = filter_nodes(plain, ASKING, sorted(index.node_infos), context=NEUTRAL)
    return found.fitting, found.failures


def _ratings(index: Index) -> object:
    return [(dict(t.parts), dict(t.scores)) for t in index.score_tables.values()]


def _pending(sight: Sight, index: Index) -> object:
    return {pod.name: sight.pending.pod(pod.namespace, pod.name) for pod in index.pods.values()}


def _holders(sight: Sight, index: Index) -> object:
    return {uid: sight.inventory.nodes_with_entry(uid) for uid in index.pods}
