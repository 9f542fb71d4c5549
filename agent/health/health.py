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
    """When a GPU goes out of service and when it returns; times are in seconds."""

    misses: int = 3  # failed probes in a row that count as a failure
    quiet: float = 300.0  # after the last passing error, until the GPU is trusted again
    well: float = 30.0  # without any fault before it returns, doubled with each relapse
    longest: float = 1800.0  # bound of that doubling
    forgotten: float = 3600.0  # without any fault, after which relapses are forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """Which errors take a GPU out of service, and for how long."""

    xids: XidPolicy = field(default_factory=XidPolicy)
    timing: HealthTiming = field(default_factory=HealthTiming)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The health of one GPU; times are seconds of a monotonic clock."""

    why: str | None = None  # why it is out of service; None: it is in service
    latched: int | None = None  # an XID that only a reset ends
    quiet: tuple[int, float] | None = None  # a passing XID, and when it counts as over
    misses: int = 0  # failed probes in a row
    gone: bool = False  # lost or not listed; once it comes back, it has been reset
    needs: Recovery | None = None  # what the driver last reported that it needs
    well_since: float | None = None  # since when there has been no fault
    relapses: int = 0  # how often it went out of service, until that is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthObservation:
    """What one round of observation found."""

    # since the last round; an event that names no GPU concerns all of them
    events: tuple[DriverEvent, ...] = ()
    # every GPU ever seen: None if it answered, ABSENT if it is not listed any more, UNAVAILABLE
    # if the driver did not answer in time
    probes: Mapping[str, Fault | None]
    # what the driver reports of the GPUs that it lists
    needs: Mapping[str, Recovery | None] = field(default_factory=dict)


Conditions = Mapping[str, Condition]
NO_CONDITIONS: Final[Conditions] = MappingProxyType({})
DEFAULT_POLICY: Final = HealthPolicy()
_MOST_DOUBLINGS: Final = 16  # of the time without fault, before its bound applies
_GONE: Final = frozenset((Fault.LOST, Fault.ABSENT))
_RECOVERY_REASONS: Final = MappingProxyType(
    {
        Recovery.RESET: "the driver reports that the GPU needs a reset",
        Recovery.REBOOT: "the driver reports that this GPU needs a reboot of the node",
    }
)
# The driver works where it answers a probe with one of these.
_REFUSED_WHILE_WELL: Final = frozenset(
    (Fault.NOT_SUPPORTED, Fault.NO_PERMISSION, Fault.IN_USE, Fault.NO_ROOM)
)


def next_conditions(
    before: Conditions,
    observation: HealthObservation,
    *,
    now: float,
    policy: HealthPolicy = DEFAULT_POLICY,
) -> Conditions:
    """Return the conditions after one round, at *now* of a monotonic clock.

    An error in the round that shows a reset counts as later than the reset. Their order is unknown,
    and a broken GPU in service costs more than a second reset.
    """
    after: dict[str, Condition] = {}
    for gpu, fault in observation.probes.items():
        condition = before.get(gpu, Condition())
        xids = tuple(event.xid for event in observation.events if event.gpu in {gpu, None})
        condition = _note_probe(condition, fault, policy.timing)
        condition = _note_recovery(condition, observation.needs.get(gpu))
        # Last, because a reset that this round shows ends only errors of earlier rounds.
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
                condition = replace(condition, quiet=(xid, now + policy.timing.quiet))
            case Verdict.UNTIL_RESET:
                condition = replace(condition, latched=xid)
    return condition


def _note_probe(condition: Condition, fault: Fault | None, timing: HealthTiming) -> Condition:
    """Count failed probes; a GPU that comes back from being gone has been reset."""
    if fault is None or fault in _REFUSED_WHILE_WELL:
        latched = None if condition.gone else condition.latched
        return replace(condition, misses=0, gone=False, latched=latched)
    # LOST is the driver's own report; any other fault may be a driver that is busy for a moment.
    misses = timing.misses if fault is Fault.LOST else condition.misses + 1
    gone = condition.gone or (fault in _GONE and misses >= timing.misses)
    return replace(condition, misses=min(misses, timing.misses), gone=gone)


def _note_recovery(condition: Condition, needs: Recovery | None) -> Condition:
    """Note what the driver reports; a GPU that needs nothing any more has been reset."""
    if needs is None:
        return condition
    reset = needs is Recovery.NOTHING and condition.needs not in {None, Recovery.NOTHING}
    return replace(condition, needs=needs, latched=None if reset else condition.latched)


def _judge(condition: Condition, *, now: float, policy: HealthPolicy) -> Condition:
    timing = policy.timing
    if condition.quiet is not None and condition.quiet[1] <= now:
        condition = replace(condition, quiet=None)
    reason = _fault_reason(condition, timing)
    if reason is not None:
        relapsed = condition.why is None
        return replace(
            condition, why=reason, well_since=None, relapses=condition.relapses + int(relapsed)
        )
    if condition.why is not None and condition.misses:  # it still fails probes
        return replace(condition, well_since=None)
    since = now if condition.well_since is None else condition.well_since
    waited = now - since
    if condition.why is not None and waited < _trial_seconds(condition.relapses, timing):
        return replace(condition, well_since=since)
    relapses = 0 if waited >= timing.forgotten else condition.relapses
    return replace(condition, why=None, well_since=since, relapses=relapses)


def _fault_reason(condition: Condition, timing: HealthTiming) -> str | None:
    if condition.latched is not None:
        return f"{title_of(condition.latched)}: the GPU needs a reset or the node a reboot"
    if condition.needs is not None and condition.needs in _RECOVERY_REASONS:
        return _RECOVERY_REASONS[condition.needs]
    if condition.gone:
        return "the driver has lost the GPU: reboot or power-cycle the node"
    if condition.misses >= timing.misses:
        # Without a count: a reason that changes with every probe would rewrite the status.
        return "the driver repeatedly did not answer for this GPU"
    if condition.quiet is not None:
        title, minutes = title_of(condition.quiet[0]), timing.quiet / 60
        return f"{title}: out of service until {minutes:g} min pass without another"
    return None


def _trial_seconds(relapses: int, timing: HealthTiming) -> float:
    """Return the seconds that a GPU must be without fault before it returns to service."""
    doublings = min(max(relapses - 1, 0), _MOST_DOUBLINGS)
    return min(timing.well * (1 << doublings), timing.longest)
