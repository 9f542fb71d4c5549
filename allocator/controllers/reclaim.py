"""The reclaim controller: removes entries of pods that were never bound or have ended.

Its caches only say where to look. Each removal reads the GPUNode, then the pod, then the Node, and
writes on the version that it read, so that no Binding can arrive in between unnoticed
(docs/design.md, commit rule 3).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from allocator.cluster.inventory import GPU_NODES, NODES
from allocator.cluster.objects import decode_node
from allocator.cluster.pods import Pods
from allocator.ledger.commit import remove_entries
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.ledger.lifecycle import NodeIdentity
from allocator.ledger.reclaim import Evidence, is_doubtful, reclaimable, suspect
from allocator.model.allocation import Entry
from allocator.request.pod_summary import PodSummary, pod_summary
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from kube.workqueue import AT_ONCE, Backoff, Workqueue, log


class ReclaimController:
    """Sweeps the promises that are known; any number may run, one at a time is enough.

    ``ledgers`` are the GPUNodes by name, ``None`` while not all are known. ``agent`` says whether
    agents of ours serve the nodes.
    """

    def __init__(
        self,
        calls: ApiClient,
        *,
        pods: Pods,
        ledgers: Callable[[], Mapping[str, Ledger] | None],
        agent: Callable[[], bool],
        clock: Clock = SYSTEM,
    ) -> None:
        """Remove through *calls*."""
        self._calls = calls
        self._pods = pods
        self._ledgers = ledgers
        self._agent = agent
        self._clock = clock
        self._kept: Backoff[tuple[str, str, str]] = Backoff(clock)
        self._abreast: Workqueue[str] = Workqueue()

    async def sweep(self) -> None:
        """Check every entry that the caches say may be removed."""
        pods, ledgers = self._pods.seen, self._ledgers()
        if pods is None or ledgers is None:  # everything would be doubtful
            return
        now = self._clock.wall()
        found = [
            (node, entry.uid, ledger.resource_version)  # what moved is worth another try at once
            for node, ledger in ledgers.items()
            for entry in (*ledger.entries, *ledger.unread)
            if is_doubtful(entry.since, pods.get(entry.uid), node=node, now=now)
        ]
        places: defaultdict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for place in self._kept.due_keys(found):
            places[place[0]].append(place)
        await self._abreast.run_each(places, self._sweep_node)

    async def _sweep_node(self, places: Sequence[tuple[str, str, str]]) -> None:
        """Look closer at *places* of one node."""
        node, uids = places[0][0], [uid for _, uid, _ in places]
        gone: frozenset[str] = frozenset()
        try:
            gone = await self.settle(node, *uids)
        except KubeError as error:
            log.warning("reclaim failed", node=node, pods=uids, why=str(error))
        finally:
            for place in places:
                if place[1] not in gone:
                    self._kept.note_failure(place)

    async def settle(self, node: str, *uids: str) -> frozenset[str]:
        """Remove those promises to pods *uids* on *node* that may go; return whose went.

        In one write: after it, the agent has to have seen the new version before more may go.
        """
        # Before all reads: by the time of the pods', every Binding of an aged promise must be dead,
        # also where this process is stopped for minutes between its read and its decision.
        now = self._clock.wall()
        path = f"{GPU_NODES}/{node}"
        ledger = parse_ledger(msgspec.json.decode(await self._calls.get(path)))
        doubted = {e.uid: e for e in (*ledger.unread, *ledger.entries) if e.uid in uids}
        if not doubted:
            return frozenset()
        pods = await self._look_up(ledger, list(doubted.values()))
        machine = await self._machine(node)
        gone = [
            entry
            for entry, pod in pods
            if reclaimable(
                ledger, entry, Evidence(pod=pod, machine=machine, now=now, agent=self._agent())
            )
        ]
        if not gone:
            return frozenset()
        try:
            await self._calls.json_patch(
                path, remove_entries(ledger, *(entry.uid for entry in gone))
            )
        except (ConflictError, InvalidError):  # it moved: the next sweep sees how
            return frozenset()
        for entry in gone:
            pod = f"{entry.namespace}/{entry.pod}"
            log.info("entry removed", node=node, pod=pod, uid=entry.uid)
        return frozenset(entry.uid for entry in gone)

    async def _look_up(
        self, ledger: Ledger, entries: Sequence[Entry]
    ) -> list[tuple[Entry, PodSummary | None]]:
        """Return *entries* with the pods that they are to, without those nobody tells about."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(entry: Entry) -> list[tuple[Entry, PodSummary | None]]:
            try:
                async with turns:
                    return [(entry, await self._pod(ledger, entry))]
            except (KubeError, msgspec.MsgspecError, RecursionError) as error:
                log.warning("pod not read", pod=f"{entry.namespace}/{entry.pod}", why=str(error))
                return []

        return [pair for found in await asyncio.gather(*map(one, entries)) for pair in found]

    async def _pod(self, ledger: Ledger, entry: Entry) -> PodSummary | None:
        if not (entry.uid and entry.pod):  # there is nothing to ask for
            return suspect(ledger, entry, self._pods.seen or {})
        try:
            path = f"/api/v1/namespaces/{entry.namespace}/pods/{entry.pod}"
            return pod_summary(await self._calls.get(path))
        except NotFoundError:
            return None

    async def _machine(self, name: str) -> NodeIdentity | None:
        try:
            return decode_node(await self._calls.get(f"{NODES}/{name}")).machine()
        except NotFoundError:
            return None
