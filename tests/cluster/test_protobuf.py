"""Pods in protobuf, of a real API server, are the same pods."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from http.client import HTTPSConnection
from typing import TypeVar
from urllib.parse import urlsplit

import pytest

from allocator.cli.options import access
from allocator.cluster.pod_messages import decode_pod, pod_json
from allocator.cluster.pods import PODS, Pods, pod_informer
from allocator.request.pod_fields import decode_watched
from kube.client import PROTOBUF, PROTOBUF_STREAM, Client
from kube.errors import ApiError, NotFoundError
from kube.proto.wire import MEDIA_TYPE, is_protobuf
from kube.stream import parse_page
from tests.builders.pods import NUMBER, Json, container, pod
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.integration.waiting import until
from webhook.review.binding_schema import live_pod

T = TypeVar("T")
FIELD = {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}
NAMES = ("full", "bare", "odd")


def full() -> Json:
    """Write a pod with all that we read."""
    mount = {"name": "v", "mountPath": "/v", "readOnly": True, "subPath": "s"}
    main = container(
        limits={NUMBER: "1k", "cpu": "0.5"},
        command=["/bin/sh", "-c"],
        args=["", "true"],
        env=[{"name": "A", "value": ""}, {"name": "B", "valueFrom": FIELD}],
        envFrom=[{"configMapRef": {"name": "c", "optional": True}}],
        volumeMounts=[mount, {"name": "w", "mountPath": "/w", "subPathExpr": "$(A)"}],
        securityContext={"privileged": False},
    )
    first = {**container("first"), "restartPolicy": "Always"}
    written = pod(main, container("beside"), annotations={"a": "b", "x": "????"})
    written["metadata"] |= {"labels": {"l": "m"}}
    written["spec"] |= {
        "initContainers": [first],
        "volumes": [{"name": "v", "hostPath": {"path": "/usr"}}, {"name": "w", "emptyDir": {}}],
        "schedulingGates": [{"name": "example.com/g"}],
        "schedulerName": "nobody",
    }
    return written


@pytest.fixture(scope="module")
def team(api: Api, control_plane: ControlPlane) -> Iterator[str]:
    """Yield a namespace with pods, of which one has an annotation that is no text."""
    made = api.create("/api/v1/namespaces", {"metadata": {"generateName": "protobuf-"}})
    name: str = made.body["metadata"]["name"]
    for pod_name, written in (("full", full()), ("bare", pod()), ("odd", full())):
        metadata = {**written["metadata"], "name": pod_name, "namespace": name}
        spec = {**written["spec"], "serviceAccountName": "", "automountServiceAccountToken": False}
        api.create(f"/api/v1/namespaces/{name}/pods", {"metadata": metadata, "spec": spec})
    spoil(control_plane, f"/api/v1/namespaces/{name}/pods/odd")
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


def spoil(plane: ControlPlane, path: str) -> None:
    """Write bytes into an annotation of a pod that are no UTF-8, as protobuf lets anybody."""
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    connection = HTTPSConnection(urlsplit(plane.url).netloc, context=tls, timeout=10)
    headers = {"Authorization": f"Bearer {plane.token}", "Accept": MEDIA_TYPE}
    connection.request("GET", path, headers=headers)
    body = connection.getresponse().read().replace(b"????", b"?\xff\xfe?")
    connection.request("PUT", path, body, {**headers, "Content-Type": MEDIA_TYPE})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def asked(plane: ControlPlane, question: Callable[[Client], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with Client(access(plane.kubeconfig, None)) as client, asyncio.timeout(20):
            return await question(client)

    return asyncio.run(ask())


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_reads_the_same(control_plane: ControlPlane, team: str, name: str) -> None:
    """For all that follow pods, and for whoever binds one."""
    path = f"/api/v1/namespaces/{team}/pods/{name}"

    async def both(client: Client) -> tuple[bytes, bytes]:
        return await client.get(path), await client.get(path, accept=PROTOBUF)

    text, data = asked(control_plane, both)

    assert (is_protobuf(text), is_protobuf(data)) == (False, True)
    assert decode_pod(data) == decode_watched(text)
    assert live_pod(pod_json(data)) == live_pod(text)


def test_a_watch_tells_of_pods_and_their_changes(
    api: Api, control_plane: ControlPlane, team: str
) -> None:
    """A streamed list, a change and an end."""
    path = f"/api/v1/namespaces/{team}/pods"

    async def watched(client: Client) -> None:
        seen = list[bytes]()
        pods, watch = Pods(), pod_informer()
        pods.follow(watch)
        watch.add(lambda _, raw: seen.append(raw), lambda _: None)
        following = asyncio.create_task(watch.follow(client))
        await until(lambda: pods.by_uid is not None)
        mine = {one.name for one in (pods.by_uid or {}).values() if one.namespace == team}
        assert mine == set(NAMES)
        assert all(map(is_protobuf, seen))
        await asyncio.to_thread(
            api.create, path, {**pod(), "metadata": {"name": "new", "namespace": team}}
        )
        await until(lambda: any(one.name == "new" for one in (pods.by_uid or {}).values()))
        await asyncio.to_thread(api.delete, f"{path}/new", gracePeriodSeconds="0")
        await until(lambda: all(one.name != "new" for one in (pods.by_uid or {}).values()))
        following.cancel()

    asked(control_plane, watched)


def test_a_list_is_read_in_pages(control_plane: ControlPlane, team: str) -> None:
    """For servers without streamed lists."""

    async def paged(client: Client) -> list[str]:
        params, names = {"limit": "2"}, list[str]()
        while True:
            path = f"/api/v1/namespaces/{team}/pods"
            items, metadata = parse_page(await client.get(path, params=params, accept=PROTOBUF))
            names += [decode_pod(bytes(item)).metadata.name for item in items]
            if not metadata.continue_:
                return names
            params["continue"] = metadata.continue_

    assert sorted(asked(control_plane, paged)) == sorted(NAMES)


def test_a_refusal_is_read(control_plane: ControlPlane, team: str) -> None:
    """Its kind and its words are as in JSON."""

    async def refused(client: Client) -> tuple[str, str]:
        with pytest.raises(NotFoundError, match=r'pods "none" not found') as missing:
            await client.get(f"/api/v1/namespaces/{team}/pods/none", accept=PROTOBUF)
        params = {"watch": "true", "resourceVersion": "x"}
        with pytest.raises(ApiError, match='Invalid value: "x"') as wrong:
            async with client.stream(PODS, params=params, accept=PROTOBUF_STREAM):
                pass
        return missing.value.reason, wrong.value.reason

    assert asked(control_plane, refused) == ("NotFound", "Unknown")
