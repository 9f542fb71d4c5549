"""Outlook documents: requests and outlooks in the shape that scripts read (docs/plan.md)."""

from collections.abc import Iterator
from typing import Any

from allocator.model.decision import Finding, ModeChoice
from allocator.model.request import ContainerRequest, PodRequest
from allocator.placement.candidates import group_candidates
from allocator.placement.choose import Choice
from allocator.placement.mode import explain_mode
from allocator.report.feasibility import Feasibility, GrantedDevice


def outlook_document(feasibility: Feasibility | None) -> dict[str, Any]:
    """Return where a pod would sit, what is short, what it would take, and who answered what."""
    if feasibility is None:
        return {"devices": [], "findings": [], "options": [], "candidates": []}
    return {
        "devices": [device_document(device) for device in feasibility.devices],
        "findings": [finding_document(finding) for finding in feasibility.choice.findings],
        "options": [{"kind": option.kind, "text": option.text} for option in feasibility.options],
        "candidates": list(_candidates(feasibility.choice)),
    }


def copies_document(feasibility: Feasibility | None) -> dict[str, Any] | None:
    """Return how many pods are wanted, needed and fit, and how many each node would take."""
    if feasibility is None:
        return None
    copies = feasibility.copies
    return {
        "wanted": copies.asked.wanted,
        "needed": copies.asked.needed,
        "fitting": copies.fitting,
        "ever": copies.ever,
        "nodes": [{"name": name, "pods": number} for name, number in copies.nodes.items()],
    }


def choice_document(choice: ModeChoice | None) -> dict[str, Any]:
    """Return the mode that a pod leaves admission with, and why; ``None`` is no mode at all."""
    return {
        "mode": None if choice is None else choice.mode,
        "modeSource": None if choice is None else choice.source,
        "costsPerMille": {} if choice is None else choice.costs,
        "rule": "" if choice is None else explain_mode(choice),
    }


def request_document(request: PodRequest) -> dict[str, Any]:
    """Return what a pod asks for."""
    filters = request.filters
    return {
        "vocabulary": request.vocabulary,
        "mode": request.mode,
        "profile": request.profile,
        "models": filters.models,
        "notModels": filters.not_models,
        "uuids": filters.uuids,
        "notUuids": filters.not_uuids,
        "containers": [_container(container_request) for container_request in request.containers],
    }


def _container(container_request: ContainerRequest) -> dict[str, Any]:
    return {
        "name": container_request.name,
        "stage": container_request.stage,
        "count": container_request.count,
        "memoryMiB": container_request.memory,
        "memoryPercent": container_request.percent,
        "coresPercent": container_request.cores,
    }


def finding_document(finding: Finding) -> dict[str, str]:
    """Return one obstacle."""
    return {
        "reason": finding.reason,
        "place": finding.place,
        "field": finding.field,
        "what": finding.what,
        "remedy": finding.remedy,
    }


def device_document(device: GrantedDevice) -> dict[str, Any]:
    """Return one grant, and the GPU that it is on."""
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


def _candidates(choice: Choice) -> Iterator[dict[str, Any]]:
    """Yield GPUs that answered alike together, with the first of them."""
    for first, count in group_candidates(choice.candidates):
        yield {
            "container": first.container,
            "count": count,
            "model": first.model,
            "mode": first.mode,
            "reason": first.reason,
            "detail": first.detail,
            "first": {"node": first.node, "gpu": first.gpu},
        }
