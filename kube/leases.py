"""Leader election by a Lease: one replica leads at a time.

A candidate is in one of these states; each round reads the Lease and takes one step
(:func:`next_step`):

- following: another holds the Lease. It waits until the Lease has not changed for the holder's
  ``leaseDurationSeconds``, by its own clock, or has no holder; then it takes the Lease.
- leading: from ``_leads_from`` until ``_leads_until``, which each renewal moves on. A leader that
  cannot renew stops leading at ``_leads_until``, before another may take the Lease.
- elected, not leading yet: it created a Lease that had vanished, so the former leader may not know
  that its term is over. It leads once that term has surely ended.
- released: on cancellation it stops leading, then empties the Lease.

Terms are numbered by ``leaseTransitions``.
"""

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Never, assert_never

import msgspec
import structlog

from kube.client import ApiClient
from kube.clock import SYSTEM, Clock, micro_time
from kube.errors import (
    AlreadyExistsError,
    ConflictError,
    KubeError,
    NotFoundError,
    UnreadableError,
    shorten,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times in seconds.

    The difference between ``duration`` and ``renew_within`` covers clocks that run at different
    speeds, and pauses between asking :attr:`Election.is_leader` and acting on the answer.
    """

    duration: int = 15  # others wait this long after the last change of the Lease
    renew_within: float = 10.0  # the holder stops leading this long after its last renewal
    retry_every: float = 2.0  # between rounds

    def __post_init__(self) -> None:
        """Refuse timings under which two could lead or nobody could renew."""
        if not 0 < self.retry_every < self.renew_within < self.duration:
            raise ValueError(
                f"retry_every {self.retry_every}, renew_within {self.renew_within} and duration"
                f" {self.duration} must be positive and increase in this order"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A Lease as read."""

    resource_version: str
    holder: str  # identity, empty where there is none
    term: int  # spec.leaseTransitions
    duration: int | None  # spec.leaseDurationSeconds


class ElectionStep(StrEnum):
    """What one round of an election does."""

    CREATE = "create"  # there is no Lease
    RENEW = "renew"  # it is ours
    TAKE = "take"  # its holder has released it or stopped renewing it
    WAIT = "wait"  # its holder leads


def next_step(
    record: LeaseRecord | None, *, held_by_us: bool, unchanged_for: float, duration: int
) -> ElectionStep:
    """Return the step for a Lease that we have not seen change for *unchanged_for* seconds.

    Times written in the Lease come from another machine's clock and are ignored, so that a wrong
    clock there neither ends nor prolongs a term here.
    """
    if record is None:
        return ElectionStep.CREATE
    if held_by_us:
        return ElectionStep.RENEW
    if not record.holder or unchanged_for > max(record.duration or duration, 1):
        return ElectionStep.TAKE
    return ElectionStep.WAIT


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Lease(msgspec.Struct):
    metadata: _Meta
    spec: _Spec | None = None


def parse_lease(body: bytes) -> LeaseRecord:
    """Read a ``coordination.k8s.io/v1`` Lease; raises :class:`UnreadableError`."""
    try:
        lease = msgspec.json.decode(body, type=_Lease)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"not a Lease: {shorten(str(error))}") from error
    spec = lease.spec or _Spec()
    return LeaseRecord(
        resource_version=lease.metadata.resource_version,
        holder=spec.holder_identity or "",
        term=spec.lease_transitions or 0,
        duration=spec.lease_duration_seconds,
    )


SHORTEST_CALL: Final = 0.2  # seconds
RELEASE_TIMEOUT: Final = 2.0  # seconds; a stopping process does not wait longer
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCandidate:
    """A process that takes part in the election for one Lease."""

    namespace: str
    name: str
    identity: str  # unique to this process, so that a restarted one inherits no term

    @property
    def collection(self) -> str:
        """Return the path of the namespace's Leases."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def path(self) -> str:
        """Return the path of the Lease."""
        return f"{self.collection}/{self.name}"


class Election:
    """Holds a Lease whenever it can; RBAC: leases get, create, patch in its namespace.

    A leader's writes must still test a resource version or carry ``term``, because no lease can
    stop a process that was paused between asking :attr:`is_leader` and writing.
    """

    def __init__(
        self,
        client: ApiClient,
        candidate: LeaseCandidate,
        *,
        timing: Timing | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Take part once :meth:`run` is called."""
        self._client = client
        self._candidate = candidate
        self._timing = timing or Timing()
        self._clock = clock
        self._last_change = ("", -math.inf)  # a resource version, and when we first saw it
        self._highest_term = -1  # seen in the Lease; -1: no Lease seen yet
        self._term: int | None = None  # our term, as far as we know; None: we do not hold the Lease
        self._leads_from = self._leads_until = -math.inf  # monotonic seconds
        self.elected = asyncio.Event()

    @property
    def is_leader(self) -> bool:
        """Say whether we lead at this moment; a leader checks it right before each write.

        Tasks may wait for ``elected`` instead, which is cleared up to one round late.
        """
        return self._leads_from <= self._clock.monotonic() < self._leads_until

    @property
    def term(self) -> int | None:
        """Return the number of our term, ``None`` while we do not lead.

        It grows with each new holder, unless the Lease is deleted.
        """
        return self._term if self.is_leader else None

    async def run(self) -> Never:
        """Run rounds for ever; on cancellation release the Lease at once."""
        try:
            while True:
                await self.round()
                await self._clock.sleep(self._timing.retry_every * self._clock.uniform(1, 1.2))
        finally:
            await self._release()

    async def round(self) -> None:
        """Read the Lease and take one step; errors of the API server only delay it."""
        try:
            await self._advance(await self._read())
        except (ConflictError, AlreadyExistsError) as error:
            log.debug(
                "conflict: another replica wrote first", lease=self._candidate.name, why=str(error)
            )
        except KubeError as error:
            log.warning("leader election failed", lease=self._candidate.name, why=str(error))
        self._update_elected()

    async def _read(self) -> LeaseRecord | None:
        """Read the Lease and note when it last changed, by our clock."""
        try:
            record = parse_lease(
                await self._client.get(self._candidate.path, timeout=self._call_timeout())
            )
        except NotFoundError:
            record = None
        if record is not None and record.resource_version != self._last_change[0]:
            self._last_change = (record.resource_version, self._clock.monotonic())
        if record is not None:
            self._highest_term = max(self._highest_term, record.term)
        return record

    async def _advance(self, record: LeaseRecord | None) -> None:
        held_by_us = (
            record is not None
            and record.holder == self._candidate.identity
            and record.term == self._term
        )
        if not held_by_us:
            self._resign()
        unchanged = self._clock.monotonic() - self._last_change[1]
        step = next_step(
            record, held_by_us=held_by_us, unchanged_for=unchanged, duration=self._timing.duration
        )
        match step:
            case ElectionStep.RENEW:
                await self._write_identity(record, term=self._highest_term)
            case ElectionStep.TAKE:
                await self._write_identity(record, term=self._highest_term + 1)
            case ElectionStep.CREATE:
                await self._create()
            case ElectionStep.WAIT:
                pass
            case _:
                assert_never(step)

    async def _create(self) -> None:
        """Create the Lease.

        If we saw one before, its leader may not know yet that it is gone, so we lead only after
        ``duration``. On a first installation we lead at once.
        """
        vanished = self._highest_term >= 0
        await self._write_identity(None, term=self._highest_term + 1)
        if vanished:
            self._leads_from = self._clock.monotonic() + self._timing.duration

    async def _write_identity(self, record: LeaseRecord | None, *, term: int) -> None:
        """Write our identity at the version read; our term counts from before the write."""
        sent_at = self._clock.monotonic()
        now = micro_time(self._clock.wall())
        spec: dict[str, object] = {
            "holderIdentity": self._candidate.identity,
            "leaseDurationSeconds": self._timing.duration,
            "leaseTransitions": term,
            "renewTime": now,
        }
        if self._term != term:
            spec["acquireTime"] = now
        written = parse_lease(await self._write(record, spec))
        self._last_change = (written.resource_version, self._clock.monotonic())
        self._highest_term = self._term = term
        self._leads_until = sent_at + self._timing.renew_within

    async def _write(self, record: LeaseRecord | None, spec: Mapping[str, object]) -> bytes:
        if record is not None:
            changes = {"metadata": {"resourceVersion": record.resource_version}, "spec": spec}
            return await self._client.merge_patch(
                self._candidate.path, changes, timeout=self._call_timeout()
            )
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._candidate.name},
            "spec": spec,
        }
        return await self._client.create(
            self._candidate.collection, msgspec.json.encode(lease), timeout=self._call_timeout()
        )

    def _call_timeout(self) -> float:
        """Return the seconds a call may take, so that a leader's ends before its term."""
        left = self._leads_until - self._clock.monotonic()
        return max(SHORTEST_CALL, min(self._timing.retry_every, left if left > 0 else math.inf))

    def _update_elected(self) -> None:
        if self.is_leader and not self.elected.is_set():
            log.info("leading", lease=self._candidate.name, term=self._term)
            self.elected.set()
        elif not self.is_leader and self.elected.is_set():
            log.warning("leadership lost", lease=self._candidate.name)
            self.elected.clear()

    def _resign(self) -> None:
        self._term = None
        self._leads_from = self._leads_until = -math.inf

    async def _release(self) -> None:
        """Stop leading, then empty the Lease, unless it has changed since we last wrote it."""
        held_lease = self._term is not None
        self._resign()
        self._update_elected()
        if not held_lease:
            return
        changes = {
            "metadata": {"resourceVersion": self._last_change[0]},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
        }
        with suppress(KubeError):
            await self._client.merge_patch(self._candidate.path, changes, timeout=RELEASE_TIMEOUT)
