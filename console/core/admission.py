"""Admission once more: the mode that a pod would leave it with on the fleet as it is now."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from allocator.core.modes import Chosen, mode_for, translated_percent
from allocator.core.settings import NodeAgent, Prefer, templated
from allocator.model.decision import Finding
from allocator.model.gpu import Offer, Snapshot
from allocator.model.request import PodRequest
from console.core.site import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What admission would make of *request*: a mode, or findings for which it is refused."""

    request: PodRequest
    chosen: Chosen | None = None
    findings: tuple[Finding, ...] = ()


def admission(
    request: PodRequest,
    snapshot: Snapshot,
    configuration: Configuration,
    *,
    prefer: Prefer | None = None,
) -> Admission:
    """Choose the mode of *request*; *prefer* is the preference of its namespace."""
    settings = configuration.settings
    offers = _offers(snapshot, configuration)
    if settings.node_agent is NodeAgent.UPSTREAM:
        translated = translated_percent(request, offers)
        if isinstance(translated, Finding):
            return Admission(request=request, findings=(translated,))
        request = translated
    if prefer is not None:
        settings = msgspec.structs.replace(settings, prefer=prefer)
    chosen = mode_for(
        request,
        offers,
        settings=settings,
        complete=snapshot.complete,
        mixed=snapshot.mixed,
    )
    if isinstance(chosen, tuple):
        return Admission(request=request, findings=chosen)
    return Admission(request=request, chosen=chosen)


def _offers(snapshot: Snapshot, configuration: Configuration) -> Mapping[Offer, int]:
    """Return the kinds of GPU that are here, and those that may come."""
    offers = dict(snapshot.offers)
    for offer, count in templated(configuration.settings.node_templates).items():
        offers[offer] = max(count, offers.get(offer, 0))
    return offers
