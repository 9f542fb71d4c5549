"""Objects and reviews as an API server makes them of a workload of the story."""

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from demo.story import PodMaker, StoryWorkload

Json = dict[str, Any]
REVIEW: Final = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
SCHEDULER: Final = "system:kube-scheduler"
_API: Final = {PodMaker.DEPLOYMENT: "apps/v1", PodMaker.JOB: "batch/v1"}
# Who creates the pods, and what owns them.
_CONTROLLERS: Final = {
    PodMaker.DEPLOYMENT: ("replicaset-controller", "ReplicaSet", "apps/v1"),
    PodMaker.JOB: ("job-controller", "Job", "batch/v1"),
}


def made_uid(*parts: object) -> str:
    """Return a uid that depends on *parts* alone, so that each run of the demo is the same."""
    digits = hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def suffix(*parts: object) -> str:
    """Return five characters such as the API server puts behind a generated name."""
    return made_uid(*parts).replace("-", "")[:5]


def rfc3339(at: datetime) -> str:
    """Return *at* as the API server writes times."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_template(workload: StoryWorkload) -> Json:
    """Return the pod template of *workload*."""
    limits = {name: str(amount) for name, amount in workload.limits.items()}
    container: Json = {
        "name": "main",
        "image": f"example.com/{workload.namespace}/{workload.name}:1",
        "resources": {"limits": limits, "requests": dict(limits)},
    }
    if workload.env:
        container["env"] = [{"name": name, "value": value} for name, value in workload.env.items()]
    if workload.privileged:
        container["securityContext"] = {"privileged": True}
    metadata: Json = {"labels": {"app": workload.name}}
    if workload.annotations:
        metadata["annotations"] = dict(workload.annotations)
    return {"metadata": metadata, "spec": {"containers": [container]}}


def workload_object(workload: StoryWorkload, uid: str) -> Json:
    """Return the Deployment or Job of *workload*."""
    spec: Json = {"template": pod_template(workload)}
    if workload.kind is PodMaker.DEPLOYMENT:
        spec |= {
            "replicas": workload.pods,
            "selector": {"matchLabels": {"app": workload.name}},
        }
    else:
        spec |= {"parallelism": workload.pods, "completions": workload.pods}
    return {
        "apiVersion": _API[workload.kind],
        "kind": str(workload.kind),
        "metadata": {"name": workload.name, "namespace": workload.namespace, "uid": uid},
        "spec": spec,
    }


def replica_set_object(workload: StoryWorkload, uid: str) -> Json:
    """Return the ReplicaSet that the Deployment *uid* of *workload* is given."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload.name, "uid": uid}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": owner_name(workload, uid),
            "namespace": workload.namespace,
            "uid": owner_uid(workload, uid),
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"replicas": workload.pods, "template": pod_template(workload)},
    }


def pod_object(workload: StoryWorkload, uid: str) -> Json:
    """Return a pod of *workload* as its controller posts it; *uid* is of the workload."""
    pod = {"apiVersion": "v1", "kind": "Pod", **pod_template(workload)}
    metadata = {"namespace": workload.namespace, **pod["metadata"]}
    if workload.kind is PodMaker.POD:
        metadata["name"] = workload.name
    else:
        owner = owner_name(workload, uid)
        _, kind, api = _CONTROLLERS[workload.kind]
        metadata |= {
            "generateName": f"{owner}-",
            "ownerReferences": [
                {
                    "apiVersion": api,
                    "kind": kind,
                    "name": owner,
                    "uid": owner_uid(workload, uid),
                    "controller": True,
                }
            ],
        }
    pod["metadata"] = metadata
    return pod


def owner_name(workload: StoryWorkload, uid: str) -> str:
    """Return the name of what owns the pods: the ReplicaSet of a Deployment, else the workload."""
    deployed = workload.kind is PodMaker.DEPLOYMENT
    return f"{workload.name}-{suffix(uid)}" if deployed else workload.name


def owner_uid(workload: StoryWorkload, uid: str) -> str:
    """Return the uid of what owns the pods."""
    return made_uid(uid, "replicas") if workload.kind is PodMaker.DEPLOYMENT else uid


def controller_account(name: str) -> Json:
    """Return the user that a controller of Kubernetes is, as reviews tell it."""
    return {
        "username": f"system:serviceaccount:kube-system:{name}",
        "groups": ["system:serviceaccounts", "system:authenticated"],
    }


def creator(workload: StoryWorkload) -> Json:
    """Return who creates the pods of *workload*, as reviews tell it."""
    if workload.kind is PodMaker.POD:
        return {"username": workload.person, "groups": list(workload.groups)}
    return controller_account(_CONTROLLERS[workload.kind][0])


def review(kind: Mapping[str, str], document: Json, user: Json, **request: object) -> bytes:
    """Return the review of an object that *user* creates."""
    metadata = document["metadata"]
    fields = {
        "uid": made_uid(document, user, request),
        "kind": dict(kind),
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
        "operation": "CREATE",
        "userInfo": user,
        "dryRun": False,
        "object": document,
        **request,
    }
    return orjson.dumps({**REVIEW, "request": fields})


def binding_object(pod: Json, node: str) -> Json:
    """Return the Binding of *pod* to *node* that a scheduler posts."""
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def config_map_object(name: str, text: str, at: str) -> Json:
    """Return the ConfigMap with our settings, changed at the time *at* by a pipeline."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "vgpu-admission-system",
            "managedFields": [
                {
                    "manager": "argocd-controller",
                    "operation": "Apply",
                    "time": at,
                    "fieldsV1": {"f:data": {"f:settings.yaml": {}}},
                }
            ],
        },
        "data": {"settings.yaml": text},
    }


def response_of(body: bytes) -> Json:
    """Return the response of a review that was answered."""
    response: Json = orjson.loads(body)["response"]
    return response


def operations_of(response: Json) -> list[dict[str, Any]]:
    """Return the JSON Patch of a *response*; none where nothing is to be changed."""
    patch = base64.b64decode(response.get("patch", ""))
    operations: list[dict[str, Any]] = orjson.loads(patch) if patch else []
    return operations
