"""Pods for tests: as a user writes them, as the API server hands them on, as we leave them."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import jsonpatch
import msgspec
import orjson

from allocator.config import manifest
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Rewritten
from webhook.review.json_patch import operations
from webhook.review.pod_schema import Pod

Json = dict[str, Any]

NUMBER = "volcano.sh/vgpu-number"
MEMORY = "volcano.sh/vgpu-memory"
PERCENT = "volcano.sh/vgpu-memory-percentage"
CORES = "volcano.sh/vgpu-cores"
MODE = "volcano.sh/vgpu-mode"
GPU_MEM = "aliyun.com/gpu-mem"


def container(
    name: str = "main", limits: Mapping[str, object] | None = None, **more: object
) -> Json:
    """Write a container as a user does."""
    found: Json = {"name": name, "image": "example.com/a:1"}
    if limits is not None:
        found["resources"] = {"limits": dict(limits)}
    return found | more


def pod(
    *containers: Json,
    annotations: Mapping[str, str] | None = None,
    init: Iterable[Json] = (),
    **spec: object,
) -> Json:
    """Write a pod as a user does; without containers it has one that asks for 3000 MiB."""
    written: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team-a"},
        "spec": {"containers": list(containers) or [container(limits={NUMBER: 1, MEMORY: 3000})]},
    }
    if annotations is not None:
        written["metadata"]["annotations"] = dict(annotations)
    if initial := list(init):
        written["spec"]["initContainers"] = initial
    written["spec"] |= spec
    return written


def received(written: Json) -> Json:
    """Return *written* as the API server hands it to a hook."""
    return manifest.apply_defaults(written)


def typed(found: Json) -> Pod:
    """Read a pod as the webhook does."""
    return msgspec.json.decode(msgspec.json.encode(found), type=Pod)


def decided(written: Json, context: AdmissionContext) -> Outcome:
    """Decide about a pod as a user wrote it."""
    return decide(typed(received(written)), context)


def admitted(found: Json, context: AdmissionContext) -> Json:
    """Return a received pod as the API server would go on with it; fails if it is refused."""
    outcome = decide(typed(found), context)
    assert not isinstance(outcome, Refused), str(outcome.findings.first)
    return patched(found, outcome)


def patched(found: Json, outcome: Outcome) -> Json:
    """Return a received pod as the API server would go on with it after *outcome*."""
    if not isinstance(outcome, Rewritten | GpusHidden):
        return copy.deepcopy(found)
    ops = orjson.loads(orjson.dumps(operations(typed(found), outcome.intent)))
    changed: Json = jsonpatch.apply_patch(copy.deepcopy(found), ops)
    return received(changed)


def variables(found: Json, name: str = "main", kind: str = "containers") -> Json:
    """Return a container's variables: a literal, or the path of the field that is read."""
    item = next(c for c in found["spec"][kind] if c["name"] == name)
    return {
        v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"] if "valueFrom" in v else v.get("value")
        for v in item.get("env", ())
    }
