"""The reviews that cost most: whatever an API server lets a tenant write, up to our largest body.

An API server takes 3 MiB of a request, and writes ``<`` as six bytes. Ours is 7 MiB of review.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.review.pod_schema import MOST_CONTAINERS, MOST_ENTRIES, MOST_RESOURCES
from webhook.serve.admission import LARGEST_BODY
from webhook.workload.warnings import LARGEST, MOST_TEMPLATES

Json = dict[str, Any]
OBJECT: Final = 3 * 1024 * 1024  # bytes of one object as its author writes it
GPU: Final = {"limits": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}}
WARNED: Final = LARGEST - 8192  # bytes of a workload of which we look at the pods
CREATE: Final = ("/mutate/pods", "/validate/pods")
EPHEMERAL: Final = "/mutate/pods/ephemeralcontainers"
WORKLOADS: Final = "/validate/workloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileReview:
    """One body, what is in it, and the hook that it is for."""

    name: str
    hook: str
    body: bytes


def _container(name: str = "c", **fields: object) -> Json:
    return {"name": name, "image": "i", "resources": GPU, **fields}


def _pod(spec: Mapping[str, object], **metadata: object) -> Json:
    meta = {"name": "p", "namespace": "team-a", "uid": "u", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": dict(spec)}


def _filled(make: Callable[[int], Json], *, most: int = OBJECT) -> Json:
    """Return what *make* makes of a number, the largest within *most* bytes."""
    low, high = 1, 2
    while len(json.dumps(make(high))) <= most:
        if high > most:
            return make(high)  # as many as we read at all
        low, high = high, high * 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if len(json.dumps(make(middle))) <= most else (low, middle)
    return make(low)


def _variables(count: int) -> list[Json]:
    return [{"name": f"NVIDIA_V{n}", "value": "x"} for n in range(count)]


def _mounts(count: int) -> list[Json]:
    return [{"name": f"v{n}", "mountPath": f"/usr/local/vgpu/{n}"} for n in range(count)]


def _many_containers(
    fields: Mapping[str, object], key: str = "containers"
) -> Callable[[int], Json]:
    def make(count: int) -> Json:
        many = [_container(f"c{n}", **fields) for n in range(count)]
        return _pod({"containers": [_container()], key: many})

    return make


def _nested(count: int) -> Json:
    text: Any = 1
    for _ in range(min(count, 900)):
        text = {"a": text}
    return text if isinstance(text, dict) else {}


def _to_the_bounds(
    key: str = "containers", *, most: int = MOST_CONTAINERS, **fields: Callable[[int], object]
) -> Callable[[int], Json]:
    """Return a pod of as many containers as we read, with lists or maps as long as fits."""

    def make(count: int) -> Json:
        each = min(count, MOST_ENTRIES)
        many = [
            _container(f"c{n}", **{name: value(each) for name, value in fields.items()})
            for n in range(most)
        ]
        return _pod({"containers": [_container()], key: many})

    return make


def _amounts(names: str, amount: str) -> Callable[[int], Json]:
    def make(count: int) -> Json:
        return {"limits": {f"{names}{n}": amount for n in range(min(count, MOST_RESOURCES))}}

    return make


PODS: Final[Mapping[str, Callable[[int], Json]]] = {
    "one long variable": lambda n: _pod(
        {"containers": [_container(env=[{"name": "A", "value": "x" * n}])]}
    ),
    "one long escaped variable": lambda n: _pod(
        {"containers": [_container(env=[{"name": "A", "value": "\u2028é" * n}])]}
    ),
    "25 containers with variables": lambda n: _pod(
        {"containers": [_container(f"c{c}", env=_variables(n)) for c in range(25)]}
    ),
    "reserved variables": lambda n: _pod(
        {"containers": [_container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}] * n)]}
    ),
    "variables of one other name": lambda n: _pod(
        {"containers": [_container(env=[{"name": "A", "value": ""}] * n)]}
    ),
    "variables from annotations": lambda n: _pod(
        {
            "containers": [
                _container(
                    env=[
                        {
                            "name": "NVIDIA_VISIBLE_DEVICES",
                            "valueFrom": {
                                "fieldRef": {
                                    "fieldPath": f"metadata.annotations['vgpu-admission.io/{i}']"
                                }
                            },
                        }
                        for i in range(n)
                    ]
                )
            ]
        }
    ),
    "containers": _many_containers({}),
    "containers that ask for nothing": _many_containers({"resources": {}}),
    "containers with visible devices": _many_containers(
        {"resources": {}, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    ),
    "containers with bad amounts": _many_containers(
        {"resources": {"limits": {"volcano.sh/vgpu-number": "x", "volcano.sh/vgpu-memory": "-1"}}}
    ),
    "containers with long bad amounts": _many_containers(
        {"resources": {"limits": {"volcano.sh/vgpu-memory": "9" * 1000}}}
    ),
    "init containers": _many_containers({}, "initContainers"),
    "sidecars": _many_containers({"restartPolicy": "Always"}, "initContainers"),
    "ephemeral containers": _many_containers({"resources": {}}, "ephemeralContainers"),
    "resources": lambda n: _pod(
        {
            "containers": [
                _container(resources={"limits": {f"volcano.sh/r{i}": "1" for i in range(n)}})
            ]
        }
    ),
    "resources of others": lambda n: _pod(
        {"containers": [_container(resources={"limits": {f"e{i}.com/gpu": "1" for i in range(n)}})]}
    ),
    "a long name of a resource": lambda n: _pod(
        {"containers": [_container(resources={"limits": {"volcano.sh/" + "v" * n: "1"}})]}
    ),
    "a long amount": lambda n: _pod(
        {"containers": [_container(resources={"limits": {"volcano.sh/vgpu-memory": "1" * n}})]}
    ),
    "a long exponent": lambda n: _pod(
        {
            "containers": [
                _container(resources={"limits": {"volcano.sh/vgpu-memory": "1e" + "9" * n}})
            ]
        }
    ),
    "volumes": lambda n: _pod(
        {
            "containers": [_container()],
            "volumes": [{"name": f"v{i}", "hostPath": {"path": f"/usr/{i}"}} for i in range(n)],
        }
    ),
    "volumes of our name": lambda n: _pod(
        {
            "containers": [_container()],
            "volumes": [{"name": "vgpu-regions", "hostPath": {"path": "/"}}] * n,
        }
    ),
    "volumes and mounts": lambda n: _pod(
        {
            "containers": [_container(volumeMounts=_mounts(n))],
            "volumes": [{"name": f"v{i}", "hostPath": {"path": f"/usr/{i}"}} for i in range(n)],
        }
    ),
    "mounts of 25 containers": lambda n: _pod(
        {"containers": [_container(f"c{c}", volumeMounts=_mounts(n)) for c in range(25)]}
    ),
    "one long mount path": lambda n: _pod(
        {"containers": [_container(volumeMounts=[{"name": "v", "mountPath": "/a/.." * n}])]}
    ),
    "projected volumes": lambda n: _pod(
        {
            "containers": [_container()],
            "volumes": [
                {"name": "v", "projected": {"sources": [{"configMap": {"name": "a"}}] * n}}
            ],
        }
    ),
    "annotations": lambda n: _pod(
        {"containers": [_container()]},
        annotations={f"vgpu-admission.io/{i}": "x" for i in range(n)},
    ),
    "one long annotation": lambda n: _pod(
        {"containers": [_container()]}, annotations={"vgpu-admission.io/decision": "x" * n}
    ),
    "a long list of models": lambda n: _pod(
        {"containers": [_container()]}, annotations={"nvidia.com/use-gputype": "A," * n}
    ),
    "a decision of our own": lambda n: _pod(
        {"containers": [_container()]},
        annotations={"vgpu-admission.io/asked": json.dumps([{"a": 1}] * n)},
    ),
    "a nested decision": lambda n: _pod(
        {"containers": [_container()]},
        annotations={"vgpu-admission.io/asked": "[" * n},
    ),
    "labels": lambda n: _pod(
        {"containers": [_container()]}, labels={f"a/{i}": "x" for i in range(n)}
    ),
    "managed fields": lambda n: _pod(
        {"containers": [_container()]},
        managedFields=[{"fieldsV1": {"f:metadata": {f"f:{i}": {} for i in range(n)}}}],
    ),
    "owners": lambda n: _pod(
        {"containers": [_container()]}, ownerReferences=[{"kind": "Job", "name": "j"}] * n
    ),
    "tolerations": lambda n: _pod(
        {"containers": [_container()], "tolerations": [{"key": "nvidia.com/gpu"}] * n}
    ),
    "nested unknown fields": lambda n: _pod(
        {"containers": [_container()], "x": [_nested(n)] * max(1, n // 900)}
    ),
    "claims": lambda n: _pod(
        {"containers": [_container()], "resourceClaims": [{"name": f"c{i}"} for i in range(n)]}
    ),
    "commands": lambda n: _pod({"containers": [_container(command=["sh"] * n, args=["x"] * n)]}),
    "gates": lambda n: _pod({"containers": [_container()], "schedulingGates": [{"name": "g"}] * n}),
    "many containers, bad amounts of others": _to_the_bounds(
        resources=_amounts("nvidia.com/", "1x")
    ),
    "many containers, amounts of none": _to_the_bounds(resources=_amounts("nvidia.com/", "0e1")),
    "many containers, odd amounts": _to_the_bounds(resources=_amounts("a.com/", "1.0e0")),
    "many containers, unknown resources": _to_the_bounds(resources=_amounts("volcano.sh/", "1")),
    "many containers, other resources": _to_the_bounds(resources=_amounts("a.com/", "1")),
    "many containers, variables": _to_the_bounds(env=_variables),
    "many init containers, variables": _to_the_bounds("initContainers", env=_variables),
    "many containers, mounts": _to_the_bounds(volumeMounts=_mounts),
    "100 containers, mounts": _to_the_bounds(volumeMounts=_mounts, most=100),
    "many ephemeral containers, variables": _to_the_bounds("ephemeralContainers", env=_variables),
    "many sidecars": _to_the_bounds("initContainers", restartPolicy=lambda _: "Always"),
    "annotations to our bound": lambda n: _pod(
        {"containers": [_container()]},
        annotations={f"vgpu-admission.io/{i}": "x" for i in range(min(n, MOST_ENTRIES))},
    ),
    "misspelt annotations to our bound": lambda n: _pod(
        {"containers": [_container()]},
        annotations={f"volcano.sh/vgpu-mod{i}": "x" for i in range(min(n, MOST_ENTRIES))},
    ),
    "volumes and mounts to our bound": lambda n: _pod(
        {
            "containers": [_container(volumeMounts=_mounts(min(n, MOST_ENTRIES)))],
            "volumes": [
                {"name": f"v{i}", "hostPath": {"path": f"/usr/local/vgpu/{i}/.."}}
                for i in range(min(n, MOST_ENTRIES))
            ],
        }
    ),
    "nothing asked, variables": lambda n: _pod(
        {"containers": [_container(resources={}, env=_variables(n))]}
    ),
    "nothing asked, a request of none": lambda n: _pod(
        {
            "containers": [
                _container(resources={"limits": {f"nvidia.com/{i}": "0" for i in range(n)}})
            ]
        }
    ),
}


def hostile_reviews() -> Iterator[HostileReview]:
    """Yield each content for each hook that reads it."""
    for name, make in PODS.items():
        pod = _filled(make)
        for hook in CREATE:
            yield HostileReview(name=name, hook=hook, body=_review(pod))
        yield HostileReview(name=name, hook=EPHEMERAL, body=_update(pod))
        small = _filled(make, most=WARNED)
        yield HostileReview(name=name, hook=WORKLOADS, body=_workload(small))
        yield HostileReview(name=f"{name}, of a job", hook=WORKLOADS, body=_job(make))
    yield from _odd_texts()


def _odd_texts() -> Iterator[HostileReview]:
    """Yield bodies that no encoder of ours would write."""
    pod = _pod({"containers": [_container()]})
    plain = _review(pod)
    long = b'"value":"' + b"\\u003c" * ((LARGEST_BODY - 4096) // 6) + b'"'
    escaped = _review(_pod({"containers": [_container(env=[{"name": "A", "value": "x"}])]}))
    texts = {
        "escapes up to our limit": escaped.replace(b'"value":"x"', long),
        "keys twice": plain.replace(
            b'"spec":', b'"spec":{"containers":[]},' * 100_000 + b'"spec":'
        ),
        "blanks": plain.replace(b'"spec":', b'"spec":' + b" " * (LARGEST_BODY - 4096)),
        "a long number": plain.replace(b'"spec":', b'"x":' + b"1" * 3_000_000 + b',"spec":'),
        "half a review": _review(_filled(PODS["25 containers with variables"]))[:-1000],
        "brackets": plain.replace(b'"spec":', b'"x":' + b"[" * 3_000_000 + b',"spec":'),
    }
    for name, body in texts.items():
        for hook in (*CREATE, EPHEMERAL, WORKLOADS):
            yield HostileReview(name=name, hook=hook, body=body)


def _envelope(kind: Mapping[str, str], **request: object) -> bytes:
    fields = {
        "uid": "7c1c2b1e-0000-0000-0000-000000000000",
        "kind": kind,
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "tenant"},
        **request,
    }
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": fields}
    return json.dumps(body, separators=(",", ":")).encode()


def _review(pod: Json) -> bytes:
    return _envelope({"group": "", "version": "v1", "kind": "Pod"}, object=pod)


def _update(pod: Json) -> bytes:
    debug = [{"name": "d", "image": "i", "targetContainerName": "c"}]
    changed = {**pod, "spec": {"ephemeralContainers": debug, **pod["spec"]}}
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    return _envelope(kind, operation="UPDATE", object=changed, oldObject=pod)


def _job(make: Callable[[int], Json]) -> bytes:
    """Return a review of a job of Volcano with as many templates as are judged."""
    pod = _filled(make, most=WARNED // MOST_TEMPLATES)
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    tasks = [{"name": f"t{n}", "replicas": 1, "template": template} for n in range(MOST_TEMPLATES)]
    kind = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
    written = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "w"},
        "spec": {"tasks": tasks},
    }
    return _envelope(kind, object=written)


def _workload(pod: Json) -> bytes:
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    written = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w"},
        "spec": {"replicas": 3, "template": template},
    }
    return _envelope({"group": "apps", "version": "v1", "kind": "Deployment"}, object=written)
