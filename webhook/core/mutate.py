"""Mutation: from a reviewed pod to the pod we intend, or to what stands in its way."""

from collections.abc import Sequence

from allocator.catalog.injection import Column
from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.core.choose import PlacementPolicy
from allocator.core.geometry import Geometries
from allocator.core.modes import choose_mode
from allocator.core.requests import parse_request
from allocator.core.settings import Prefer, Settings
from allocator.model.gpu import Snapshot
from allocator.model.request import PodRequest
from allocator.model.value import Value
from allocator.request.admitted import (
    Asked,
    earlier_pass,
    named_mode,
    without_chosen_mode,
)
from webhook.core import hygiene, prior
from webhook.core.outcome import GpusHidden, Outcome, Refused, Rewritten, Untouched
from webhook.core.patch import Intent
from webhook.core.podwire import Pod
from webhook.core.rewrite import Rewrite, blind
from webhook.core.spot import ContainerRef, spots


class AdmissionContext(Value, frozen=True):
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
    def terms(self) -> PlacementPolicy:
        """Return by what a place is chosen here."""
        settings = self.settings
        return PlacementPolicy(
            prefer=self.prefer or settings.prefer,
            geometries=self.geometries,
            packings=settings.packings,
        )


def decide(pod: Pod, around: AdmissionContext) -> Outcome:
    """Decide about one pod at CREATE: parse its request, find obstacles, intend a change."""
    request = parse_request(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=pod.metadata.annotations or {},
        vocabularies=around.vocabularies,
    )
    if request is None:
        return _without_request(pod)
    if isinstance(request, tuple):
        asked = prior.encode_asked(prior.as_it_stands(pod))
        digest = _digest(pod, asked, constraints=())
        return Refused(first=request[0], rest=request[1:], digest=digest)
    return _with_request(pod, request, around)


def _without_request(pod: Pod) -> Outcome:
    """Blind the containers of a pod that asks for nothing, and refuse forged grants."""
    findings = list(hygiene.annotations(pod))
    everyone = spots(pod)
    for spot in everyone:
        findings += hygiene.container(hygiene.CheckedContainer(spot, Column.VOID))
    if findings:
        return Refused(first=findings[0], rest=tuple(findings[1:]))
    changes = tuple(change for spot in everyone if (change := blind(spot)) is not None)
    return GpusHidden(intent=Intent(containers=changes)) if changes else Untouched()


def _with_request(pod: Pod, request: PodRequest, around: AdmissionContext) -> Outcome:
    """Decide about a pod that asks for vGPU."""
    vocabulary = next(v for v in around.vocabularies if v.name == request.vocabulary)
    everyone = spots(pod)
    now = _asking_resources(everyone, request, vocabulary)
    claim = earlier_pass(pod.metadata.annotations or {}, vocabulary)
    before = prior.confirm_earlier(claim, now, vocabulary=vocabulary) if claim else None
    request = without_chosen_mode(request, claim)
    asked = before.asked if before else Asked(mode=named_mode(request), containers=now)
    text = prior.encode_asked(asked)
    digest = _digest(pod, text, constraints=request.constraints)
    decided = choose_mode(
        request,
        around.snapshot,
        settings=around.settings,
        prefer=around.prefer,
        earlier=before.choice if before else None,
    )
    if decided.chosen is None:
        return Refused(first=decided.findings[0], rest=decided.findings[1:], digest=digest)
    rewrite = Rewrite(
        pod=pod,
        spots=everyone,
        request=decided.request,
        choice=decided.chosen.choice,
        vocabulary=vocabulary,
        settings=around.settings,
        resources=now,
        host_paths=around.host_paths,
        high_priority=around.high_priority,
    )
    intent, findings = rewrite.intent(text, digest)
    warnings = (*map(str, decided.chosen.warnings), *rewrite.warnings())
    if findings:
        return Refused(findings[0], tuple(findings[1:]), digest, warnings)
    return Rewritten(decided.request, rewrite.choice, asked, digest, intent, warnings)


def _asking_resources(
    everyone: Sequence[ContainerRef], request: PodRequest, vocabulary: Vocabulary
) -> dict[str, dict[str, str]]:
    """Return the resources of each asking container as they stand."""
    asking = {container.name for container in request.containers}
    return {
        spot.container.name: prior.visible(spot.container, vocabulary)
        for spot in everyone
        if spot.container.name in asking
    }


def _digest(pod: Pod, asked: str, *, constraints: tuple[str, ...]) -> str:
    owners = pod.metadata.owner_references or ()
    return prior.digest_of(
        asked,
        namespace=pod.metadata.namespace or "",
        owner=next((owner.uid for owner in owners if owner.controller), ""),
        constraints=constraints,
    )
