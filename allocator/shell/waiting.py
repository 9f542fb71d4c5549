"""Those who wait: pods that no node took are told why, and shown to nodes that nobody asked about.

kube-scheduler asks about a sample of the nodes. Where none of it fits and another node does, that
node becomes the pod's ``nominatedNodeName``: the scheduler looks there first when it tries again,
and the change makes it try. It is a hint: what the node lacks otherwise, the scheduler sees.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Never, Protocol

import structlog

from allocator.core.index import Index
from allocator.core.pods import Pod
from allocator.core.steering import Circumstances
from allocator.core.waiting import overlooked, why
from allocator.shell.extender import Waiting
from kube.clock import SYSTEM, Clock
from kube.errors import ApiError, KubeError
from kube.events import Event, Reference, Severity

STATUS: Final = "/api/v1/namespaces/{}/pods/{}/status"
MOST_WAITING: Final = 1024  # pods that are remembered
MOST_HINTS: Final = 5  # to one pod; then its scheduler has reasons that we do not see
SETTLED: Final = 600.0  # seconds after which hints are counted anew
# Seconds after an answer, by when its scheduler has written down that the pod does not fit: that
# write wipes out a hint that came before it.
WRITTEN: Final = 0.25
REST: Final = 3.0  # times as long as the pod before took
LONGEST_REST: Final = 1.0  # seconds
FORBIDDEN: Final = 403

log = structlog.get_logger(__name__)


class Writer(Protocol):
    """The part of :class:`kube.client.Client` that a hint needs."""

    async def merge_patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Change one object."""


class Recorder(Protocol):
    """The part of :class:`kube.events.Recorder` that is used."""

    def record(self, event: Event, /) -> None:
        """Take a note; neither waits nor raises."""


@dataclass(slots=True)
class _Told:
    """What one pod was told so far; ``since`` is monotonic seconds, ``hints`` count by node."""

    since: float
    texts: frozenset[str] = frozenset()
    hints: Counter[str] = field(default_factory=Counter)


class Attendant:
    """Looks after pods that wait, one at a time, after their schedulers have been answered."""

    def __init__(
        self,
        writer: Writer,
        events: Recorder,
        *,
        index: Callable[[], Index],
        circumstances: Callable[[Pod], Circumstances],
        clock: Clock = SYSTEM,
    ) -> None:
        """Hint through *writer*, tell through *events*."""
        self._writer = writer
        self._events = events
        self._index = index
        self._circumstances = circumstances
        self._clock = clock
        self._turns: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self._waiting: dict[str, tuple[float, Waiting]] = {}  # by uid, whose turn will come
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._hints = True  # until the API server says that we may not

    def attend(self, waiting: Waiting) -> None:
        """Take note of a pod; one too many is dropped, for its scheduler will ask again."""
        uid = waiting.pod.uid
        if uid not in self._waiting:
            if self._turns.full():
                return
            self._turns.put_nowait(uid)
        self._waiting[uid] = self._clock.monotonic() + WRITTEN, waiting

    async def run(self) -> Never:
        """Look after pods for ever, resting thrice as long as it takes: admission goes first."""
        while True:
            waiting = await self._next()
            began = self._clock.monotonic()
            try:
                await self.look_after(waiting)
            except Exception:
                # The outermost loop: what is odd about one pod must not end the program.
                log.exception("pod not looked after", uid=waiting.pod.uid)
            took = self._clock.monotonic() - began
            await self._clock.sleep(min(REST * took, LONGEST_REST))

    async def _next(self) -> Waiting:
        """Return whose turn it is, once its scheduler has written down what it was told last."""
        uid = await self._turns.get()
        while (early := self._waiting[uid][0] - self._clock.monotonic()) > 0:
            await self._clock.sleep(early)
        return self._waiting.pop(uid)[1]

    async def look_after(self, waiting: Waiting) -> None:
        """Hint where else to look; tell the user what is short where nobody has told it yet."""
        told = self._remembered(waiting.pod.uid)
        if await self._hinted(waiting, told):
            return
        texts = frozenset(obstacle.text for obstacle in waiting.obstacles.values())
        if texts != told.texts:
            told.texts = texts
            await self._tell(waiting)

    def _remembered(self, uid: str) -> _Told:
        now = self._clock.monotonic()
        told = self._told.pop(uid, None)
        if told is None or now - told.since > SETTLED:
            told = _Told(since=now)
        self._told[uid] = told
        if len(self._told) > MOST_WAITING:
            self._told.popitem(last=False)
        return told

    async def _hinted(self, waiting: Waiting, told: _Told) -> bool:
        """Nominate the pod to a node that its scheduler has not looked at; say whether it is.

        A node may be named again: a hint that reaches the scheduler before it has written down
        that the pod does not fit is wiped out by that very write.
        """
        if not self._hints or told.hints.total() >= MOST_HINTS:
            return False
        pod, circumstances = waiting.pod, self._circumstances(waiting.pod)
        found = overlooked(self._index(), pod, waiting.names, circumstances=circumstances)
        if not found:
            return False
        node = min(found, key=told.hints.__getitem__)  # the best of those named least
        told.hints[node] += 1
        changes = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
        try:
            await self._writer.merge_patch(STATUS.format(pod.namespace, pod.name), changes)
        except KubeError as error:
            self._hints = not (isinstance(error, ApiError) and error.status == FORBIDDEN)
            log.warning("no hint given", pod=f"{pod.namespace}/{pod.name}", why=str(error))
            return False
        log.info("hint given", pod=f"{pod.namespace}/{pod.name}", node=node)
        return True

    async def _tell(self, waiting: Waiting) -> None:
        pod, terms = waiting.pod, self._circumstances(waiting.pod).terms
        ask = partial(why, self._index(), pod, obstacles=waiting.obstacles, terms=terms)
        finding = await asyncio.to_thread(ask)
        if finding is None:
            return
        note = f"{finding.reason}: on {len(waiting.names)} nodes, {finding}"
        regarding = Reference(
            api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
        )
        self._events.record(
            Event(
                regarding=regarding,
                severity=Severity.WARNING,
                reason="VgpuWaiting",
                action="Schedule",
                note=note,
            )
        )
