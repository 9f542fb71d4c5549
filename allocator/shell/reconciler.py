"""The reconciler: takes promises back from pods that were never bound, and that are over.

Its caches only say where to look. Each removal reads the GPUNode, then the pod, then the Node, and
writes on the version that it read, so that no Binding can land in between unseen (DESIGN.md §5,
rule 3).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Never, Protocol

import msgspec
import structlog

from allocator.core.ledger import Ledger, read, without
from allocator.core.podfacts import Seen, seen
from allocator.core.reclaim import Evidence, doubtful, reclaimable
from allocator.core.upkeep import Machine
from allocator.model.ledger import Entry
from allocator.shell.inventory import GPU_NODES, NODES
from allocator.shell.objects import registered
from allocator.shell.retries import Retries
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from kube.watch import Source, follow

PODS: Final = "/api/v1/pods"
EVERY: Final = 1.0  # seconds; a freed GPU is to be seen within two

log = structlog.get_logger(__name__)


class Calls(Protocol):
    """The part of :class:`kube.client.Client` that a removal needs."""

    async def get(self, path: str) -> bytes:
        """Read one object, never from a cache."""

    async def json_patch(self, path: str, ops: Sequence[Mapping[str, object]]) -> bytes:
        """Change one object, or nothing where a test in *ops* fails."""


class Pods:
    """All pods as a watch last saw them, by uid; ``seen`` is ``None`` before the first picture."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.seen: Mapping[str, Seen] | None = None

    async def follow(self, client: Client) -> Never:
        """Follow all pods, for ever."""
        await follow(client, Source(path=PODS, decode=seen, key=lambda pod: pod.uid), self.know)

    def know(self, pods: Mapping[str, Seen]) -> None:
        """Take what a watch says of all pods."""
        self.seen = pods


async def sweeping(
    sweep: Callable[[], Awaitable[None]], leading: Callable[[], bool], every: float = EVERY
) -> Never:
    """Sweep for ever while *leading*, with *every* seconds between two sweeps."""
    while True:
        if leading():
            await sweep()
        await SYSTEM.sleep(every)


class Reconciler:
    """Sweeps the promises that are known; any number may run, one at a time is enough.

    ``ledgers`` are the GPUNodes by name, ``None`` while not all are known. ``agent`` says whether
    agents of ours serve the nodes.
    """

    def __init__(
        self,
        calls: Calls,
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
        self._kept: Retries[tuple[str, str, str]] = Retries(clock)

    async def sweep(self) -> None:
        """Look closer at every promise that the caches cast doubt on."""
        pods, ledgers = self._pods.seen, self._ledgers()
        if pods is None or ledgers is None:  # everything would be doubtful
            return
        now = self._clock.wall()
        found = [
            (node, entry.uid, ledger.resource_version)  # what moved is worth another try at once
            for node, ledger in ledgers.items()
            for entry in ledger.entries
            if doubtful(entry.since, pods.get(entry.uid), node=node, now=now)
        ]
        for place in self._kept.due(found):
            node, uid, _ = place
            if not await self._went(node, uid):
                self._kept.failed(place)

    async def _went(self, node: str, uid: str) -> bool:
        try:
            return await self.settle(node, uid)
        except KubeError as error:
            log.warning("promise left as it is", node=node, pod=uid, why=str(error))
            return False

    async def settle(self, node: str, uid: str) -> bool:
        """Remove the promise to pod *uid* on *node* if it may go; say whether it went."""
        # Before all reads: by the time of the pod's, every Binding of an aged promise must be dead,
        # also where this process is stopped for minutes between its read and its decision.
        now = self._clock.wall()
        path = f"{GPU_NODES}/{node}"
        ledger = read(msgspec.json.decode(await self._calls.get(path)))
        entry = ledger.entry(uid)
        if entry is None:
            return False
        pod = await self._pod(entry)
        machine = await self._machine(node)
        evidence = Evidence(pod=pod, machine=machine, now=now, agent=self._agent())
        if not reclaimable(ledger, entry, evidence):
            return False
        try:
            await self._calls.json_patch(path, without(ledger, uid))
        except (ConflictError, InvalidError):  # it moved: the next sweep sees how
            return False
        log.info("promise taken back", node=node, pod=f"{entry.namespace}/{entry.pod}", uid=uid)
        return True

    async def _pod(self, entry: Entry) -> Seen | None:
        try:
            path = f"/api/v1/namespaces/{entry.namespace}/pods/{entry.pod}"
            return seen(await self._calls.get(path))
        except NotFoundError:
            return None

    async def _machine(self, name: str) -> Machine | None:
        try:
            return registered(await self._calls.get(f"{NODES}/{name}")).machine()
        except NotFoundError:
            return None
