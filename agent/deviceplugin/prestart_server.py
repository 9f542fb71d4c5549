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
from agent.deviceplugin.slot_files import SlotFiles
from agent.mps.daemon import DaemonFolders
from agent.node.slots import is_slot
from agent.share import NotYetError, Owner, ReadyInstance, RetryStartError, Share
from allocator.catalog.vocabularies import OWN
from allocator.model.allocation import Grant
from allocator.model.board import Placement
from allocator.model.request import Mode
from kube.clock import SYSTEM, Clock

# Kubelet gives up after 30 seconds and then shows its own message, not our reason.
DEADLINE: Final = 25.0
log = structlog.get_logger(__name__)


class OwnerSource(Protocol):
    """Finds the container that was given a set of slots."""

    async def owner(self, slots: Collection[str]) -> Owner:
        """Return the container; raises NotYetError."""


class EntrySource(Protocol):
    """The ledger's entries of this node's pods."""

    async def share(self, owner: Owner) -> Share:
        """Return what the starting container was promised; raises NotYetError."""

    async def hold(self, uid: str) -> None:
        """Return once the pod's entry is stored as held; raises NotYetError."""

    async def annotate(self, owner: Owner, annotations: Mapping[str, str]) -> None:
        """Store *annotations* on the live pod; raises NotYetError."""


class InstanceProvider(Protocol):
    """The node's MIG instances."""

    async def ensure(self, gpu: str, placed: Placement) -> ReadyInstance:
        """Return the instance at exactly that placement; raises NotYetError."""


class MpsProvider(Protocol):
    """The daemons of mode mps."""

    async def ready_daemon(self, grant: Grant) -> DaemonFolders:
        """Return the folders of the daemon that serves *grant*; raises NotYetError."""

    async def ready_partition(self, share: Share) -> str:
        """Return the partition of a container, "" where its GPU has none; raises NotYetError."""


class RegionProvider(Protocol):
    """The shared regions of the interception library."""

    async def seed(self, share: Share, *, by_cdi: bool) -> str:
        """Return the node's folder with the container's seeded region; raises NotYetError.

        *by_cdi* says that CDI mounts it, not kubelet.
        """

    async def withhold(self, share: Share) -> None:
        """Give a container that has the mounts of a region, and no library, none to write to.

        Raises NotYetError.
        """

    async def vacate(self, uid: str) -> None:
        """Return once no process of the pod *uid* is left; raises NotYetError."""


class StartEvents(Protocol):
    """Records Events on the pod; neither call waits for anything."""

    def record_allocation(self, slot: str, share: Share, edits: ContainerEdits) -> None:
        """Record what the container whose first slot is *slot* received."""

    def record_refusal(self, slot: str, owner: Owner, why: str) -> None:
        """Record why that container cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartServices:
    """The services that a start uses."""

    owners: OwnerSource
    entries: EntrySource
    instances: InstanceProvider
    regions: RegionProvider
    mps: MpsProvider
    slots: SlotFiles
    events: StartEvents


@dataclass(slots=True)
class _StartProgress:
    """The state of one start; see ``PreStart`` for the states."""

    doing: str = "waiting for an earlier start in the same slot"  # in words, for a refusal
    owner: Owner | None = None  # None until it is found


@dataclass(slots=True)
class PreStart:
    """Prepares starts of containers: one at a time in each slot, otherwise concurrently.

    A start passes these states in this order; ``_StartProgress.doing`` names all but the last:

    1. waiting for an earlier start in the same slot
    2. finding the owner of the slots
    3. looking up its entry
    4. waiting for the processes of the slot's previous pod
    5. creating its MIG instances, or seeding its shared region
    6. marking its entry as held
    7. writing the files of the slot, which the deadline does not interrupt

    Every state may end in a refusal. A start is also refused once kubelet has assigned one of its
    slots again; it is then cancelled in the states 1 to 6.
    """

    services: StartServices
    deadline: float = DEADLINE  # seconds of one start
    clock: Clock = SYSTEM
    # one start at a time in each slot
    _slot_locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    # by slot: pod uid and instances last annotated on it
    _annotated: dict[str, tuple[str, str]] = field(default_factory=dict)
    # by slot, how often kubelet assigned it
    _assignments: Counter[str] = field(default_factory=Counter)
    # by the timeout of each running start: how often its slots were assigned when it began
    _timeouts: dict[asyncio.Timeout, Mapping[str, int]] = field(default_factory=dict)
    _running: set[asyncio.Task[Owner]] = field(default_factory=set)

    def note_assigned(self, slots: Collection[str]) -> None:
        """Note that kubelet assigns *slots* to a new container.

        A start that still waits in one of these slots belongs to the previous pod, which was
        deleted by force. It is cancelled at once, so that it does not block the new one.
        """
        self._assignments.update(slots)
        for timeout, before in self._timeouts.items():
            # An expired timeout cannot be rescheduled.
            if not timeout.expired() and not before.keys().isdisjoint(slots):
                timeout.reschedule(asyncio.get_running_loop().time())

    async def start(self, slots: Collection[str]) -> None:
        """Return when the container that holds exactly *slots* may be created.

        Raises NotYetError with a reason for the user. A start goes on if its caller gives up; the
        next start in one of these slots waits for its end.
        """
        unknown = sorted(slot for slot in slots if not is_slot(slot))
        if unknown or not slots:
            names = ", ".join(unknown) or "an empty list"
            raise NotYetError(
                f"{names} is not a slot of this node (expected slot-NNNN); if another device "
                "plugin assigned it, delete the pod so that it is recreated"
            )
        before = {slot: self._assignments[slot] for slot in slots}
        began = self.clock.monotonic()
        task = asyncio.create_task(self._start_and_record(before))
        self._running.add(task)
        task.add_done_callback(self._discard_task)
        try:
            owner = await asyncio.shield(task)
            self._check_assignments(before)
        except NotYetError as error:
            log.info("start refused", slots=sorted(before), why=str(error))
            raise
        log.info(
            "start granted",
            slots=sorted(before),
            pod=f"{owner.namespace}/{owner.pod}",
            uid=owner.uid,
            container=owner.container,
            seconds=round(self.clock.monotonic() - began, 4),
        )

    def _reassigned(self, before: Mapping[str, int]) -> list[str]:
        """Return which of these slots kubelet has assigned again since *before*, sorted."""
        return sorted(slot for slot in before if self._assignments[slot] != before[slot])

    def _check_assignments(self, before: Mapping[str, int]) -> None:
        if reassigned := self._reassigned(before):
            raise NotYetError(f"{', '.join(reassigned)} went to another pod in the meantime")

    def _discard_task(self, task: asyncio.Task[Owner]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the caller may have given up

    async def _start_and_record(self, before: Mapping[str, int]) -> Owner:
        """Run the start and record a refusal as an Event, in case kubelet has given up."""
        progress = _StartProgress()
        try:
            return await self._run_start(before, progress)
        except RetryStartError:
            raise
        except NotYetError as error:
            if progress.owner is not None and not self._reassigned(before):
                self.services.events.record_refusal(min(before), progress.owner, str(error))
            raise

    async def _run_start(self, before: Mapping[str, int], progress: _StartProgress) -> Owner:
        slots, timeout = frozenset(before), asyncio.timeout(self.deadline)
        async with contextlib.AsyncExitStack() as locks:
            try:
                async with timeout, self._track_timeout(timeout, before):
                    for slot in sorted(slots):
                        lock = self._slot_locks.setdefault(slot, asyncio.Lock())
                        await locks.enter_async_context(lock)
                    share, edits = await self._prepare(slots, progress)
            except TimeoutError as error:
                self._check_assignments(before)
                own_limit = f"took longer than {self.deadline:g} s"
                raise NotYetError(
                    f"{progress.doing} {own_limit if timeout.expired() else 'timed out'}"
                ) from error
            self._check_assignments(before)
            # Outside the deadline: a write must not overlap with the next start in the slot.
            await self._write(slots, share.owner, edits)
        if not self._reassigned(before):
            self.services.events.record_allocation(min(slots), share, edits)
        return share.owner

    async def _write(self, slots: frozenset[str], owner: Owner, edits: ContainerEdits) -> None:
        try:
            await asyncio.to_thread(self.services.slots.write, slots, owner, edits)
        except OSError as error:
            raise NotYetError(f"the files of the slot cannot be written: {error}") from error

    @contextlib.asynccontextmanager
    async def _track_timeout(
        self, running: asyncio.Timeout, before: Mapping[str, int]
    ) -> AsyncIterator[None]:
        self._timeouts[running] = before
        try:
            yield
        finally:
            del self._timeouts[running]

    async def _prepare(
        self, slots: frozenset[str], progress: _StartProgress
    ) -> tuple[Share, ContainerEdits]:
        """Return the share of the starting container, and its edits once they are ready."""
        services = self.services
        progress.doing = "finding the owner of the slots"
        progress.owner = owner = await services.owners.owner(slots)
        progress.doing = f"looking up the entry of {owner.namespace}/{owner.pod}"
        share = await services.entries.share(owner)
        _check_share(share, owner, slots)
        progress.owner = share.owner
        for uid in sorted(services.slots.holders(slots) - {owner.uid}):
            progress.doing = f"waiting for the processes of the slot's previous pod {uid}"
            await services.regions.vacate(uid)
        edits = await self._edits(share, slots, progress)
        progress.doing = "marking the entry as held"
        await services.entries.hold(owner.uid)
        # A held entry is not replaced any more, but it may have been since it was looked up.
        if (await services.entries.share(share.owner)).grants != share.grants:
            raise NotYetError("the entry changed while its container was about to start")
        return share, edits

    async def _edits(
        self, share: Share, slots: frozenset[str], progress: _StartProgress
    ) -> ContainerEdits:
        mode = container_edits.mode_of(share)
        limited = mode is Mode.HAMI_CORE and not share.library_off
        if share.has_mounts and not limited:
            progress.doing = "closing the place of a shared region"
            await self.services.regions.withhold(share)
        match mode:
            case Mode.MIG:
                ready = await self._instances(share, progress)
                edits = container_edits.mig_edits(share, ready)
                await self._annotate_visible(
                    share, min(slots), container_edits.visible_value(edits.shown)
                )
                return edits
            case Mode.HAMI_CORE if limited:
                if not share.has_mounts and self.services.slots.lacks_mounts(slots):
                    raise NotYetError(
                        "kubelet assigned its slots while every GPU was in MIG mode, so it lacks "
                        "the mounts for sharing a GPU; delete the pod so that it is recreated"
                    )
                progress.doing = "seeding the container's region"
                slot_files = self.services.slots
                region = await self.services.regions.seed(share, by_cdi=slot_files.with_cdi)
                library = slot_files.library
                return container_edits.hami_core_edits(share, library=library, region=region)
            case Mode.HAMI_CORE | Mode.MEMORY_ONLY:
                return container_edits.unenforced_edits(share)
            case Mode.MPS:
                return await self._mps_edits(share, progress)
            case Mode.SGPU | Mode.NATIVE:
                raise NotYetError(f"its entry is in mode {mode}, which this agent does not serve")
            case _:
                assert_never(mode)

    async def _mps_edits(self, share: Share, progress: _StartProgress) -> ContainerEdits:
        """Return the edits of a client once the daemon of its GPU answers with its limits."""
        if not self.services.slots.with_cdi:
            raise NotYetError("mode mps needs a container runtime that reads CDI")
        (grant, *others) = share.grants
        if others:
            raise NotYetError("a container in mode mps reaches the daemon of one GPU only")
        progress.doing = f"waiting for the MPS daemon of {grant.gpu}"
        folders = await self.services.mps.ready_daemon(grant)
        progress.doing = f"waiting for its partition of {grant.gpu}"
        partition = await self.services.mps.ready_partition(share)
        return container_edits.mps_edits(
            share, pipe=folders.pipe, shared_memory=folders.shared_memory, partition=partition
        )

    async def _instances(self, share: Share, progress: _StartProgress) -> tuple[ReadyInstance, ...]:
        ready = []
        for grant in share.grants:
            if grant.placed is None:
                raise NotYetError(f"the entry names no placement for MIG on {grant.gpu}")
            progress.doing = f"creating {grant.placed} on {grant.gpu}"
            ready.append(await self.services.instances.ensure(grant.gpu, grant.placed))
        return tuple(ready)

    async def _annotate_visible(self, share: Share, slot: str, shown: str) -> None:
        """Without CDI, annotate the pod with its instances, and let kubelet retry.

        Kubelet read the variables of this start before it called, so the container would see no
        GPU. It reads the annotations again for the next start.
        """
        if self.services.slots.with_cdi or self._annotated.get(slot) == (share.owner.uid, shown):
            return
        await self.services.entries.annotate(share.owner, {f"{OWN}{share.key}.visible": shown})
        self._annotated[slot] = (share.owner.uid, shown)
        raise RetryStartError(
            f"{shown} is ready and noted on the pod; the next attempt will use it"
        )


def _check_share(share: Share, owner: Owner, slots: frozenset[str]) -> None:
    """Raise NotYetError if *share* is not that of a container of *owner* in *slots*."""
    if share.owner.uid != owner.uid or share.owner.container not in owner.containers:
        raise NotYetError(f"the entry found for {owner.pod} belongs to {share.owner.pod}")
    if len(share.grants) != len(slots):
        raise NotYetError(
            f"{owner.namespace}/{owner.pod}: the entry lists {len(share.grants)} devices for "
            f"container {share.owner.container}, but kubelet assigned {len(slots)} slots"
        )
