"""PreStart: what must be so before a container is made, established or refused with a reason.

Kubelet asks before every start of a container, waits 30 seconds, shows the reason of a refusal
in the pod's status and asks again. So everything here may be done twice, and nothing is known but
the slots: not even for whom kubelet asked the last time.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

import structlog

from agent.core import content as contents
from agent.core.content import Content
from agent.core.promise import NotYetError, Owner, Ready, Share
from agent.core.slot import is_slot
from agent.shell.slots import Slots
from allocator.catalog.vocabularies import OWN
from allocator.model.board import Placed
from allocator.model.request import Mode
from kube.clock import SYSTEM, Clock

# Kubelet hangs up after 30 seconds, and then its own words hide our reason.
DEADLINE: Final = 25.0

log = structlog.get_logger(__name__)


class Owners(Protocol):
    """Who was given a set of slots."""

    async def owner(self, slots: Collection[str]) -> Owner:
        """Return the container; raises NotYetError."""


class Promises(Protocol):
    """What the ledger says of this node's pods."""

    async def share(self, owner: Owner) -> Share:
        """Return what the starting container was promised; raises NotYetError."""

    async def hold(self, uid: str) -> None:
        """Return once the pod's entry is stored as held; raises NotYetError."""

    async def annotate(self, owner: Owner, annotations: Mapping[str, str]) -> None:
        """Store *annotations* on the live pod; raises NotYetError."""


class Instances(Protocol):
    """The node's MIG instances."""

    async def ensure(self, gpu: str, placed: Placed) -> Ready:
        """Return the instance at exactly that place; raises NotYetError."""


class Regions(Protocol):
    """The shared regions of the interception library."""

    async def seed(self, share: Share) -> str:
        """Return the node's folder with the container's seeded region; raises NotYetError."""

    async def vacate(self, uid: str) -> None:
        """Return once no process of the pod *uid* is left; raises NotYetError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Whom a start rests on."""

    owners: Owners
    promises: Promises
    instances: Instances
    regions: Regions
    slots: Slots


@dataclass(slots=True)
class _Course:
    """How far one start has come, for the reason why it came no further."""

    doing: str = "waiting for an earlier start in the same slot"


@dataclass(slots=True)
class PreStart:
    """Starts containers: side by side, except in one slot.

    ``deadline`` in seconds. ``_told`` has, by slot, the instances that a pod was last told of,
    ``_hands`` how often it was handed on.
    """

    parts: Parts
    deadline: float = DEADLINE
    clock: Clock = SYSTEM
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _told: dict[str, tuple[str, str]] = field(default_factory=dict)
    _hands: Counter[str] = field(default_factory=Counter)
    _limits: dict[asyncio.Timeout, Mapping[str, int]] = field(default_factory=dict)
    _running: set[asyncio.Task[Owner]] = field(default_factory=set)

    def handed(self, slots: Collection[str]) -> None:
        """Note that kubelet gives *slots* to a container of which nothing has started yet.

        Whoever waits for a start in them had them before: its pod was deleted by force, and what
        the slot holds from now on is not for it. It stops at once, lest it keep the heir waiting.
        """
        self._hands.update(slots)
        for limit, hands in self._limits.items():
            if not hands.keys().isdisjoint(slots):
                limit.reschedule(asyncio.get_running_loop().time())

    async def start(self, slots: Collection[str]) -> None:
        """Return when the container that holds exactly *slots* may be made.

        Raises NotYetError with a reason for the user. Whoever stops listening stops nothing: the
        next call for these slots begins when this one is through.
        """
        unknown = sorted(slot for slot in slots if not is_slot(slot))
        if unknown or not slots:
            told = ", ".join(unknown) or "nothing"
            raise NotYetError(f"{told}: no slot of this node's; accepted are slot-0000 and so on")
        hands = {slot: self._hands[slot] for slot in slots}
        began = self.clock.monotonic()
        task = asyncio.create_task(self._in_turn(hands))
        self._running.add(task)
        task.add_done_callback(self._over)
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

    def _check_hands(self, hands: Mapping[str, int]) -> None:
        lost = sorted(slot for slot in hands if self._hands[slot] != hands[slot])
        if lost:
            raise NotYetError(f"{', '.join(lost)} went to another pod meanwhile")

    def _over(self, task: asyncio.Task[Owner]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # noted: whoever asked may have stopped listening

    async def _in_turn(self, hands: Mapping[str, int]) -> Owner:
        course, slots, limit = _Course(), frozenset(hands), asyncio.timeout(self.deadline)
        async with contextlib.AsyncExitStack() as turns:
            try:
                async with limit, self._limited(limit, hands):
                    for slot in sorted(slots):
                        turn = self._turns.setdefault(slot, asyncio.Lock())
                        await turns.enter_async_context(turn)
                    owner, content = await self._prepared(slots, course)
            except TimeoutError as error:
                self._check_hands(hands)
                ours = f"takes longer than {self.deadline:g} s"
                raise NotYetError(
                    f"{course.doing} {ours if limit.expired() else 'was given up'}"
                ) from error
            self._check_hands(hands)
            # Past the deadline's reach: a write must not go on behind the next start's back.
            await asyncio.to_thread(self.parts.slots.write, slots, owner, content)
        return owner

    @contextlib.asynccontextmanager
    async def _limited(
        self, limit: asyncio.Timeout, hands: Mapping[str, int]
    ) -> AsyncIterator[None]:
        self._limits[limit] = hands
        try:
            yield
        finally:
            del self._limits[limit]

    async def _prepared(self, slots: frozenset[str], course: _Course) -> tuple[Owner, Content]:
        """Return who starts and what it receives, once all of that is there."""
        parts = self.parts
        course.doing = "finding out whose slots these are"
        owner = await parts.owners.owner(slots)
        course.doing = f"looking for the promise to {owner.namespace}/{owner.pod}"
        share = await parts.promises.share(owner)
        _check(share, owner, slots)
        for uid in sorted(parts.slots.holders(slots) - {owner.uid}):
            course.doing = f"waiting for the processes of pod {uid}, which had the slot before,"
            await parts.regions.vacate(uid)
        content = await self._content(share, slots, course)
        course.doing = "recording that the promise is held"
        await parts.promises.hold(owner.uid)
        return share.owner, content

    async def _content(self, share: Share, slots: frozenset[str], course: _Course) -> Content:
        mode = contents.mode_of(share)
        match mode:
            case Mode.MIG:
                ready = await self._instances(share, course)
                await self._tell(share, min(slots), contents.visible(share, ready))
                return contents.of_instances(share, ready)
            case Mode.HAMI_CORE:
                course.doing = "seeding the container's region"
                region = await self.parts.regions.seed(share)
                return contents.of_library(
                    share, library=self.parts.slots.library, region=region
                )  # fmt: skip
            case Mode.MEMORY_ONLY:
                return contents.of_gpus(share)
            case _:
                assert_never(mode)

    async def _instances(self, share: Share, course: _Course) -> tuple[Ready, ...]:
        found = []
        for grant in share.grants:
            if grant.placed is None:
                raise NotYetError(f"the entry promises MIG on {grant.gpu} without a placement")
            course.doing = f"making {grant.placed} on {grant.gpu}"
            found.append(await self.parts.instances.ensure(grant.gpu, grant.placed))
        return tuple(found)

    async def _tell(self, share: Share, slot: str, shown: str) -> None:
        """Without CDI, write into the pod which instances it has, and let kubelet come again.

        The variables of this start were read before kubelet asked; those of the next are not.
        Until then the container would see nothing.
        """
        if self.parts.slots.with_cdi or self._told.get(slot) == (share.owner.uid, shown):
            return
        await self.parts.promises.annotate(share.owner, {f"{OWN}{share.key}.visible": shown})
        self._told[slot] = (share.owner.uid, shown)
        raise NotYetError(f"{shown} is ready and has just been written into the pod")


def _check(share: Share, owner: Owner, slots: frozenset[str]) -> None:
    """Refuse a share that cannot be this container's."""
    if share.owner.uid != owner.uid or share.owner.container not in owner.containers:
        raise NotYetError(f"the promise found for {owner.pod} is of {share.owner.pod}")
    if len(share.grants) != len(slots):
        raise NotYetError(
            f"{owner.namespace}/{owner.pod}: the entry promises {len(share.grants)} devices to "
            f"container {share.owner.container}, kubelet gave it {len(slots)} slots"
        )
