"""Status: certificates and the progress of their rotation, as text."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

from certs.core import policy
from certs.core.policy import Certificate, State, Step
from certs.core.registration import Registration, Target, outdated, trusted

SHOWN: Final = 16  # characters of a fingerprint; enough to compare by eye


class Phase(StrEnum):
    """Where in its rotation the authority is."""

    EMPTY = "empty"
    PUBLISHING = "publishing"
    OVERLAP = "overlap"
    STEADY = "steady"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the Secret and the registrations say at *now*."""

    now: datetime
    state: State
    bundle: bytes
    registrations: tuple[Registration, ...]
    missing: tuple[Target, ...]


def phase(state: State) -> Phase:
    """Return where the rotation stands."""
    if state.next is not None:
        return Phase.PUBLISHING
    if state.leaf is None:
        return Phase.EMPTY
    return Phase.OVERLAP if state.old else Phase.STEADY


def performed(step: Step) -> str | None:
    """Return what *step* has changed, as a sentence for an Event; ``None`` if nothing."""
    match step:
        case policy.Nothing() | policy.Settling():
            return None
        case policy.AddNextCA():
            return (
                "a new CA is trusted and will sign in some weeks, or sooner if requested; "
                "give it to schedulers that call the extender (vgpu certs status)"
            )
        case policy.SwitchLeaf():
            return "the new CA has signed the serving certificate"
        case policy.RenewLeaf():
            return "the serving certificate was renewed"
        case policy.DropOldCA():
            return "the old CA is no longer trusted"
        case _:
            assert_never(step)


def lines(status: Status) -> Iterator[str]:
    """Render *status*, one aligned line per fact."""
    state = status.state
    yield f"phase       {_phase_told(state)}"
    yield f"leaf        {_told(state.leaf, status.now)}"
    yield f"signing CA  {_told(state.signing, status.now)}"
    if state.next is not None:
        yield f"next CA     {_told(state.next, status.now)}"
    for old in state.old:
        yield f"old CA      {_told(old, status.now)}"
    yield f"requested   {state.request or 'nothing'}"
    for registration in status.registrations:
        yield f"{registration.target} {_carries(registration, status)}"
    for target in status.missing:
        yield f"{target} does not exist, skipped"


def _phase_told(state: State) -> str:
    match phase(state):
        case Phase.EMPTY:
            return "empty: no usable certificate yet"
        case Phase.PUBLISHING:
            told = "publishing: the next CA signs once every registration trusts it"
            signs = policy.signs_from(state, policy.DEFAULT)
            return told if signs is None else f"{told}, not before {_minute(signs)}"
        case Phase.OVERLAP:
            until = state.old_until or max(old.not_after for old in state.old)
            return f"overlap: old CAs are trusted until {_minute(until)}"
        case Phase.STEADY:
            return "steady"


def _told(certificate: Certificate | None, now: datetime) -> str:
    if certificate is None:
        return "none"
    left = (certificate.not_after - now).days
    return f"{certificate.fingerprint[:SHOWN]} until {_minute(certificate.not_after)} ({left} days)"


def _carries(registration: Registration, status: Status) -> str:
    if not outdated(registration, status.bundle):
        return "carries the bundle"
    known = (status.state.signing, status.state.next, *status.state.old)
    wanted = {certificate.fingerprint for certificate in known if certificate is not None}
    lacking = sorted(item[:SHOWN] for item in wanted - trusted(registration))
    return f"lacks CA {', '.join(lacking)}" if lacking else "carries the bundle and other CAs"


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
