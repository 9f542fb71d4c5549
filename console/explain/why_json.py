"""The JSON of ``why``, in the shape that docs/kubectl.md describes."""

from typing import Any, Final

from msgspec import to_builtins

from allocator.model.decision import ModeChoice
from allocator.placement.mode import explain_mode
from allocator.report.feasibility_json import (
    device_document,
    finding_document,
    outlook_document,
    request_document,
)
from allocator.report.mode_rows import mode_row_documents
from console.cluster.event import EventView
from console.explain.why import NodeAnswer, PodWhy
from console.get.listing import API_VERSION

KIND: Final = "Why"


def why_document(pod_why: PodWhy) -> dict[str, Any]:
    """Return the explanation of one pod; keys are only ever added."""
    pod, feasibility = pod_why.facts.pod, pod_why.outlook
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "namespace": pod.namespace,
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "state": pod_why.state,
        "verdict": None if feasibility is None else feasibility.verdict,
        "asked": None if pod_why.request is None else request_document(pod_why.request),
        "findings": [finding_document(finding) for finding in pod_why.findings],
        "admission": _admission(pod_why),
        "held": [
            {
                "node": held.node,
                "since": held.entry.since,
                "devices": [device_document(device) for device in held.devices],
            }
            for held in pod_why.held
        ],
        "carried": [to_builtins(device) for device in pod_why.annotated_devices],
        "outlook": outlook_document(feasibility),
        "modes": mode_row_documents(pod_why.modes),
        "nodes": [_node(answer) for answer in pod_why.answers],
        "endings": [
            {"namespace": pod.namespace, "pod": pod.pod, "node": pod.node}
            for pod in pod_why.freeing_pods
        ],
        "events": [event_document(event) for event in pod_why.facts.events],
    }


def _admission(pod_why: PodWhy) -> dict[str, Any]:
    marks, now = pod_why.marks, pod_why.mode_now
    decision = None if now is None else now.decision
    return {
        "decision": marks.digest or None,
        "mode": marks.mode,
        "modeSource": marks.source,
        "servedBy": marks.served_by or None,
        "ruleNow": explain_mode(decision) if isinstance(decision, ModeChoice) else None,
    }


def _node(answer: NodeAnswer) -> dict[str, Any]:
    return {
        "node": answer.node,
        "out": answer.closed_reason or None,
        "finding": None if answer.finding is None else finding_document(answer.finding),
        "strangers": [{"namespace": use.namespace, "pod": use.pod} for use in answer.strangers],
    }


def event_document(event: EventView) -> dict[str, Any]:
    """Return one Event."""
    return {
        "type": event.type,
        "reason": event.reason,
        "by": event.reporter,
        "message": event.message,
        "times": event.times,
        "last": event.last_time,
    }
