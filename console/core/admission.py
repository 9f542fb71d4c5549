"""Admission once more: the mode that a pod would leave it with on the fleet as it is now."""

from dataclasses import dataclass

import msgspec

from allocator.core.modes import Chosen, mode_for, translated_percent
from allocator.core.settings import NodeAgent, Prefer, foreseen
from allocator.model.decision import Finding
from allocator.model.gpu import Snapshot
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
    offers = foreseen(snapshot.offers, settings.node_templates)
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
