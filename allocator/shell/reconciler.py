"""The reconciler: takes promises back from pods that were never bound, and that are over.

Its caches only say where to look. Each removal reads the GPUNode, then the pod, and then writes on
the version that it read, so that no Binding can land in between unseen (DESIGN.md §5, rule 3).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

import msgspec
import structlog

from allocator.core.ledger import read, without
from allocator.core.reclaim import Seen, doubtful, reclaimable, seen
from allocator.model.ledger import Entry
from allocator.shell.inventory import GPU_NODES
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from kube.watch import Source, follow

PODS: Final = "/api/v1/pods"
EVERY: Final = 1.0  # seconds; a freed GPU is to be seen within two
LONGEST: Final = 30.0  # seconds between two looks at a promise that has to stay

log = structlog.get_logger(__name__)


class Calls(Protocol):
    """The part of :class:`kube.client.Client` that a removal needs."""

    async def get(self, path: str) -> bytes:
        """Read one object, never from a cache."""

    async def json_patch(self, path: str, ops: Sequence[Mapping[str, object]]) -> bytes:
        """Change one object, or nothing where a test in *ops* fails."""


Promises = Callable[[], Iterable[tuple[str, str, datetime]]]


class Reconciler:
    """Sweeps the promises that are known; any number may run, one at a time is enough.

    ``promises`` yields node, pod uid and time of each promise. ``agent`` says whether agents of
    ours serve the nodes.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        promises: Promises,
        agent: Callable[[], bool],
        clock: Clock = SYSTEM,
    ) -> None:
        """Remove through *calls*."""
        self._calls = calls
        self._promises = promises
        self._agent = agent
        self._clock = clock
        self._pods: Mapping[str, Seen] | None = None
        self._kept: dict[tuple[str, str], tuple[int, float]] = {}  # how often, and until when

    async def follow(self, client: Client) -> None:
        """Follow all pods, for ever."""
        source = Source(path=PODS, decode=seen, key=lambda pod: pod.uid)
        await follow(client, source, self.know, clock=self._clock)

    def know(self, pods: Mapping[str, Seen]) -> None:
        """Take what a watch says of all pods, by uid."""
        self._pods = pods

    async def run(self, leading: Callable[[], bool]) -> None:
        """Sweep for ever, while *leading*."""
        while True:
            if leading():
                await self.sweep()
            await self._clock.sleep(EVERY)

    async def sweep(self) -> None:
        """Look closer at every promise that the caches cast doubt on."""
        pods = self._pods
        if pods is None:  # nothing is known yet, so everything would be doubtful
            return
        now = self._clock.wall()
        found = [
            (node, uid)
            for node, uid, since in self._promises()
            if doubtful(since, pods.get(uid), node=node, now=now)
        ]
        self._kept = {place: self._kept[place] for place in found if place in self._kept}
        for place in found:
            failures, until = self._kept.get(place, (0, 0.0))
            if self._clock.monotonic() >= until and not await self._went(*place):
                pause = self._clock.backoff(failures + 1, first=EVERY, most=LONGEST)
                self._kept[place] = (failures + 1, self._clock.monotonic() + pause)

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
        if not reclaimable(ledger, entry, pod, now=now, agent=self._agent()):
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
