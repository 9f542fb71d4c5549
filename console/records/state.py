"""The state of one decision: all that is known of a pod or of a refused request so far.

A state is folded from records that arrive late and in any order. So each field is a count, the
least or the greatest of what was seen, or belongs to a register: a group of fields that the record
with the latest stamp (time, then id) fills. Folding is commutative; only counts need each record
to be folded once.
"""

from base64 import urlsafe_b64encode
from enum import StrEnum
from hashlib import blake2b

import msgspec

from allocator.audit.record import AskedPart, GivenPart, OwnerPart

Stamp = tuple[int, str]  # milliseconds since 1970, and a short digest of the record's id
NEVER: Stamp = (-1, "")


class Subject(StrEnum):
    """What a row of decisions is about."""

    POD = "p"  # a pod by its uid
    REFUSED = "r"  # a request by its digest, as often as it was refused
    FAILED = "e"  # a request that could not be decided on
    PENDING = "a"  # a request that was admitted, whose pod is not known yet


class Register(msgspec.Struct, array_like=True, kw_only=True):
    """Fields that one record fills together."""

    stamp: Stamp = NEVER


class AdmissionRegister(Register, array_like=True, kw_only=True):
    """What the latest decision at CREATE said."""

    digest: str = ""
    verdict: str = ""
    reason: str = ""
    text: str = ""
    user: str = ""
    vocabulary: str = ""
    mode: str = ""
    mode_source: str = ""
    owner: OwnerPart | None = None
    asked: tuple[AskedPart, ...] = ()


class BindRegister(Register, array_like=True, kw_only=True):
    """What the latest bind that was not refused gave."""

    node: str = ""
    mode: str = ""
    mode_source: str = ""
    given: tuple[GivenPart, ...] = ()


class NameRegister(msgspec.Struct, array_like=True, kw_only=True, order=True):
    """Name and namespace, from the most trusted kind of record; of several, the least."""

    rank: int = 9
    namespace: str = ""
    pod: str = ""


class WaitingRegister(Register, array_like=True, kw_only=True):
    """What the latest record of waiting said."""

    state: str = ""
    reason: str = ""


class ReleaseRegister(Register, array_like=True, kw_only=True):
    """The latest removal of an entry whose pod went on."""

    node: str = ""


class DecisionState(msgspec.Struct, array_like=True, kw_only=True):
    """All that is known of one pod or request; times are milliseconds since 1970."""

    subject: Subject
    digest: str = ""  # of several, the least
    pod_uid: str = ""
    name: NameRegister = msgspec.field(default_factory=NameRegister)
    admission: AdmissionRegister = msgspec.field(default_factory=AdmissionRegister)
    bind: BindRegister = msgspec.field(default_factory=BindRegister)
    release: ReleaseRegister = msgspec.field(default_factory=ReleaseRegister)
    waiting: WaitingRegister = msgspec.field(default_factory=WaitingRegister)
    first: int | None = None  # decision at CREATE
    last: int | None = None
    times: int = 0
    waiting_begun: int | None = None
    bound_first: int | None = None
    bound_last: int | None = None
    started: dict[str, int] = msgspec.field(default_factory=dict)  # first seen, by node
    over: int | None = None
    active: int = 0  # the latest record
    violations: dict[str, int] = msgspec.field(default_factory=dict)  # by node
    confirmed: bool = False  # the pod of a pending request is known


def stamp_of(at: int, record_id: str) -> Stamp:
    """Return the stamp of a record; two of one millisecond differ by six characters."""
    raw = blake2b(record_id.encode(errors="replace"), digest_size=5).digest()
    return at, urlsafe_b64encode(raw)[:6].decode()


def least(known: int | None, seen: int) -> int:
    """Return the smaller of the two."""
    return seen if known is None or seen < known else known


def greatest(known: int | None, seen: int) -> int:
    """Return the larger of the two."""
    return seen if known is None or seen > known else known
