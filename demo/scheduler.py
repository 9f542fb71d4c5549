"""What a scheduler of the demo asks and writes: which node takes a pod, and why none does."""

import orjson

from allocator.model.request import PodRequest
from allocator.placement.choose import Choice, choose
from allocator.request.admitted import admitted_request
from allocator.request.parse import parse_request
from demo.objects import Json
from webhook.admission.context import AdmissionContext
from webhook.review.binding_schema import live_pod


def choice_for(pod: Json, context: AdmissionContext) -> Choice:
    """Return where an admitted *pod* fits best, as a scheduler learns it from the extender.

    Raises ``ValueError`` for a pod that asks for no GPU.
    """
    live = live_pod(orjson.dumps(pod)).pod
    annotations = live.metadata.annotations or {}
    request = parse_request(
        containers=live.spec.containers,
        init_containers=live.spec.init_containers or (),
        annotations=annotations,
        vocabularies=context.vocabularies,
    )
    if not isinstance(request, PodRequest):
        raise ValueError(f"pod {live.metadata.name} asks for no GPU that can be given: {request}")  # noqa: TRY004 -- its content
    admitted = admitted_request(annotations, request, context.vocabularies)
    return choose(context.snapshot, admitted.request, mode=admitted.mode, policy=context.policy)


def unschedulable_pod(pod: Json, choice: Choice, nodes: int) -> Json:
    """Return *pod* with what a scheduler writes on it that no one of *nodes* takes it."""
    why = "; ".join(map(str, choice.findings))
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"0/{nodes} nodes are available: {why}",
    }
    return {**pod, "status": {"phase": "Pending", "conditions": [condition]}}
