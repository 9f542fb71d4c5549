"""Why documents: what became of a pod's request in the shape that docs/kubectl.md describes."""

from typing import Any, Final

from msgspec import to_builtins

from allocator.placement.mode import explain_mode
from allocator.report.feasibility_json import (
    device_document,
    finding_document,
    outlook_document,
    request_document,
)
from console.cluster.event import EventView
from console.explain.why import NodeAnswer, PodWhy
from console.get.listing import API_VERSION

KIND: Final = "Why"


def why_document(told: PodWhy) -> dict[str, Any]:
    """Return all that is told about one pod; keys are only ever added."""
    pod, found = told.facts.pod, told.outlook
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "namespace": pod.namespace,
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "state": told.state,
        "verdict": None if found is None else found.verdict,
        "asked": None if told.request is None else request_document(told.request),
        "findings": [finding_document(finding) for finding in told.findings],
        "admission": _admission(told),
        "held": [
            {
                "node": held.node,
                "since": held.entry.since,
                "devices": [device_document(device) for device in held.devices],
            }
            for held in told.held
        ],
        "carried": [to_builtins(device) for device in told.carried],
        "outlook": outlook_document(found),
        "nodes": [_node(answer) for answer in told.answers],
        "endings": [
            {"namespace": one.namespace, "pod": one.pod, "node": one.node} for one in told.endings
        ],
        "events": [event_document(event) for event in told.facts.events],
    }


def _admission(told: PodWhy) -> dict[str, Any]:
    marks, now = told.marks, told.now
    chosen = None if now is None else now.chosen
    return {
        "decision": marks.digest or None,
        "mode": marks.mode,
        "modeSource": marks.source,
        "servedBy": marks.served_by or None,
        "ruleNow": None if chosen is None else explain_mode(chosen.choice),
    }


def _node(answer: NodeAnswer) -> dict[str, Any]:
    return {
        "node": answer.node,
        "out": answer.out or None,
        "finding": None if answer.finding is None else finding_document(answer.finding),
    }


def event_document(event: EventView) -> dict[str, Any]:
    """Return one Event."""
    return {
        "type": event.type,
        "reason": event.reason,
        "by": event.reporter,
        "message": event.message,
        "times": event.times,
        "last": event.at,
    }
