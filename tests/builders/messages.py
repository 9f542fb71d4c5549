"""Objects as the API server writes them in protobuf, of fields that we read."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from kube.proto import core_pb2 as core
from kube.proto.wire import MAGIC

Json = dict[str, Any]
TIMES = ("creationTimestamp", "deletionTimestamp")


def pod_bytes(document: Json) -> bytes:
    """Write a pod, which is given in JSON."""
    return envelope(ParseDict(_pod(document), core.Pod(), ignore_unknown_fields=True), "Pod")


def envelope(message: Message, kind: str) -> bytes:
    """Put *message* into an envelope, as an object of this kind."""
    made = core.RawEnvelope(raw=message.SerializeToString())
    meta = core.ObjectEnvelope(typeMeta=core.TypeMeta(apiVersion="v1", kind=kind))
    return MAGIC + meta.SerializeToString() + made.SerializeToString()


def event(kind: str, data: bytes) -> bytes:
    """Write one event of a watch, without its length."""
    raw = core.RawExtension(raw=data)
    return core.WatchEvent(type=kind, object=raw).SerializeToString()


def frame(data: bytes) -> bytes:
    """Put the length before a message, as a stream has it."""
    return len(data).to_bytes(4, "big") + data


def _pod(document: Json) -> Json:
    metadata, spec = dict(document["metadata"]), dict(document.get("spec") or {})
    for name in TIMES:
        if metadata.get(name):
            metadata[name] = {"seconds": int(datetime.fromisoformat(metadata[name]).timestamp())}
    for name in ("containers", "initContainers"):
        if name in spec:
            spec[name] = [_container(one) for one in spec[name] or ()]
    if spec.get("ephemeralContainers"):
        found = spec["ephemeralContainers"]
        spec["ephemeralContainers"] = [{"ephemeralContainerCommon": _container(e)} for e in found]
    spec["volumes"] = [
        {"name": one["name"], "volumeSource": {k: v for k, v in one.items() if k != "name"}}
        for one in spec.get("volumes") or ()
    ]
    return {**document, "metadata": metadata, "spec": spec}


def _container(written: Json) -> Json:
    resources: Mapping[str, Mapping[str, object]] = written.get("resources") or {}
    amounts = {
        kind: {name: {"string": str(amount)} for name, amount in (resources[kind] or {}).items()}
        for kind in ("limits", "requests")
        if kind in resources
    }
    return {**written, "resources": amounts}
