"""Removes entries of pods that were never bound or have ended.

Caches only show where to look. Each removal reads the GPUNode, then the pods, then the Node, and
tests the GPUNode's version, so that a Binding in between makes it fail (docs/design.md, commit
rule 3). :mod:`allocator.ledger.reclaim` has the rules.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.audit.record_writer import WriteRecord, write_nothing
from allocator.cluster.inventory import GPU_NODES, NODES
from allocator.cluster.objects import decode_node
from allocator.cluster.picture import ChangeTracker
from allocator.cluster.pods import Pods
from allocator.extender.index import NodesByPod
from allocator.ledger.commit import remove_entries
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.ledger.lifecycle import NodeIdentity
from allocator.ledger.reclaim import (
    MOST_PROMISES,
    ReclaimEvidence,
    is_reclaimable,
    is_settled,
    is_surplus,
    may_be_reclaimable,
    possible_owner,
    reclaim_reason,
)
from allocator.model.allocation import Entry
from allocator.replay.decision_fields import released_fields
from allocator.request.pod_summary import PodSummary, pod_summary
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from kube.workqueue import MOST_CALLS, Backoff, Workqueue, log

_MOST_READ: Final = 8  # ledgers with other entries of one pod, of which few are enough


class ReclaimController:
    """Sweeps all entries; several may run at once, one is enough."""

    def __init__(  # noqa: PLR0913 -- what it reads, and whom it tells
        self,
        client: ApiClient,
        *,
        pods: Pods,
        ledgers: Callable[[], Mapping[str, Ledger] | None],
        agents_serve: Callable[[], bool],
        write_record: WriteRecord = write_nothing,
        clock: Clock = SYSTEM,
    ) -> None:
        """Work through *client*.

        *ledgers* returns the GPUNodes by name, ``None`` while not all are known; *agents_serve*
        says whether our agents serve the nodes. *write_record* takes a record of each removal.
        """
        self._client = client
        self._pods = pods
        self._ledgers = ledgers
        self._agents_serve = agents_serve
        self._write_record = write_record
        self._clock = clock
        self._backoff: Backoff[tuple[str, str, str]] = Backoff(clock)
        self._queue: Workqueue[str] = Workqueue()
        self._pod_changes: ChangeTracker[PodSummary] = ChangeTracker()
        self._ledger_changes: ChangeTracker[Ledger] = ChangeTracker()
        self._nodes_by_pod = NodesByPod()
        self._unsettled: dict[str, list[Entry]] = {}  # by node

    async def sweep(self) -> None:
        """Examine every entry that may be removable by the caches."""
        pods, ledgers = self._pods.by_uid, self._ledgers()
        if pods is None or ledgers is None:  # without pods every entry would look removable
            return
        now = self._clock.wall()
        doubtful = [
            (node, entry.uid, ledgers[node].resource_version)  # a new version has no back-off
            for node, entries in self._unsettled_entries(pods, ledgers).items()
            for entry in entries
            if may_be_reclaimable(
                entry.since,
                pods.get(entry.uid),
                node=node,
                now=now,
                surplus=self._is_surplus_by_caches(node, entry, ledgers),
            )
        ]
        keys_by_node: defaultdict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for key in self._backoff.due_keys(doubtful):
            keys_by_node[key[0]].append(key)
        await self._queue.run_each(keys_by_node, self._sweep_node)

    def _unsettled_entries(
        self, pods: Mapping[str, PodSummary], ledgers: Mapping[str, Ledger]
    ) -> Mapping[str, Sequence[Entry]]:
        """Return the entries, by node, that are removable or may become so by time alone.

        Sweeps run every second, so entries of pods that run where they should are skipped until
        their pod or their ledger changes.
        """
        uids, names = self._pod_changes.take(pods), self._ledger_changes.take(ledgers)
        if names is None:
            self._unsettled.clear()
            self._nodes_by_pod = NodesByPod()
        changed = set(ledgers if names is None else names)
        for name in changed:
            ledger = ledgers.get(name)
            self._nodes_by_pod.put(name, () if ledger is None else map(_uid, _entries(ledger)))
        doubtful = changed | set(ledgers) if uids is None else changed
        for uid in uids or ():
            doubtful |= self._nodes_by_pod.nodes_of(uid)
        for name in doubtful:
            entries = _entries(ledgers[name]) if name in ledgers else ()
            unsettled = [e for e in entries if not is_settled(pods.get(e.uid), node=name)]
            if unsettled:
                self._unsettled[name] = unsettled
            else:
                self._unsettled.pop(name, None)
        return self._unsettled

    def _other_nodes(self, node: str, uid: str) -> Sequence[str]:
        """Return the nodes with other entries of a pod, where the caches show more than enough."""
        others = self._nodes_by_pod.nodes_of(uid) - {node} if uid else frozenset()
        return sorted(others)[:_MOST_READ] if len(others) >= MOST_PROMISES else ()

    def _is_surplus_by_caches(self, node: str, entry: Entry, ledgers: Mapping[str, Ledger]) -> bool:
        others = self._other_nodes(node, entry.uid)
        known = (ledgers[name] for name in others if name in ledgers)
        return bool(others) and is_surplus(entry, node, known)

    async def _surplus_uids(self, ledger: Ledger, entries: Iterable[Entry]) -> frozenset[str]:
        """Return the pods that have enough newer entries on other nodes, whose ledgers are read."""
        found = set()
        for entry in entries:
            names = self._other_nodes(ledger.name, entry.uid)
            others = [await self._read_ledger(name) for name in names]
            present = [other for other in others if other is not None]
            if names and is_surplus(entry, ledger.name, present):
                found.add(entry.uid)
        return frozenset(found)

    async def _read_ledger(self, node: str) -> Ledger | None:
        try:
            return parse_ledger(msgspec.json.decode(await self._client.get(f"{GPU_NODES}/{node}")))
        except NotFoundError:
            return None

    async def _sweep_node(self, keys: Sequence[tuple[str, str, str]]) -> None:
        """Examine the entries *keys*, each (node, pod uid, resource version), of one node."""
        node, uids = keys[0][0], [uid for _, uid, _ in keys]
        removed: frozenset[str] = frozenset()
        try:
            removed = await self.reclaim(node, *uids)
        except KubeError as error:
            log.warning("reclaim failed", node=node, pods=uids, why=str(error))
        finally:
            for key in keys:
                if key[1] not in removed:
                    self._backoff.note_failure(key)

    async def reclaim(self, node: str, *uids: str) -> frozenset[str]:
        """Remove the removable entries of pods *uids* on *node*; return the uids removed.

        All are removed by one write, because after it the agent must first see the new version.
        """
        # Taken before all reads: when the pods are read, every Binding made with an expired entry
        # must have failed, even if this process is paused for minutes between reading and deciding.
        now = self._clock.wall()
        ledger = parse_ledger(msgspec.json.decode(await self._client.get(f"{GPU_NODES}/{node}")))
        candidates = {e.uid: e for e in (*ledger.unreadable, *ledger.entries) if e.uid in uids}
        if not candidates:
            return frozenset()
        surplus = await self._surplus_uids(ledger, candidates.values())
        pods = await self._read_pods(ledger, list(candidates.values()))
        node_identity = await self._read_node(node)
        reclaimable = [
            (entry, evidence)
            for entry, pod in pods
            if is_reclaimable(
                ledger,
                entry,
                evidence := ReclaimEvidence(
                    pod=pod,
                    node=node_identity,
                    now=now,
                    agent_serves=self._agents_serve(),
                    surplus=entry.uid in surplus,
                ),
            )
        ]
        return await self._remove(ledger, reclaimable)

    async def _remove(
        self, ledger: Ledger, reclaimable: Sequence[tuple[Entry, ReclaimEvidence]]
    ) -> frozenset[str]:
        """Remove entries from *ledger* as it was read; return the uids removed."""
        if not reclaimable:
            return frozenset()
        node, uids = ledger.name, frozenset(entry.uid for entry, _ in reclaimable)
        try:
            path = f"{GPU_NODES}/{node}"
            await self._client.json_patch(path, remove_entries(ledger, *uids))
        except (ConflictError, InvalidError):  # it changed: the next sweep decides again
            return frozenset()
        for entry, evidence in reclaimable:
            name, why = f"{entry.namespace}/{entry.pod}", reclaim_reason(entry, evidence)
            log.info("entry removed", node=node, pod=name, uid=entry.uid, why=why)
            self._write_record("released", released_fields(node, entry, why))
        return uids

    async def _read_pods(
        self, ledger: Ledger, entries: Sequence[Entry]
    ) -> list[tuple[Entry, PodSummary | None]]:
        """Return *entries* with their pods, without those whose pod could not be read."""
        call_slots = asyncio.Semaphore(MOST_CALLS)

        async def read_one(entry: Entry) -> list[tuple[Entry, PodSummary | None]]:
            try:
                async with call_slots:
                    return [(entry, await self._read_pod(ledger, entry))]
            except (KubeError, msgspec.MsgspecError, RecursionError) as error:
                log.warning("pod not read", pod=f"{entry.namespace}/{entry.pod}", why=str(error))
                return []

        return [pair for pairs in await asyncio.gather(*map(read_one, entries)) for pair in pairs]

    async def _read_pod(self, ledger: Ledger, entry: Entry) -> PodSummary | None:
        if not (entry.uid and entry.pod):  # the pod cannot be read by name
            return possible_owner(ledger, entry, self._pods.by_uid or {})
        try:
            path = f"/api/v1/namespaces/{entry.namespace}/pods/{entry.pod}"
            return pod_summary(await self._client.get(path))
        except NotFoundError:
            return None

    async def _read_node(self, name: str) -> NodeIdentity | None:
        try:
            return decode_node(await self._client.get(f"{NODES}/{name}")).identity()
        except NotFoundError:
            return None


def _entries(ledger: Ledger) -> tuple[Entry, ...]:
    return (*ledger.entries, *ledger.unreadable)


def _uid(entry: Entry) -> str:
    return entry.uid
