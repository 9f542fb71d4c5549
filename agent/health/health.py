"""Health: which GPUs may be given out, by critical errors, failed probes and time.

A GPU goes out of service at once for a serious error, and after several failed probes in a row. It
returns when the cause is over and it has answered for a while, longer after each relapse, so that
a flapping GPU does not make the inventory flap, which every commit tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from agent.driver.driver import DriverEvent, Fault, Recovery
from agent.health.xid import Verdict, XidPolicy, title_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthTiming:
    """How long is waited, in seconds and in probes.

    ``misses`` failed probes in a row count as a failure, and ``quiet`` is how long after the last
    error of its kind a GPU is trusted again. After any trouble it must have been well for
    ``well`` seconds, doubled with each relapse up to ``longest``; a GPU that was well for
    ``forgotten`` starts anew.
    """

    misses: int = 3
    quiet: float = 300.0
    well: float = 30.0
    longest: float = 1800.0
    forgotten: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """What counts as trouble, and how long it lasts."""

    xids: XidPolicy = field(default_factory=XidPolicy)
    patience: HealthTiming = field(default_factory=HealthTiming)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One GPU; times are seconds of a monotonic clock.

    ``why`` is the reason it is out of service, ``None`` if it is in service. ``latched`` is an
    XID that only a reset ends, ``quiet`` an XID and when it is over. ``gone`` says that the GPU
    was lost or not listed, after which it has been reset. ``needs`` is what the driver last said
    it needs. ``well`` is since when nothing was wrong; ``relapses`` counts how often it went out
    of service of late.
    """

    why: str | None = None
    latched: int | None = None
    quiet: tuple[int, float] | None = None
    misses: int = 0
    gone: bool = False
    needs: Recovery | None = None
    well: float | None = None
    relapses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthObservation:
    """What one round of looking brought: ``events`` since the last, and a probe of each GPU.

    ``probes`` has every GPU that was ever seen: ``None`` if it answered, ABSENT if it is not listed
    any more, UNAVAILABLE if the driver did not answer in time. ``needs`` is what the driver says of
    those that it lists. An event that names no GPU concerns all of them.
    """

    events: tuple[DriverEvent, ...] = ()
    probes: Mapping[str, Fault | None]
    needs: Mapping[str, Recovery | None] = field(default_factory=dict)


Conditions = Mapping[str, Condition]
NO_CONDITIONS: Final[Conditions] = MappingProxyType({})
DEFAULT_POLICY: Final = HealthPolicy()
_GONE: Final = frozenset((Fault.LOST, Fault.ABSENT))
_RECOVERY_REASONS: Final = MappingProxyType(
    {
        Recovery.RESET: "the driver reports that the GPU needs a reset",
        Recovery.REBOOT: "the driver reports that this GPU needs a reboot of the node",
    }
)
# refusals by a driver that is well: it cannot, or may not, do what the probe asks for
_REFUSED_WHILE_WELL: Final = frozenset(
    (Fault.NOT_SUPPORTED, Fault.NO_PERMISSION, Fault.IN_USE, Fault.NO_ROOM)
)


def next_conditions(
    before: Conditions,
    look: HealthObservation,
    *,
    now: float,
    policy: HealthPolicy = DEFAULT_POLICY,
) -> Conditions:
    """Return the conditions after one round, at *now* of a monotonic clock.

    An error in the look in which a reset shows counts as later than the reset. Nothing tells which
    came first, and a broken GPU in service costs more than a second reset.
    """
    after: dict[str, Condition] = {}
    for gpu, fault in look.probes.items():
        condition = before.get(gpu, Condition())
        xids = tuple(event.xid for event in look.events if event.gpu in {gpu, None})
        condition = _note_probe(condition, fault, policy.patience)
        condition = _note_recovery(condition, look.needs.get(gpu))
        # After the reset that this look may have shown: it ends no error that it shows itself.
        condition = _note_xids(condition, xids, now=now, policy=policy)
        after[gpu] = _judge(condition, now=now, policy=policy)
    return MappingProxyType(after)


def _note_xids(
    condition: Condition, xids: tuple[int, ...], *, now: float, policy: HealthPolicy
) -> Condition:
    for xid in xids:
        match policy.xids.verdict(xid):
            case Verdict.HARMLESS:
                pass
            case Verdict.UNTIL_QUIET:
                condition = replace(condition, quiet=(xid, now + policy.patience.quiet))
            case Verdict.UNTIL_RESET:
                condition = replace(condition, latched=xid)
    return condition


def _note_probe(condition: Condition, fault: Fault | None, patience: HealthTiming) -> Condition:
    """Count failed probes; a GPU that comes back from being gone has been reset."""
    if fault is None or fault in _REFUSED_WHILE_WELL:
        latched = None if condition.gone else condition.latched
        return replace(condition, misses=0, gone=False, latched=latched)
    # lost is said by the driver itself; anything else may be a driver that is busy for once
    misses = patience.misses if fault is Fault.LOST else condition.misses + 1
    gone = condition.gone or (fault in _GONE and misses >= patience.misses)
    return replace(condition, misses=min(misses, patience.misses), gone=gone)


def _note_recovery(condition: Condition, needs: Recovery | None) -> Condition:
    """Take over what the driver reports; a GPU that needs nothing any more has been reset."""
    if needs is None:
        return condition
    reset = needs is Recovery.NOTHING and condition.needs not in {None, Recovery.NOTHING}
    return replace(condition, needs=needs, latched=None if reset else condition.latched)


def _judge(condition: Condition, *, now: float, policy: HealthPolicy) -> Condition:
    patience = policy.patience
    if condition.quiet is not None and condition.quiet[1] <= now:
        condition = replace(condition, quiet=None)
    wrong = _fault_reason(condition, patience)
    if wrong is not None:
        relapsed = condition.why is None
        return replace(condition, why=wrong, well=None, relapses=condition.relapses + int(relapsed))
    if condition.why is not None and condition.misses:  # on trial, and not well at all
        return replace(condition, well=None)
    since = now if condition.well is None else condition.well
    waited = now - since
    if condition.why is not None and waited < _trial(condition.relapses, patience):
        return replace(condition, well=since)
    relapses = 0 if waited >= patience.forgotten else condition.relapses
    return replace(condition, why=None, well=since, relapses=relapses)


def _fault_reason(condition: Condition, patience: HealthTiming) -> str | None:
    if condition.latched is not None:
        return f"{title_of(condition.latched)}: the GPU needs a reset or the node a reboot"
    if condition.needs is not None and condition.needs in _RECOVERY_REASONS:
        return _RECOVERY_REASONS[condition.needs]
    if condition.gone:
        return "the driver has lost the GPU: reboot or power-cycle the node"
    if condition.misses >= patience.misses:
        # Not how often: a reason that moves with every probe would rewrite the status with it.
        return "the driver repeatedly did not answer for this GPU"
    if condition.quiet is not None:
        title, minutes = title_of(condition.quiet[0]), patience.quiet / 60
        return f"{title}: out of service until {minutes:g} min pass without another"
    return None


def _trial(relapses: int, patience: HealthTiming) -> float:
    """Return the seconds a GPU has to be well before it is trusted again."""
    doublings = min(max(relapses - 1, 0), 16)
    return min(patience.well * (1 << doublings), patience.longest)
