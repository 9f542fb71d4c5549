"""When a certificate is renewed, and in which order a certificate authority is replaced.

An authority is replaced in two phases. ``AddNextCA`` adds the new one to the bundle. ``SwitchLeaf``
signs with it once every registration has been observed to trust it for long enough that every API
server has noticed. On request that happens at once, otherwise after some weeks, because
kube-scheduler reads the bundle only when it starts, from its own configuration. ``DropOldCA`` ends
the overlap when the last leaf that the old authority can have signed has expired. So every client
can verify a leaf before it is written, and a leaf that a replica still serves stays verifiable:
**which leaf each replica has loaded need not be known**. In return, an old authority stays trusted
for up to the life of one leaf.

States, by what the Secret holds, and the steps that leave them:

- empty (no ``signing``): ``AddNextCA``, then ``SwitchLeaf``. The first installation and the
  recovery from a lost Secret start here.
- publishing (a ``next`` authority): ``SwitchLeaf``, once every registration trusts it.
- overlap (``old`` authorities): ``DropOldCA``, once their last leaf has expired.
- steady (only ``signing``): ``RenewLeaf`` at two thirds of a leaf's life, ``AddNextCA`` at two
  thirds of the authority's.

While a due step waits for registrations, the step is ``Settling``; otherwise it is ``Nothing``.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

RENEW_LEFT: Final = 3  # renew when a third of the life is left, which is at two thirds of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Every duration in the life of certificates, in one place so that tests can shorten them."""

    ca: timedelta = timedelta(days=365)
    leaf: timedelta = timedelta(days=30)
    # How far clocks may differ: certificates start earlier by it, the overlap lasts longer by it.
    skew: timedelta = timedelta(hours=1)
    # How long registrations must be observed unchanged before a leaf relies on them; it covers the
    # delay with which an API server notices a change.
    settle: timedelta = timedelta(seconds=15)
    # How long a new authority is trusted before it signs, unless the rotation was requested.
    notice: timedelta = timedelta(days=30)
    poll: timedelta = timedelta(seconds=5)  # between two reads of the Secret or the files
    warn: timedelta = timedelta(days=7)  # before the end of a served leaf

    def __post_init__(self) -> None:
        """Refuse durations under which renewal could not keep up."""
        third = self.leaf / RENEW_LEFT
        if self.settle + 2 * self.poll >= third or self.leaf >= self.ca:
            raise ValueError(
                f"ca {self.ca}, leaf {self.leaf}, settle {self.settle}, poll {self.poll}: "
                "settle + 2 poll must be shorter than leaf / 3, and leaf shorter than ca"
            )
        if self.notice + self.leaf > self.ca / RENEW_LEFT:
            raise ValueError(
                f"ca {self.ca}, leaf {self.leaf}, notice {self.notice}: "
                "notice + leaf must not be longer than ca / 3"
            )


DEFAULT: Final = Lifetimes()


class Rotation(StrEnum):
    """The rotations that an operator may request."""

    LEAF = "leaf"
    CA = "ca"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The properties of a certificate that the policy reads."""

    fingerprint: str  # SHA-256 in hexadecimal
    not_before: datetime
    not_after: datetime
    issuer: str | None = None  # fingerprint of the trusted authority that signed it; of a CA: None

    def is_valid(self, now: datetime) -> bool:
        """Say whether *now* is within its validity."""
        return self.not_before <= now <= self.not_after


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationState:
    """The content of the Secret: the whole state of a rotation, so that any writer can continue."""

    signing: Certificate | None = None  # signs leaves
    next: Certificate | None = None  # trusted, has signed nothing yet
    old: tuple[Certificate, ...] = ()  # trusted, sign no more
    old_until: datetime | None = None  # the end of the overlap; None: when the last of them expires
    leaf: Certificate | None = None  # None: missing or unusable
    request: Rotation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTrust:
    """What the existing registrations trust."""

    trusts: tuple[frozenset[str], ...]  # fingerprints, by registration
    unchanged_for: timedelta  # time of equal observations, without a jump of the clock
    nobody_serves: bool = False  # no replica has a leaf: every call of ours fails anyhow


@dataclass(frozen=True, slots=True)
class Nothing:
    """No step is due before *until*."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Settling:
    """A step is due and waits until the registrations are observed to trust its authority."""


@dataclass(frozen=True, slots=True)
class AddNextCA:
    """Phase 1: trust a new authority in addition to the others; it signs nothing yet."""


@dataclass(frozen=True, slots=True)
class SwitchLeaf:
    """Phase 2: the next authority becomes the signing one and signs a new leaf."""


@dataclass(frozen=True, slots=True)
class RenewLeaf:
    """The signing authority signs a new leaf."""


@dataclass(frozen=True, slots=True)
class DropOldCA:
    """Trust no authority but the signing and the next one."""


Step = Nothing | Settling | AddNextCA | SwitchLeaf | RenewLeaf | DropOldCA


def next_step(
    state: RotationState, observed: ObservedTrust, *, now: datetime, lifetimes: Lifetimes
) -> Step:
    """Return the next change of the Secret that is both due and safe."""
    if _authority_due(state, now, lifetimes):
        return AddNextCA()
    trusted = _trusted_everywhere(state, observed, now=now, lifetimes=lifetimes)
    signs_at = signs_from(state, lifetimes)
    may_sign = signs_at is None or now >= signs_at or state.signing not in trusted
    if state.next in trusted and may_sign:
        return SwitchLeaf()
    leaf_due = _leaf_due(state, now, lifetimes)
    if leaf_due and state.signing in trusted:
        return RenewLeaf()
    overlap_over = _overlap_over(state, now)
    if overlap_over and observed.unchanged_for >= lifetimes.settle:
        return DropOldCA()
    if leaf_due or overlap_over or (state.next is not None and state.next not in trusted):
        return Settling()
    return Nothing(min(_next_dates(state, lifetimes)))


def signs_from(state: RotationState, lifetimes: Lifetimes) -> datetime | None:
    """Return when the next authority may sign; ``None``: at once, as on request.

    That is at the latest one leaf's life before the signing authority expires.
    """
    if state.next is None or state.signing is None or state.request is Rotation.CA:
        return None
    noticed = state.next.not_before + lifetimes.skew + lifetimes.notice
    return min(noticed, state.signing.not_after - lifetimes.leaf)


def is_expiring(not_after: datetime, now: datetime, lifetimes: Lifetimes) -> bool:
    """Say whether a served leaf expires so soon that an operator must be warned."""
    return not_after - now < lifetimes.warn


def _authority_due(state: RotationState, now: datetime, lifetimes: Lifetimes) -> bool:
    if state.next is not None:
        return not state.next.is_valid(now)  # it waited too long, or comes from a wrong clock
    if state.signing is None or state.request is Rotation.CA:
        return True
    return _is_renewal_due(state.signing, lifetimes.ca, now)


def _leaf_due(state: RotationState, now: datetime, lifetimes: Lifetimes) -> bool:
    leaf, signing = state.leaf, state.signing
    if leaf is None or signing is None or state.request is Rotation.LEAF:
        return True
    if leaf.issuer != signing.fingerprint:
        return True
    outlives = (
        now < leaf.not_before or min(now + lifetimes.leaf, signing.not_after) > leaf.not_after
    )
    return outlives and _is_renewal_due(leaf, lifetimes.leaf, now)


def _is_renewal_due(certificate: Certificate, life: timedelta, now: datetime) -> bool:
    """Say whether to renew; a certificate that starts in the future comes from a wrong clock."""
    return now < certificate.not_before or now >= certificate.not_after - life / RENEW_LEFT


def _trusted_everywhere(
    state: RotationState, observed: ObservedTrust, *, now: datetime, lifetimes: Lifetimes
) -> frozenset[Certificate]:
    """Return the authorities whose leaves every client can verify.

    No waiting is needed at a first installation, when nothing was ever served, nor while nobody
    serves: an API server that has yet to notice a change loses nothing by a leaf that it rejects.
    """
    first_installation = state.signing is None and not state.old
    settled = first_installation or observed.nobody_serves
    if not settled and observed.unchanged_for < lifetimes.settle:
        return frozenset()
    valid = (
        item for item in (state.signing, state.next) if item is not None and item.is_valid(now)
    )
    return frozenset(
        item for item in valid if all(item.fingerprint in trusted for trusted in observed.trusts)
    )


def _overlap_over(state: RotationState, now: datetime) -> bool:
    if not state.old or state.signing is None or state.leaf is None:
        return False
    until = state.old_until or max(old.not_after for old in state.old)
    return state.leaf.issuer == state.signing.fingerprint and now > until


def _next_dates(state: RotationState, lifetimes: Lifetimes) -> list[datetime]:
    dates = [old.not_after for old in state.old] if state.old_until is None else [state.old_until]
    if state.leaf is not None:
        dates.append(state.leaf.not_after - lifetimes.leaf / RENEW_LEFT)
    if state.signing is not None:
        dates.append(state.signing.not_after - lifetimes.ca / RENEW_LEFT)
    signs_at = signs_from(state, lifetimes)
    return dates if signs_at is None else [*dates, signs_at]
