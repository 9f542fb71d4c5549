"""Bindings for tests: as a scheduler posts them, and as they go on after the hook."""

import base64
import copy
from typing import Any

import jsonpatch
import orjson

from tests.builders.pods import Json
from webhook.review.binding_schema import BindingReview, LivePod, live_pod, parse

NODE = "n0"
UID = "6a7d-1"


def binding(*, node: str = NODE, **metadata: object) -> Json:
    """Write the Binding of pod ``p``."""
    return {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": node}}


def review(written: Json, **request: object) -> bytes:
    """Return the review that the API server sends of a Binding."""
    fields: Json = {
        "uid": "review-1",
        "kind": {"group": "", "version": "v1", "kind": "Binding"},
        "name": "p",
        "namespace": "team-a",
        "operation": "CREATE",
        "dryRun": False,
        "object": written,
        **request,
    }
    return orjson.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}
    )


def bound(written: Json) -> BindingReview:
    """Read a Binding as the hook does."""
    return parse(review(written))


def stored(pod: Json, **metadata: object) -> Json:
    """Return a received pod as the API server keeps it."""
    found = copy.deepcopy(pod)
    found["metadata"] |= {"uid": UID, **metadata}
    return found


def live(pod: Json, **metadata: object) -> LivePod:
    """Read a stored pod as the hook does."""
    return live_pod(orjson.dumps(stored(pod, **metadata)))


def applied(written: Json, ops: Any) -> Json:  # noqa: ANN401 -- operations of any origin
    """Return a Binding as it goes on to the registry."""
    found: Json = jsonpatch.apply_patch(copy.deepcopy(written), orjson.loads(orjson.dumps(ops)))
    return found


def answered(body: bytes) -> Json:
    """Return the response of a review, its patch decoded."""
    response: Json = orjson.loads(body)["response"]
    if "patch" in response:
        response["patch"] = orjson.loads(base64.b64decode(response["patch"]))
    return response
