"""A pod in protobuf says what the same pod says in JSON."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import orjson
import pytest

from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.cluster.pod_messages import decode_pod, pod_json
from allocator.request.pod_fields import WatchedPod, decode_watched
from kube.proto import core_pb2 as core
from kube.proto.wire import MAGIC
from tests.builders.bindings import stored
from tests.builders.messages import pod_bytes
from tests.builders.pods import NUMBER, Json, container, pod, received
from webhook.review.binding_schema import live_pod
from webhook.review.pod_schema import Pod, QueuedPod, StoredPod

FIELD = {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}
FULL: Json = {
    **stored(pod(container(limits={NUMBER: 1, "cpu": "500m"}), annotations={"a": "b"})),
    "spec": {
        "containers": [
            {
                "name": "main",
                "command": ["/bin/sh", "-c"],
                "args": ["", "true"],
                "resources": {"limits": {NUMBER: "1", "cpu": "500m"}, "requests": {"cpu": "1"}},
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "B", "valueFrom": FIELD},
                    {"name": "C"},
                ],
                "envFrom": [{}],
                "volumeMounts": [
                    {"name": "v", "mountPath": "/v", "readOnly": True, "subPath": "s"},
                    {"name": "v", "mountPath": "/w", "subPathExpr": "$(A)"},
                ],
                "securityContext": {"privileged": False},
            },
            {"name": "beside", "securityContext": {"privileged": True}},
        ],
        "initContainers": [{"name": "first", "restartPolicy": "Always"}],
        "ephemeralContainers": [{"name": "debug", "resources": {}}],
        "volumes": [{"name": "v", "hostPath": {"path": "/usr"}}, {"name": "w"}],
        "nodeName": "n0",
        "schedulerName": "s",
        "priority": 0,
        "schedulingGates": [{"name": "g"}],
        "resourceClaims": [{"name": "c"}],
    },
    "status": {
        "phase": "Running",
        "nominatedNodeName": "n1",
        "containerStatuses": [{"name": "main", "state": {"running": {}}, "lastState": {}}],
        "initContainerStatuses": [{"name": "first", "state": {"terminated": {}}}],
    },
}
FULL["metadata"] |= {
    "creationTimestamp": "2026-11-21T12:00:00Z",
    "deletionTimestamp": "2026-11-21T12:00:30Z",
    "generateName": "p-",
    "labels": {"l": "m"},
    "ownerReferences": [{"kind": "Job", "name": "j", "uid": "k", "controller": True}],
}
BARE = stored(received(pod()))
UNBOUND = stored(received(pod(container(limits={NUMBER: 2}), container("second"))))


@pytest.mark.parametrize("written", [FULL, BARE, UNBOUND], ids=["full", "bare", "unbound"])
def test_a_pod_reads_as_from_json(written: Json) -> None:
    """For all that follow pods, and for whoever binds one."""
    for one in (*written["spec"]["containers"], *written["spec"].get("initContainers", ())):
        one.setdefault("resources", {})  # as the API server writes each container
    text, data = orjson.dumps(written), pod_bytes(written)

    seen, expected = decode_pod(data), decode_watched(text)

    assert comparable(seen) == comparable(expected)
    assert decode_pod(text) == expected
    assert live_pod(pod_json(data)) == live_pod(text)
    assert msgspec.json.decode(pod_json(data), type=QueuedPod) == msgspec.json.decode(
        text, type=QueuedPod
    )
    assert pod_json(text) == text


def comparable(found: WatchedPod) -> object:
    """Return *found* with amounts as text, whether they were written as numbers or not."""
    plain: Json = msgspec.json.decode(msgspec.json.encode(found))
    for one in (*plain["spec"]["containers"], *(plain["spec"]["initContainers"] or ())):
        limits = (one["resources"] or {}).get("limits")
        one["resources"] = limits and {name: str(amount) for name, amount in limits.items()}
    if not plain["metadata"]["creationTimestamp"]:
        plain["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"  # the server sends one
    return plain


def test_zero_values_are_left_out_as_go_does() -> None:
    """Protobuf has each text and each truth, JSON those that say something; pointers are told."""
    mount = core.VolumeMount(name="v", mountPath="/v", readOnly=False, subPath="", subPathExpr="")
    main = core.Container(
        name="main",
        env=[core.EnvVar(name="A", value="")],
        volumeMounts=[mount],
        securityContext=core.SecurityContext(privileged=False),
    )
    written = core.Pod(
        metadata=core.ObjectMeta(name="p", uid="u", generateName=""),
        spec=core.PodSpec(containers=[main], nodeName="", priority=0),
        status=core.PodStatus(phase="Pending", nominatedNodeName=""),
    )
    data = MAGIC + core.PodEnvelope(raw=written).SerializeToString()

    assert orjson.loads(pod_json(data)) == {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "env": [{"name": "A"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "securityContext": {"privileged": False},
                }
            ],
            "priority": 0,
        },
        "status": {"phase": "Pending"},
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(-62_135_596_800, None, id="zero-in-go"),
        pytest.param(253_402_300_799, "9999-12-31T23:59:59Z", id="last"),
        pytest.param(253_402_300_800, "after the year 9999", id="five-digits"),
        pytest.param(2**63 - 1, "after the year 9999", id="largest"),
    ],
)
def test_times_that_no_calendar_has(seconds: int, text: str | None) -> None:
    """A tenant says how long a pod may take to end."""
    metadata = core.ObjectMeta(uid="u", deletionTimestamp=core.Time(seconds=seconds))
    data = MAGIC + core.PodEnvelope(raw=core.Pod(metadata=metadata)).SerializeToString()

    assert decode_pod(data).metadata.deletion_timestamp == text


def test_text_that_is_none_is_read_as_in_json() -> None:
    """Who creates a pod in protobuf may write any bytes; nobody must become invisible by it."""
    metadata = core.ObjectMeta(uid="u", annotations={"a": "????", ASSIGNMENT_KEY: "[]"})
    spec = core.PodSpec(schedulerName="????")
    written = core.Pod(metadata=metadata, spec=spec).SerializeToString()
    wrong = core.RawEnvelope(raw=written.replace(b"????", b"a\xff\xfeb"))
    data = MAGIC + wrong.SerializeToString()

    read = "a\ufffd\ufffdb"
    assert decode_pod(data).metadata.annotations == {"a": read, ASSIGNMENT_KEY: "[]"}
    assert orjson.loads(pod_json(data))["spec"] == {"schedulerName": read}


@pytest.mark.parametrize(
    "data", [MAGIC, MAGIC + b"\x12\x05abc", pod_bytes({"metadata": {"name": "p"}}), b"\x00"]
)
def test_what_is_no_pod_is_not_read(data: bytes) -> None:
    """The watch counts it and goes on."""
    with pytest.raises(ValueError, match=r".+"):
        decode_pod(data)


def test_no_field_of_a_schema_is_missing_in_the_messages() -> None:
    """Else it would be silently absent, in pods that watches tell of and in no others."""
    for schema in (Pod, StoredPod, QueuedPod, WatchedPod):
        assert not list(missing(schema, core.Pod.DESCRIPTOR))


def missing(schema: type[msgspec.Struct], message: Any) -> Iterator[str]:  # noqa: ANN401 -- of two types
    """Yield the fields of *schema*, and of what is in it, that descriptor *message* lacks."""
    fields = dict(message.fields_by_name)
    for inlined in ("volumeSource", "ephemeralContainerCommon"):
        if inlined in fields:
            fields |= fields[inlined].message_type.fields_by_name
    for one in msgspec.structs.fields(schema):
        field = fields.get(one.encode_name)
        if field is None:
            yield f"{schema.__name__}.{one.encode_name}"
            continue
        for inner in structs_in(one.type):
            yield from missing(inner, field.message_type)


def structs_in(annotation: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 -- any type
    """Yield the structs that a field of this type may hold."""
    if get_origin(annotation) in {Annotated, Union, UnionType, tuple, dict}:
        for inner in get_args(annotation):
            yield from structs_in(inner)
    elif isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
