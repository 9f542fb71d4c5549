"""Plans as JSON, in the shape that scripts read, which docs/plan.md describes."""

from collections.abc import Sequence
from typing import Any, Final

from allocator.report.feasibility import exit_code
from allocator.report.feasibility_json import (
    choice_document,
    copies_document,
    finding_document,
    outlook_document,
    request_document,
)
from allocator.report.mode_rows import mode_row_documents
from webhook.admission.messages import word
from webhook.admission.outcome import Refused, Rewritten
from webhook.plan.plan import Plan

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
        "asked": None if plan.request is None else request_document(plan.request),
        "admission": _admission(plan),
        **outlook_document(plan.outlook),
        "copies": copies_document(plan.outlook),
        "modes": mode_row_documents(plan.modes),
    }


def _admission(plan: Plan) -> dict[str, Any]:
    outcome, answer = plan.outcome, plan.answer
    choice = outcome.choice if isinstance(outcome, Rewritten) else None
    refused = outcome.findings.all if isinstance(outcome, Refused) else ()
    return {
        "decision": word(outcome),
        **choice_document(choice),
        "message": answer.message,
        "findings": [finding_document(finding) for finding in refused],
        "warnings": answer.warnings,
        "patch": answer.operations,
    }
