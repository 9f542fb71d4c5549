"""Term: reads a Lease and decides the next move of a candidate; no clock, no network."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from kube.errors import UnreadableError, shorten


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds. The holder stops ``renew_within`` after its last renewal, others wait ``duration``.

    The difference covers clocks that run at different speeds and pauses between looking at
    ``leading`` and acting on it.
    """

    duration: int = 15
    renew_within: float = 10.0
    retry_every: float = 2.0

    def __post_init__(self) -> None:
        """Refuse timings under which two could lead or nobody could renew."""
        if not 0 < self.retry_every < self.renew_within < self.duration:
            raise ValueError(
                f"retry_every {self.retry_every}, renew_within {self.renew_within} and duration"
                f" {self.duration} must be positive and increase in this order"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A Lease as read; ``term`` is its number of transitions, ``duration`` seconds."""

    version: str
    holder: str
    term: int
    duration: int | None


class ElectionStep(StrEnum):
    """What one round of an election does."""

    CREATE = "create"
    RENEW = "renew"
    TAKE = "take"
    WAIT = "wait"


def move(
    record: LeaseRecord | None, *, mine: bool, unchanged: float, duration: int
) -> ElectionStep:
    """Decide from what the Lease says and for how many seconds we saw it not change.

    Times in the record are the other machine's and are not looked at: a clock that is wrong
    there neither ends nor prolongs a term here.
    """
    if record is None:
        return ElectionStep.CREATE
    if mine:
        return ElectionStep.RENEW
    if not record.holder or unchanged > max(record.duration or duration, 1):
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


def parse(body: bytes) -> LeaseRecord:
    """Read a ``coordination.k8s.io/v1`` Lease; raises :class:`UnreadableError`."""
    try:
        lease = msgspec.json.decode(body, type=_Lease)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"not a Lease: {shorten(str(error))}") from error
    spec = lease.spec or _Spec()
    return LeaseRecord(
        version=lease.metadata.resource_version,
        holder=spec.holder_identity or "",
        term=spec.lease_transitions or 0,
        duration=spec.lease_duration_seconds,
    )
