"""Mutation: from a reviewed pod to the pod we intend, or to what stands in its way."""

from collections.abc import Mapping, Sequence

import msgspec

from allocator.catalog.injection import Column
from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.core.choose import Terms
from allocator.core.geometry import Geometries
from allocator.core.modes import mode_for, translated_percent
from allocator.core.requests import parsed
from allocator.core.settings import NodeAgent, Prefer, Settings, foreseen
from allocator.model.decision import Finding, ModeChoice
from allocator.model.gpu import Offer, Snapshot
from allocator.model.request import PodRequest
from allocator.model.value import Value
from allocator.request.admitted import (
    Asked,
    EarlierPass,
    earlier_pass,
    named_mode,
    without_chosen_mode,
)
from webhook.core import hygiene, prior
from webhook.core.outcome import Hidden, Outcome, Refused, Rewritten, Untouched
from webhook.core.patch import Intent
from webhook.core.podwire import Pod
from webhook.core.rewrite import Rewrite, blinded
from webhook.core.spot import spots


class Surroundings(Value, frozen=True):
    """What a decision rests on besides the pod: settings, one snapshot, its namespace.

    ``host_paths`` says whether the namespace admits hostPath volumes; ``None`` is unknown.
    ``prefer`` is the namespace's own preference between modes, ``high_priority`` says whether its
    pods may hold back others, ``geometries`` how an operator allows GPUs to be cut.
    """

    settings: Settings
    snapshot: Snapshot
    vocabularies: Sequence[Vocabulary] = VOCABULARIES
    host_paths: bool | None = None
    prefer: Prefer | None = None
    high_priority: bool = False
    geometries: Geometries | None = None

    @property
    def offers(self) -> Mapping[Offer, int]:
        """Return the kinds of GPU that are here, and those that may come."""
        return foreseen(self.snapshot.offers, self.settings.node_templates)

    @property
    def terms(self) -> Terms:
        """Return by what a place is chosen here."""
        settings = self.settings
        return Terms(
            prefer=self.prefer or settings.prefer,
            geometries=self.geometries,
            packings=settings.packings,
        )


def decide(pod: Pod, around: Surroundings) -> Outcome:
    """Decide about one pod at CREATE: parse its request, find obstacles, intend a change."""
    request = parsed(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=pod.metadata.annotations or {},
        vocabularies=around.vocabularies,
    )
    if request is None:
        return _without_request(pod)
    if isinstance(request, tuple):
        asked = prior.encoded(prior.as_it_stands(pod))
        digest = _digest(pod, asked, constraints=())
        return Refused(first=request[0], rest=request[1:], digest=digest)
    return _with_request(pod, request, around)


def _without_request(pod: Pod) -> Outcome:
    """Blind the containers of a pod that asks for nothing, and refuse forged grants."""
    findings = list(hygiene.annotations(pod))
    everyone = spots(pod)
    for spot in everyone:
        findings += hygiene.container(hygiene.Subject(spot, Column.VOID))
    if findings:
        return Refused(first=findings[0], rest=tuple(findings[1:]))
    changes = tuple(change for spot in everyone if (change := blinded(spot)) is not None)
    return Hidden(intent=Intent(containers=changes)) if changes else Untouched()


def _with_request(pod: Pod, request: PodRequest, around: Surroundings) -> Outcome:
    """Decide about a pod that asks for vGPU."""
    vocabulary = next(v for v in around.vocabularies if v.name == request.vocabulary)
    asking = {container.name for container in request.containers}
    everyone = spots(pod)
    now = {
        spot.container.name: prior.visible(spot.container, vocabulary)
        for spot in everyone
        if spot.container.name in asking
    }
    claim = earlier_pass(pod.metadata.annotations or {}, vocabulary)
    before = prior.borne_out(claim, now, vocabulary=vocabulary) if claim else None
    request = without_chosen_mode(request, claim)
    asked = before.asked if before else Asked(mode=named_mode(request), containers=now)
    text = prior.encoded(asked)
    digest = _digest(pod, text, constraints=request.constraints)
    decided = _decided(request, before, around)
    if isinstance(decided, tuple):
        return Refused(first=decided[0], rest=decided[1:], digest=digest)
    rewrite = Rewrite(
        pod=pod,
        spots=everyone,
        request=decided.request,
        choice=decided.choice,
        vocabulary=vocabulary,
        settings=around.settings,
        resources=now,
        host_paths=around.host_paths,
        high_priority=around.high_priority,
    )
    intent, findings = rewrite.intent(text, digest)
    warnings = (*decided.warnings, *rewrite.warnings())
    if findings:
        first, *rest = findings
        return Refused(first=first, rest=tuple(rest), digest=digest, warnings=warnings)
    return Rewritten(
        request=decided.request,
        choice=decided.choice,
        asked=asked,
        digest=digest,
        intent=intent,
        warnings=warnings,
    )


class _Decided(Value, frozen=True):
    request: PodRequest
    choice: ModeChoice
    warnings: tuple[str, ...] = ()


def _decided(
    request: PodRequest, before: EarlierPass | None, around: Surroundings
) -> _Decided | tuple[Finding, ...]:
    """Return the mode, as an earlier pass chose it or afresh, or why there is none.

    The upstream plugin knows no percentages, so there they become MiB.
    """
    settings, snapshot = around.settings, around.snapshot
    if settings.node_agent is NodeAgent.UPSTREAM:
        translated = translated_percent(request, around.offers)
        if isinstance(translated, Finding):
            return (translated,)
        request = translated
    if before is not None:
        return _Decided(request, before.choice)
    if around.prefer is not None:
        settings = msgspec.structs.replace(settings, prefer=around.prefer)
    chosen = mode_for(
        request,
        around.offers,
        settings=settings,
        complete=snapshot.complete,
        mixed=snapshot.mixed,
    )
    if isinstance(chosen, tuple):
        return chosen
    return _Decided(request, chosen.choice, tuple(map(str, chosen.warnings)))


def _digest(pod: Pod, asked: str, *, constraints: tuple[str, ...]) -> str:
    owners = pod.metadata.owner_references or ()
    return prior.digest_of(
        asked,
        namespace=pod.metadata.namespace or "",
        owner=next((owner.uid for owner in owners if owner.controller), ""),
        constraints=constraints,
    )
