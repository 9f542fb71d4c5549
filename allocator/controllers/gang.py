"""Events on PodGroups: a refused bind leaves a gang short, or a gang with GPUs is stuck."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Never

import msgspec
import structlog

from allocator.catalog.vocabularies import Vocabulary
from allocator.cluster.picture import ChangeTracker
from allocator.cluster.pods import Pods
from allocator.config.settings import Settings
from allocator.model.untrusted import quote
from allocator.request.pod_summary import PodSummary
from allocator.scheduling.gang import Gang, Members, Name, members_of
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError, NotFoundError
from kube.events import Event, Reference, Severity
from kube.workqueue import isolated

API_VERSION: Final = "scheduling.volcano.sh/v1beta1"
POD_GROUPS: Final = f"/apis/{API_VERSION}/namespaces/{{}}/podgroups/{{}}"
MOST_REFUSALS: Final = 256  # waiting to be reported
log = structlog.get_logger(__name__)


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    min_member: int = 0


class _PodGroup(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class GangController:
    """Every replica reports its own refusals; only the leader reports stuck gangs."""

    def __init__(
        self,
        client: ApiClient,
        pods: Pods,
        *,
        vocabularies: Callable[[], Iterable[Vocabulary]],
        record: Callable[[Event], None],
        clock: Clock = SYSTEM,
    ) -> None:
        """Read PodGroups through *client*."""
        self._client = client
        self._pods = pods
        self._vocabularies = vocabularies
        self._record = record
        self._clock = clock
        self._changes: ChangeTracker[PodSummary] = ChangeTracker()
        self._last_vocabularies: tuple[Vocabulary, ...] = ()
        self._partly_bound: Mapping[Name, Members] = {}
        self._refusals: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue(MOST_REFUSALS)
        self._stuck: dict[
            Name, tuple[Members, float]
        ] = {}  # members when last seen, and monotonic seconds since when

    def note_refusal(self, uid: str, text: str, code: str) -> None:
        """Queue a refused bind of pod *uid* for a report; dropped when the queue is full.

        *code* is that of the reason, which *text* tells in full.
        """
        if not self._refusals.full():
            self._refusals.put_nowait((uid, text, code))

    async def run(self) -> Never:
        """Write Events about refusals, for ever."""
        while True:
            uid, text, code = await self._refusals.get()
            with isolated("gang event not written", uid=uid):
                await self.report_refusal(uid, text, code)

    async def report_refusal(self, uid: str, text: str, code: str) -> None:
        """Record an Event on the group of pod *uid* if fewer members than its minimum are bound.

        Schedulers try each member on each node. Refusals for one reason are one Event, which counts
        them, and whose note tells the first.
        """
        pods = self._pods.by_uid or {}
        pod = pods.get(uid)
        if pod is None or not pod.group:
            return
        name = (pod.namespace, pod.group)
        group = [p for p in self._pods.grouped.values() if (p.namespace, p.group) == name]
        members_by_group = members_of(group, tuple(self._vocabularies()))
        gang = await self._gang(name, members_by_group[name]) if name in members_by_group else None
        if gang is not None and gang.members.bound < gang.least:
            bound = f"{gang.members.bound} of {gang.least} members are bound"
            note = f"bind of pod {quote(pod.name)} was refused, {bound}: {text}"
            self._record(_event(gang, "VgpuGangShort", note, series=code))

    async def sweep(self, settings: Settings) -> None:
        """Report gangs that have been stuck for too long."""
        gangs = await self._long_stuck(settings.gang_timeout_seconds)
        for gang in gangs:
            members = gang.members
            note = (
                f"{members.bound} of {gang.least} members have held GPUs for more than "
                f"{settings.gang_timeout_seconds} s while {len(members.waiting)} wait"
            )
            self._record(_event(gang, "VgpuGangStuck", note))

    async def _long_stuck(self, seconds: float) -> list[Gang]:
        now = self._clock.monotonic()
        before, self._stuck = self._stuck, {}
        gangs: list[Gang] = []
        for name, members in self._partly_bound_groups().items():
            known, since = before.get(name, (members, now))
            since = since if known == members else now  # it has made progress
            self._stuck[name] = (members, since)
            if now - since >= seconds:
                gang = await self._gang(name, members)
                gangs += [gang] if gang is not None and gang.is_stuck else []
        return gangs

    def _partly_bound_groups(self) -> Mapping[Name, Members]:
        """Return the groups of which some pods hold GPUs and others wait, as last computed."""
        vocabularies, grouped = tuple(self._vocabularies()), self._pods.grouped
        changed = self._changes.take(grouped)
        if changed is None or changed or vocabularies != self._last_vocabularies:
            self._last_vocabularies = vocabularies
            groups = members_of(grouped.values(), vocabularies)
            self._partly_bound = {n: m for n, m in groups.items() if m.holding and m.waiting}
        return self._partly_bound

    async def _gang(self, name: Name, members: Members) -> Gang | None:
        try:
            raw = await self._client.get(POD_GROUPS.format(*name))
            pod_group = msgspec.json.decode(raw, type=_PodGroup)
        except NotFoundError:
            return None
        except (KubeError, msgspec.MsgspecError, RecursionError) as error:
            log.warning("PodGroup not read", group="/".join(name), why=str(error))
            return None
        return Gang(
            name=name,
            uid=pod_group.metadata.uid,
            least=pod_group.spec.min_member,
            members=members,
        )


def _event(gang: Gang, reason: str, note: str, *, series: str = "") -> Event:
    namespace, name = gang.name
    regarding = Reference(
        api_version=API_VERSION, kind="PodGroup", name=name, namespace=namespace, uid=gang.uid
    )
    return Event(
        regarding=regarding,
        severity=Severity.WARNING,
        reason=reason,
        action="Bind",
        note=note,
        series=series,
    )
