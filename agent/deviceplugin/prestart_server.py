"""PreStart: prepares what a container needs before it is created, or refuses with a reason.

Kubelet calls before every start of a container, waits 30 seconds, shows the reason of a refusal in
the status of the pod and calls again. So every step may run twice. Kubelet names only the slots,
not the pod.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

import structlog

from agent.deviceplugin import container_edits
from agent.deviceplugin.container_edits import ContainerEdits
from agent.deviceplugin.slot_files import Slots
from agent.node.slots import is_slot
from agent.share import NotYetError, Owner, ReadyInstance, RetryStartError, Share
from allocator.catalog.vocabularies import OWN
from allocator.model.board import Placement
from allocator.model.request import Mode
from kube.clock import SYSTEM, Clock

# Kubelet hangs up after 30 seconds, and then its own words hide our reason.
DEADLINE: Final = 25.0
log = structlog.get_logger(__name__)


class OwnerSource(Protocol):
    """Who was given a set of slots."""

    async def owner(self, slots: Collection[str]) -> Owner:
        """Return the container; raises NotYetError."""


class EntrySource(Protocol):
    """What the ledger says of this node's pods."""

    async def share(self, owner: Owner) -> Share:
        """Return what the starting container was promised; raises NotYetError."""

    async def hold(self, uid: str) -> None:
        """Return once the pod's entry is stored as held; raises NotYetError."""

    async def annotate(self, owner: Owner, annotations: Mapping[str, str]) -> None:
        """Store *annotations* on the live pod; raises NotYetError."""


class InstanceProvider(Protocol):
    """The node's MIG instances."""

    async def ensure(self, gpu: str, placed: Placement) -> ReadyInstance:
        """Return the instance at exactly that place; raises NotYetError."""


class RegionProvider(Protocol):
    """The shared regions of the interception library."""

    async def seed(self, share: Share) -> str:
        """Return the node's folder with the container's seeded region; raises NotYetError."""

    async def vacate(self, uid: str) -> None:
        """Return once no process of the pod *uid* is left; raises NotYetError."""


class StartEvents(Protocol):
    """Who tells the pod's user; neither call waits for anything."""

    def record_allocation(self, slot: str, share: Share, content: ContainerEdits) -> None:
        """Say what the container whose first slot is *slot* received."""

    def record_refusal(self, slot: str, owner: Owner, why: str) -> None:
        """Say why it was not made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartServices:
    """The services that a start uses."""

    owners: OwnerSource
    promises: EntrySource
    instances: InstanceProvider
    regions: RegionProvider
    slots: Slots
    news: StartEvents


@dataclass(slots=True)
class _StartProgress:
    """How far one start has come and whose it is, to name in a refusal."""

    doing: str = "waiting for an earlier start in the same slot"
    owner: Owner | None = None


@dataclass(slots=True)
class PreStart:
    """Starts containers: side by side, except in one slot.

    ``deadline`` in seconds. ``_told`` has, by slot, the instances that a pod was last told of,
    ``_hands`` how often it was handed on.
    """

    parts: StartServices
    deadline: float = DEADLINE
    clock: Clock = SYSTEM
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _told: dict[str, tuple[str, str]] = field(default_factory=dict)
    _hands: Counter[str] = field(default_factory=Counter)
    _limits: dict[asyncio.Timeout, Mapping[str, int]] = field(default_factory=dict)
    _running: set[asyncio.Task[Owner]] = field(default_factory=set)

    def note_assigned(self, slots: Collection[str]) -> None:
        """Note that kubelet gives *slots* to a container of which nothing has started yet.

        A start that still waits in one of these slots belongs to the previous pod, which was
        deleted by force. It is cancelled at once, so that it does not block the new one.
        """
        self._hands.update(slots)
        for limit, hands in self._limits.items():
            # One that has run out is on its way out already, and must not be set again.
            if not limit.expired() and not hands.keys().isdisjoint(slots):
                limit.reschedule(asyncio.get_running_loop().time())

    async def start(self, slots: Collection[str]) -> None:
        """Return when the container that holds exactly *slots* may be made.

        Raises NotYetError with a reason for the user. A start goes on if its caller gives up; the
        next call for these slots begins when it has ended.
        """
        unknown = sorted(slot for slot in slots if not is_slot(slot))
        if unknown or not slots:
            names = ", ".join(unknown) or "an empty list"
            raise NotYetError(
                f"{names} is not a slot of this node (expected slot-NNNN); if another device "
                "plugin assigned it, delete the pod so that it is recreated"
            )
        hands = {slot: self._hands[slot] for slot in slots}
        began = self.clock.monotonic()
        task = asyncio.create_task(self._in_turn(hands))
        self._running.add(task)
        task.add_done_callback(self._finish)
        try:
            owner = await asyncio.shield(task)
            self._check_hands(hands)
        except NotYetError as error:
            log.info("start refused", slots=sorted(hands), why=str(error))
            raise
        log.info(
            "start granted",
            slots=sorted(hands),
            pod=f"{owner.namespace}/{owner.pod}",
            uid=owner.uid,
            container=owner.container,
            seconds=round(self.clock.monotonic() - began, 4),
        )

    def _reassigned_slots(self, hands: Mapping[str, int]) -> str:
        """Return which of these slots were handed on since, empty for none."""
        return ", ".join(sorted(slot for slot in hands if self._hands[slot] != hands[slot]))

    def _check_hands(self, hands: Mapping[str, int]) -> None:
        if lost := self._reassigned_slots(hands):
            raise NotYetError(f"{lost} went to another pod in the meantime")

    def _finish(self, task: asyncio.Task[Owner]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # noted: whoever asked may have stopped listening

    async def _in_turn(self, hands: Mapping[str, int]) -> Owner:
        """Start, and tell the user of the pod why not: a kubelet that hung up does not."""
        course = _StartProgress()
        try:
            return await self._run_start(hands, course)
        except RetryStartError:
            raise
        except NotYetError as error:
            if course.owner is not None and not self._reassigned_slots(hands):
                self.parts.news.record_refusal(min(hands), course.owner, str(error))
            raise

    async def _run_start(self, hands: Mapping[str, int], course: _StartProgress) -> Owner:
        slots, limit = frozenset(hands), asyncio.timeout(self.deadline)
        async with contextlib.AsyncExitStack() as turns:
            try:
                async with limit, self._track_limit(limit, hands):
                    for slot in sorted(slots):
                        turn = self._turns.setdefault(slot, asyncio.Lock())
                        await turns.enter_async_context(turn)
                    share, content = await self._prepare(slots, course)
            except TimeoutError as error:
                self._check_hands(hands)
                ours = f"took longer than {self.deadline:g} s"
                raise NotYetError(
                    f"{course.doing} {ours if limit.expired() else 'timed out'}"
                ) from error
            self._check_hands(hands)
            # Past the deadline's reach: a write must not go on behind the next start's back.
            await self._write(slots, share.owner, content)
        if not self._reassigned_slots(hands):
            self.parts.news.record_allocation(min(slots), share, content)
        return share.owner

    async def _write(self, slots: frozenset[str], owner: Owner, content: ContainerEdits) -> None:
        try:
            await asyncio.to_thread(self.parts.slots.write, slots, owner, content)
        except OSError as error:
            raise NotYetError(f"the files of the slot cannot be written: {error}") from error

    @contextlib.asynccontextmanager
    async def _track_limit(
        self, limit: asyncio.Timeout, hands: Mapping[str, int]
    ) -> AsyncIterator[None]:
        self._limits[limit] = hands
        try:
            yield
        finally:
            del self._limits[limit]

    async def _prepare(
        self, slots: frozenset[str], course: _StartProgress
    ) -> tuple[Share, ContainerEdits]:
        """Return the share of the starting container, and its content once that is ready."""
        parts = self.parts
        course.doing = "finding the owner of the slots"
        course.owner = owner = await parts.owners.owner(slots)
        course.doing = f"looking up the entry of {owner.namespace}/{owner.pod}"
        share = await parts.promises.share(owner)
        _check(share, owner, slots)
        course.owner = share.owner
        for uid in sorted(parts.slots.holders(slots) - {owner.uid}):
            course.doing = f"waiting for the processes of the slot's previous pod {uid}"
            await parts.regions.vacate(uid)
        content = await self._content(share, slots, course)
        course.doing = "marking the entry as held"
        await parts.promises.hold(owner.uid)
        # Only from then on nobody exchanges it any more.
        if (await parts.promises.share(share.owner)).grants != share.grants:
            raise NotYetError("the entry changed while its container was about to start")
        return share, content

    async def _content(
        self, share: Share, slots: frozenset[str], course: _StartProgress
    ) -> ContainerEdits:
        mode = container_edits.mode_of(share)
        match mode:
            case Mode.MIG:
                ready = await self._instances(share, course)
                content = container_edits.of_instances(share, ready)
                await self._annotate_visible(
                    share, min(slots), container_edits.visible(content.shown)
                )
                return content
            case Mode.HAMI_CORE:
                if not share.mounts and self.parts.slots.lacks_mounts(slots):
                    raise NotYetError(
                        "kubelet assigned its slots while every GPU was in MIG mode, so it lacks "
                        "the mounts for sharing a GPU; delete the pod so that it is recreated"
                    )
                course.doing = "seeding the container's region"
                region = await self.parts.regions.seed(share)
                library = self.parts.slots.library
                return container_edits.of_library(share, library=library, region=region)
            case Mode.MEMORY_ONLY:
                return container_edits.of_gpus(share)
            case _:
                assert_never(mode)

    async def _instances(self, share: Share, course: _StartProgress) -> tuple[ReadyInstance, ...]:
        found = []
        for grant in share.grants:
            if grant.placed is None:
                raise NotYetError(f"the entry names no placement for MIG on {grant.gpu}")
            course.doing = f"creating {grant.placed} on {grant.gpu}"
            found.append(await self.parts.instances.ensure(grant.gpu, grant.placed))
        return tuple(found)

    async def _annotate_visible(self, share: Share, slot: str, shown: str) -> None:
        """Without CDI, write into the pod which instances it has, and let kubelet come again.

        The variables of this start were read before kubelet asked; those of the next are not.
        Until then the container would see nothing.
        """
        if self.parts.slots.with_cdi or self._told.get(slot) == (share.owner.uid, shown):
            return
        await self.parts.promises.annotate(share.owner, {f"{OWN}{share.key}.visible": shown})
        self._told[slot] = (share.owner.uid, shown)
        raise RetryStartError(
            f"{shown} is ready and noted on the pod; the next attempt will use it"
        )


def _check(share: Share, owner: Owner, slots: frozenset[str]) -> None:
    """Refuse a share that cannot be this container's."""
    if share.owner.uid != owner.uid or share.owner.container not in owner.containers:
        raise NotYetError(f"the entry found for {owner.pod} belongs to {share.owner.pod}")
    if len(share.grants) != len(slots):
        raise NotYetError(
            f"{owner.namespace}/{owner.pod}: the entry lists {len(share.grants)} devices for "
            f"container {share.owner.container}, but kubelet assigned {len(slots)} slots"
        )
