"""Plan documents: plans in the shape that scripts read, which docs/plan.md describes."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from allocator.core.candidates import grouped
from allocator.model.decision import Finding
from allocator.model.request import ContainerRequest, PodRequest
from webhook.core.explain import findings, word
from webhook.core.outcome import Refused, Rewritten
from webhook.core.plan import Device, Plan, exit_code

API_VERSION: Final = "vgpu-admission.io/v1alpha1"
KIND: Final = "Plan"


def document(plans: Sequence[tuple[str, Plan]]) -> dict[str, Any]:
    """Return *plans*, each with the file it is about, as one JSON object.

    Keys are only ever added to this version of it.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "exitCode": exit_code(plan.verdict for _, plan in plans),
        "pods": [_pod(file, plan) for file, plan in plans],
    }


def _pod(file: str, plan: Plan) -> dict[str, Any]:
    made = plan.made
    return {
        "file": file,
        "kind": made.kind,
        "namespace": made.namespace,
        "name": made.name,
        "place": made.place,
        "verdict": plan.verdict,
        "asked": None if plan.request is None else _asked(plan.request),
        "admission": _admission(plan),
        "devices": [_device(device) for device in plan.devices],
        "findings": [_finding(finding) for finding in _short(plan)],
        "options": [{"kind": option.kind, "text": option.text} for option in plan.options],
        "candidates": list(_candidates(plan)),
    }


def _asked(request: PodRequest) -> dict[str, Any]:
    filters = request.filters
    return {
        "vocabulary": request.vocabulary,
        "mode": request.mode,
        "profile": request.profile,
        "models": filters.models,
        "notModels": filters.not_models,
        "uuids": filters.uuids,
        "notUuids": filters.not_uuids,
        "containers": [_container(ask) for ask in request.containers],
    }


def _container(ask: ContainerRequest) -> dict[str, Any]:
    return {
        "name": ask.name,
        "stage": ask.stage,
        "count": ask.count,
        "memoryMiB": ask.memory,
        "memoryPercent": ask.percent,
        "coresPercent": ask.cores,
    }


def _admission(plan: Plan) -> dict[str, Any]:
    outcome, answer = plan.outcome, plan.answer
    choice = outcome.choice if isinstance(outcome, Rewritten) else None
    refused = findings(outcome) if isinstance(outcome, Refused) else ()
    return {
        "decision": word(outcome),
        "mode": None if choice is None else choice.mode,
        "modeSource": None if choice is None else choice.source,
        "costsPerMille": {} if choice is None else {str(m): cost for m, cost in choice.costs},
        "rule": "" if choice is None else choice.rule,
        "message": answer.message,
        "findings": [_finding(finding) for finding in refused],
        "warnings": answer.warnings,
        "patch": answer.operations,
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "reason": finding.reason,
        "place": finding.place,
        "field": finding.field,
        "what": finding.what,
        "remedy": finding.remedy,
    }


def _device(device: Device) -> dict[str, Any]:
    grant, placed = device.grant, device.grant.placed
    return {
        "container": device.container,
        "node": device.node,
        "gpu": device.gpu.uuid,
        "index": device.gpu.index,
        "model": device.gpu.model,
        "mode": grant.mode,
        "memoryMiB": grant.memory,
        "coresPercent": grant.cores,
        "profile": None if placed is None else placed.profile.name,
        "start": None if placed is None else placed.start,
    }


def _short(plan: Plan) -> tuple[Finding, ...]:
    return () if plan.choice is None else plan.choice.findings


def _candidates(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield GPUs that answered alike together, with the first of them."""
    for first, count in grouped(() if plan.choice is None else plan.choice.candidates):
        yield {
            "container": first.container,
            "count": count,
            "model": first.model,
            "mode": first.mode,
            "reason": first.reason,
            "detail": first.detail,
            "first": {"node": first.node, "gpu": first.gpu},
        }
