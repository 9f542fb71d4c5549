"""What the API server refuses to store, for the kinds that tests of ours write."""

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_EVENT_WORDS = {"reason": 128, "action": 128, "reportingController": 63, "reportingInstance": 128}


class RefusedError(Exception):
    """A refusal as the API server words it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = status
        self.reason = reason

    def status(self) -> Json:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }


def check(collection: tuple[str, str], new: Json, old: Json | None) -> None:
    """Raise a 422 for what validation of the real server refuses."""
    rules = {
        ("/apis/events.k8s.io/v1", "events"): _event,
        ("/apis/coordination.k8s.io/v1", "leases"): _lease,
    }
    rule = rules.get(collection)
    if rule is not None and (faults := list(rule(new, old))):
        raise RefusedError(422, "Invalid", "; ".join(faults))


def _event(new: Json, old: Json | None) -> Iterator[str]:
    for word, most in _EVENT_WORDS.items():
        if not new.get(word):
            yield f"{word}: Required value"
        elif len(new[word].split("/")[-1]) > most:
            yield f"{word}: can have at most {most} characters"
    if not new.get("eventTime"):
        yield "eventTime: Required value"
    if new.get("type") not in ("Normal", "Warning"):
        yield "type: Invalid value"
    if len(new.get("note", "").encode()) > 1024:
        yield "message: can have at most 1024 characters"
    if "series" in new and new["series"]["count"] < 2:
        yield "series.count: should be at least 2"
    if "namespace" not in new["regarding"] and new["metadata"]["namespace"] != "default":
        yield "involvedObject.namespace: does not match event.namespace"
    if old is not None:
        yield from _immutable(old, new, except_for={"series", "metadata"})


def _immutable(old: Json, new: Json, *, except_for: set[str]) -> Iterator[str]:
    for key in sorted((old.keys() | new.keys()) - except_for):
        if old.get(key) != new.get(key):
            yield f"{key}: field is immutable"


def _lease(new: Json, _old: Json | None) -> Iterator[str]:
    spec: Mapping[str, Any] = new.get("spec", {})
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield "spec.leaseDurationSeconds: must be greater than 0"
    if spec.get("leaseTransitions", 0) < 0:
        yield "spec.leaseTransitions: must be greater than or equal to 0"
