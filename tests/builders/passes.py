"""Passes of admission, as what records them takes them."""

from typing import Any

from webhook.replicas.decided_pod import DecidedPass

FIELDS = (
    "request",
    "decided",
    "context",
    "at",
    "seconds",
    "age",
)


def with_fields(decision: DecidedPass, **fields: Any) -> DecidedPass:  # noqa: ANN401 -- of any field
    """Return *decision* with other *fields*."""
    return DecidedPass(**{name: getattr(decision, name) for name in FIELDS} | fields)
