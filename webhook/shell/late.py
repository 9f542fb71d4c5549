"""Late commits: pods that were bound past our hook get their entry, or hear why not.

We may have been down, or their namespace has no label. Caches say which pods to look at; pod and
ledger are then read anew, and the entry is committed through the same door as any other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
import structlog

from allocator.core.ledger import Ledger, read
from allocator.core.podfacts import Seen
from allocator.core.settings import NodeAgent
from allocator.shell.inventory import GPU_NODES
from allocator.shell.reconciler import Pods
from allocator.shell.retries import Retries
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError, NotFoundError
from kube.events import Event, Reference, Severity
from webhook.core.binding import Denied, Wish, judge
from webhook.core.bindingreview import LivePod, live_pod
from webhook.core.bindrecord import Circumstances, record
from webhook.core.bound import Promise
from webhook.core.late import Claim, How, as_bound, claimed, is_told, telling, unbound
from webhook.core.mutate import Surroundings
from webhook.core.review import Refusal
from webhook.shell.binding import Binder
from webhook.shell.desks import LateError

USER: Final = "vgpu-admission"  # in the record of a bind that nobody asked us about

log = structlog.get_logger(__name__)


class Calls(Protocol):
    """The part of :class:`kube.client.Client` that a late commit needs beside its binder's."""

    async def get(self, path: str) -> bytes:
        """Read one object, never from a cache."""

    async def merge_patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Change one object; a uid in *changes* that is another's fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """Where to look: all pods, and the GPUNodes by name or ``None`` while not all are known."""

    pods: Pods
    ledgers: Callable[[], Mapping[str, Ledger] | None]
    around: Callable[[str], Surroundings]


@dataclass(slots=True, kw_only=True)
class LateCommits:
    """Any number may run, one at a time is enough; ``tell`` takes Events, ``remember`` records."""

    calls: Calls
    binder: Binder
    caches: Caches
    tell: Callable[[Event], None] = lambda _: None
    remember: Callable[[Mapping[str, Any]], None] = lambda _: None
    clock: Clock = SYSTEM
    _missing: frozenset[str] = frozenset()
    _fine: dict[str, tuple[Seen, Ledger]] = field(default_factory=dict)
    _kept: Retries[tuple[Seen, str]] = field(init=False)

    def __post_init__(self) -> None:
        """Begin without failures."""
        self._kept = Retries(self.clock)

    async def sweep(self) -> None:
        """Commit for every pod that the caches show bound and without a promise, twice in a row.

        Once is not enough: the entry of a pod that was just bound may be on its way to us.
        """
        found = self._unpromised()
        twice = [place for place in found if place[0].uid in self._missing]
        self._missing = frozenset(pod.uid for pod, _ in found)
        for place in self._kept.due(twice):
            pod, _ = place
            try:
                settled = await self.commit(pod)
            except (KubeError, LateError) as error:
                log.warning(
                    "late commit put off", pod=f"{pod.namespace}/{pod.name}", why=str(error)
                )
                settled = False
            if not settled:
                self._kept.failed(place)

    def _unpromised(self) -> list[tuple[Seen, str]]:
        """Return bound, living pods that ask and lack an entry on their node, or word of it.

        A node that nobody has accounted for has nothing to give, and nobody knows what runs there.
        With each pod comes the version of the ledger: one that moved is worth another try at once.
        A sweep is every second, so nobody is looked at again whose pod and ledger are the same.
        """
        pods, ledgers = self.caches.pods.seen, self.caches.ledgers()
        if pods is None or ledgers is None:
            return []
        there = [pod for pod in pods.values() if pod.extended and pod.node]
        fine, self._fine = self._fine, {}
        found = []
        for pod in there:
            ledger, before = ledgers.get(pod.node), fine.get(pod.uid)
            if before is not None and before[0] is pod and before[1] is ledger:
                self._fine[pod.uid] = before
            elif ledger is None or ledger.closed or pod.over or pod.deleting:
                pass
            elif pod.told and ledger.entry(pod.uid) is not None:
                self._fine[pod.uid] = pod, ledger
            elif pod.asks(self.caches.around(pod.namespace).vocabularies):
                found.append((pod, ledger.resource_version))
        return found

    async def commit(self, pod: Seen) -> bool:
        """Promise what *pod* is to have, and tell it; say whether nothing is left to be done."""
        live = await self._live(pod)
        document = await self._document(pod.node)
        if live is None or document is None:
            return True
        ledger = read(document)
        if ledger.entry(pod.uid) is not None and is_told(live):
            return True
        around = self.caches.around(pod.namespace)
        judged = judge(as_bound(pod, USER), unbound(live), around)
        if isinstance(judged, Refusal | Denied):
            return self._refused(pod, judged, started=live.started)
        if not isinstance(judged, Wish):
            return True
        upstream = around.settings.node_agent is NodeAgent.UPSTREAM
        claim = claimed(judged, ledger, document, upstream=upstream)
        if isinstance(claim, Refusal):
            return self._refused(pod, claim, started=live.started)
        return await self._committed(pod, claim, around)

    async def _committed(self, pod: Seen, claim: Claim, around: Surroundings) -> bool:
        outcome = await self.binder.promise(claim.wish, around)
        if isinstance(outcome, Promise):
            written = claim.wish.live.pod.metadata.annotations or {}
            told = telling(outcome, written)
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            changes = {"metadata": {"uid": pod.uid, "annotations": told}}
            await self.calls.merge_patch(path, changes)
            self._record(claim, outcome)
            self.tell(_event(pod, "VgpuAssigned", note=_WAYS[claim.how]))
            return True
        if isinstance(outcome, Refusal | Denied):
            return self._refused(pod, outcome, started=claim.wish.live.started)
        return True

    def _refused(self, pod: Seen, why: Refusal | Denied, *, started: bool) -> bool:
        refusal = why.refusal if isinstance(why, Denied) else why
        so = "and was promised nothing" if started else "so it does not start"
        note = f"bound past vgpu-admission, {so}: {refusal.message}"
        self.tell(_event(pod, "VgpuUnpromised", note=note))
        return False

    def _record(self, claim: Claim, outcome: Promise) -> None:
        at = self.clock.wall().isoformat(timespec="milliseconds")
        circumstances = Circumstances(at=at, seconds=0.0, late=claim.how)
        self.remember(record(claim.wish.bound, outcome, circumstances))

    async def _live(self, pod: Seen) -> LivePod | None:
        """Return the pod as it is now, ``None`` where it is no longer the one, there and alive."""
        try:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            live = live_pod(await self.calls.get(path))
        except NotFoundError:
            return None
        there = (live.uid, live.node) == (pod.uid, pod.node)
        return live if there and not live.over and not live.deleting else None

    async def _document(self, node: str) -> dict[str, Any] | None:
        try:
            raw = await self.calls.get(f"{GPU_NODES}/{node}")
        except NotFoundError:
            return None
        found: dict[str, Any] = msgspec.json.decode(raw)
        return found


_WAYS: Final = {
    How.KEPT: "was told what it is promised",
    How.CONFIRMED: "it had no entry, and was promised what the agent found in use",
    How.TOLD: "its entry was missing, and was taken from its annotations",
    How.CHOSEN: "it was bound past vgpu-admission, and was promised a GPU late",
}


def _event(pod: Seen, reason: str, *, note: str) -> Event:
    name, namespace = pod.name, pod.namespace
    regarding = Reference(api_version="v1", kind="Pod", name=name, namespace=namespace, uid=pod.uid)
    return Event(
        regarding=regarding,
        severity=Severity.NORMAL if reason == "VgpuAssigned" else Severity.WARNING,
        reason=reason,
        action="Commit",
        note=note,
        related=Reference(api_version="v1", kind="Node", name=pod.node),
    )
