"""What is derived from each region at a look: its limits, and what it counts on which GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.driver.driver import Device
from agent.monitor.attribution import RegionView, by_container, misnumbered_slots
from agent.monitor.measurement import RegionCount
from agent.region.decode import Region, totals
from agent.region.seed import Limit, Write, fallback_writes, limit_corrections

MOST_CLOCK_SKEW: Final = 60  # seconds that the time of a last kernel may lie ahead
LEAST_LIMIT: Final = 1  # byte: the library takes 0 for no limit
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What the facts of a region are derived from, besides the region."""

    before: tuple[Limit, ...]  # the limits that it should have had
    wanted: tuple[Limit, ...]  # those that it is to have
    live: frozenset[int]  # slots
    moved: Mapping[int, str]  # the GPU of each slot that the library counts on others
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFacts:
    """What was derived from a region; kept while the region and the basis are the same."""

    region: Region
    basis: _Basis
    tampered: bool  # its limits are not what they should have been
    corrections: tuple[Write, ...]  # of limits
    count: RegionCount

    @property
    def moved(self) -> Mapping[int, str]:
        """Return the GPU of each slot that the library counts on others."""
        return self.basis.moved


def region_facts(
    views: Mapping[str, RegionView],
    before: Mapping[str, RegionFacts],
    *,
    devices: tuple[Device, ...],
    now: float,
) -> dict[str, RegionFacts]:
    """Return the facts of each region at *now* in Unix seconds, some as they were *before*."""
    wanted = _wanted_limits(views)
    facts = {}
    for key, view in views.items():
        opened, known = view.opened, before.get(key)
        basis = _Basis(
            before=opened.limits if known is None else known.basis.wanted,
            wanted=wanted[key],
            live=view.live,
            moved=misnumbered_slots(view),
            devices=devices,
        )
        if known is not None and known.region is opened.region and known.basis == basis:
            facts[key] = known
        else:
            facts[key] = _facts(view, basis, now=now)
    return facts


def _facts(view: RegionView, basis: _Basis, *, now: float) -> RegionFacts:
    region, last_kernel = view.opened.region, view.opened.region.last_kernel
    promised = view.opened.gpus
    sizes = {d.uuid: d.memory * _MIB for d in basis.devices if d.uuid in promised}
    is_plausible = basis.live and last_kernel is not None and last_kernel <= now + MOST_CLOCK_SKEW
    uid, container = view.opened.container
    count = RegionCount(
        uid=uid,
        container=container,
        totals=totals(region, sizes, lambda slot: slot.index in basis.live, moved=basis.moved),
        last_kernel=last_kernel if is_plausible else None,
    )
    return RegionFacts(
        region=region,
        basis=basis,
        tampered=bool(limit_corrections(region, basis.before)),
        corrections=(
            *limit_corrections(region, basis.wanted),
            *fallback_writes(region, view.opened.limits),
        ),
        count=count,
    )


def _wanted_limits(views: Mapping[str, RegionView]) -> dict[str, tuple[Limit, ...]]:
    """Return the limits of each region, which hold in sum for all of one container."""
    wanted: dict[str, tuple[Limit, ...]] = {}
    for of_container in by_container(views.values()).values():
        used = [view.used for view in of_container]
        limits = summed_limits(of_container[0].opened.limits, used)
        wanted |= {v.opened.key: own for v, own in zip(of_container, limits, strict=True)}
    return wanted


def summed_limits(
    promised: Sequence[Limit], used: Sequence[Sequence[int]]
) -> tuple[tuple[Limit, ...], ...]:
    """Return limits of several regions that hold in sum; *used* are bytes by region and device.

    The library of a process knows only the region that it has open, so each region gets what the
    use in the others leaves of the promise. Devices that a region does not list are not used in it.
    """
    return tuple(
        tuple(
            replace(
                limit, memory=max(LEAST_LIMIT, limit.memory - _used_in_others(used, own, device))
            )
            for device, limit in enumerate(promised)
        )
        for own in range(len(used))
    )


def _used_in_others(used: Sequence[Sequence[int]], own: int, device: int) -> int:
    return sum(
        region[device]
        for number, region in enumerate(used)
        if number != own and device < len(region)
    )
