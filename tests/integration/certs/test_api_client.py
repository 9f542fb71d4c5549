"""Certificates kept through the real client, over HTTP, by an API server of ours."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from certs.api_client import ApiRegistrations, ApiReplicas, ApiSecret, event_announcer
from certs.ca_bundle import Endpoint, WebhookRegistration
from certs.refresh_controller import CertificateReason, OwnSecret, RefreshController
from certs.rotation_controller import RotationController, SecretChange, StoredSecret
from certs.tls_server import ServingPair
from kube.client import Client
from kube.config import Access
from kube.errors import ConflictError
from kube.events import Recorder
from tests.fakes.api_server import ApiServer
from tests.fakes.certificates import LIFETIMES, MUTATING, POLICY, VALIDATING, World
from webhook.serve.certificates import REPLICAS

PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
HOOKS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": MUTATING.name},
    "webhooks": [
        {
            "name": "a.vgpu-admission.io",
            "clientConfig": {"service": {"namespace": "y", "name": "x"}},
        },
        {"name": "b.vgpu-admission.io", "clientConfig": {"caBundle": ""}},
    ],
}


@dataclass(frozen=True, slots=True)
class Site:
    server: ApiServer
    client: Client
    secret: ApiSecret
    registrations: ApiRegistrations

    async def registration(self) -> WebhookRegistration:
        found = await self.registrations.read(MUTATING)
        assert found is not None
        return found

    def sent(self, method: str) -> list[dict[str, Any]]:
        bodies = [item.body for item in self.server.requests if item.method == method]
        return [json.loads(body) for body in bodies]


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    async with ApiServer() as server, Client(Access(url=server.url)) as client:
        await client.create(PATH, json.dumps(HOOKS).encode())
        secret = ApiSecret(client=client, namespace="vgpu-system", name="certificates")
        yield Site(server, client, secret, ApiRegistrations(client=client))


def test_a_secret_is_created_changed_and_guarded() -> None:
    """Create, patch with removal, and refusal of a version that is not the newest."""

    async def scenario() -> tuple[StoredSecret | None, StoredSecret]:
        async with site() as at:
            before = await at.secret.read()
            first = SecretChange(data={"a": b"\x00", "b": None}, annotations={"x": "1", "y": None})
            await at.secret.write(None, first)
            held = await at.secret.read()
            assert held is not None
            with pytest.raises(ConflictError):
                await at.secret.write("0", first)
            second = SecretChange(data={"a": None, "b": b"2"}, annotations={"x": None})
            await at.secret.write(held.version, second)
            after = await at.secret.read()
            assert (held.data, held.annotations) == ({"a": b"\x00"}, {"x": "1"})
            assert after is not None
            return before, after

    before, after = asyncio.run(scenario())

    assert before is None
    assert (after.data, after.annotations) == ({"b": b"2"}, {})


def test_a_second_creation_is_refused() -> None:
    """Two first writers cannot both believe that they installed."""

    async def scenario() -> None:
        async with site() as at:
            await at.secret.write(None, SecretChange(annotations={}))
            await at.secret.write(None, SecretChange(annotations={}))

    with pytest.raises(Exception, match="409 AlreadyExists"):
        asyncio.run(scenario())


def test_a_bundle_is_applied_to_every_webhook_and_nothing_else() -> None:
    """The merge key, the bundle and the version that was read; under our own manager."""

    async def scenario() -> tuple[WebhookRegistration, dict[str, Any], dict[str, str]]:
        async with site() as at:
            registration = await at.registration()
            await at.registrations.publish(registration, b"PEM")
            with pytest.raises(ConflictError):
                await at.registrations.publish(registration, b"PEM2")
            request = next(item for item in at.server.requests if item.method == "PATCH")
            return registration, json.loads(request.body), request.query

    registration, sent, query = asyncio.run(scenario())

    bundle = {"clientConfig": {"caBundle": base64.b64encode(b"PEM").decode()}}
    assert [name for name, _ in registration.bundles] == [
        "a.vgpu-admission.io",
        "b.vgpu-admission.io",
    ]
    assert sent["webhooks"] == [{"name": name} | bundle for name, _ in registration.bundles]
    assert sent["metadata"] == {"name": MUTATING.name, "resourceVersion": registration.version}
    assert query == {"fieldManager": "vgpu-admission-certs", "force": "true"}


def test_the_paths_of_services_are_applied_together() -> None:
    """What a manager leaves out would be taken away; a URL is no field of ours."""

    async def scenario() -> tuple[WebhookRegistration, dict[str, Any], dict[str, str]]:
        async with site() as at:
            registration = await at.registration()
            wanted = {
                "a.vgpu-admission.io": Endpoint(path="/one", service=("ns", "svc")),
                "b.vgpu-admission.io": Endpoint(path="/two", service=("ns", "svc")),
                "c.vgpu-admission.io": Endpoint(path="/three"),
            }
            await at.registrations.publish_paths(registration, wanted)
            with pytest.raises(ConflictError):
                await at.registrations.publish_paths(registration, wanted)
            request = next(item for item in at.server.requests if item.method == "PATCH")
            return registration, json.loads(request.body), request.query

    registration, sent, query = asyncio.run(scenario())

    assert sent["webhooks"] == [
        {
            "name": f"{name}.vgpu-admission.io",
            "clientConfig": {"service": {"namespace": "ns", "name": "svc", "path": path}},
        }
        for name, path in (("a", "/one"), ("b", "/two"))
    ]
    assert sent["metadata"] == {"name": MUTATING.name, "resourceVersion": registration.version}
    assert query == {"fieldManager": "vgpu-admission-paths", "force": "true"}


@pytest.mark.parametrize(
    ("config", "endpoint"),
    [
        pytest.param({}, Endpoint(path="/"), id="nothing"),
        pytest.param(
            {"service": {"namespace": "a", "name": "b"}},
            Endpoint(path="", service=("a", "b")),
            id="no-path",
        ),
        pytest.param(
            {"service": {"namespace": "a", "name": "b", "path": "/c/d", "port": 443}},
            Endpoint(path="/c/d", service=("a", "b")),
            id="service",
        ),
        pytest.param({"url": "https://a:1/b/c?d=/e"}, Endpoint(path="/b/c"), id="url"),
        pytest.param({"url": "https://a"}, Endpoint(path="/"), id="host"),
        pytest.param({"url": "https://[a/b"}, Endpoint(path="/b"), id="no-url"),
    ],
)
def test_it_is_read_where_a_webhook_is_called(config: dict[str, Any], endpoint: Endpoint) -> None:
    """By a Service or by a URL, whatever the API server let through."""
    written = {
        **HOOKS,
        "kind": VALIDATING.kind,
        "webhooks": [{"name": "a.b.c", "clientConfig": config}],
    }

    async def scenario() -> WebhookRegistration | None:
        async with site() as at:
            path = PATH.replace("mutating", "validating")
            await at.client.create(path, json.dumps(written).encode())
            return await at.registrations.read(VALIDATING)

    registration = asyncio.run(scenario())

    assert registration is not None
    assert registration.endpoints == {"a.b.c": endpoint}


def test_what_does_not_exist_is_not_created() -> None:
    """A registration is the operator's to make."""

    async def scenario() -> WebhookRegistration | None:
        async with site() as at:
            return await at.registrations.read(VALIDATING)

    assert asyncio.run(scenario()) is None


def replica(name: str, ready: object, component: str = "webhook") -> dict[str, Any]:
    """Write a pod of ours with its condition Ready, or with this in the place of conditions."""
    conditions = [{"type": "Ready", "status": ready}] if isinstance(ready, str) else ready
    labels = {"app.kubernetes.io/component": component}
    return {"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}


NEVER_READY = [{"type": "PodScheduled", "status": "True"}]
OURS = replica("a", "False")


@pytest.mark.parametrize(
    ("pods", "nobody"),
    [
        pytest.param([OURS], True, id="alone"),
        pytest.param([OURS, replica("b", "False")], True, id="another-that-is-not-ready"),
        pytest.param([OURS, replica("b", NEVER_READY)], True, id="another-that-never-was"),
        pytest.param([OURS, replica("b", None)], True, id="another-without-conditions"),
        pytest.param([OURS, replica("b", "True")], False, id="another-that-serves"),
        pytest.param([replica("a", "True")], True, id="ours-was-ready-in-its-last-life"),
        pytest.param([OURS, replica("b", "True", "agent")], True, id="a-pod-of-another-kind"),
        pytest.param([OURS, replica("b", "Unknown")], True, id="another-on-a-lost-node"),
        pytest.param([], False, id="we-are-no-pod"),
        pytest.param([replica("b", "False")], False, id="we-are-no-pod-beside-others"),
    ],
)
def test_who_serves_is_read_from_pods(pods: list[dict[str, Any]], *, nobody: bool) -> None:
    """A replica that is not ready gets no calls; where we are no pod nothing is known."""

    async def scenario() -> bool:
        async with site() as at:
            for pod in pods:
                await at.client.create(
                    "/api/v1/namespaces/vgpu-system/pods", json.dumps(pod).encode()
                )
            replicas = ApiReplicas(
                client=at.client, namespace="vgpu-system", labels=REPLICAS, own="a"
            )
            return await replicas.nobody_serves()

    assert asyncio.run(scenario()) is nobody


@pytest.mark.parametrize(
    ("pods", "all_carry"),
    [
        pytest.param([], True, id="none"),
        pytest.param([({"x": "true"}, "Running")], True, id="one"),
        pytest.param([({"x": "true"}, "Running"), (None, "Running")], False, id="one-without"),
        pytest.param([({"x": "true"}, "Running"), ({"y": ""}, "Pending")], False, id="to-come"),
        pytest.param([({"x": "true"}, "Running"), (None, "Failed")], True, id="one-has-failed"),
        pytest.param([(None, "Succeeded")], True, id="one-has-ended"),
    ],
)
def test_what_replicas_carry_is_read_from_pods(
    pods: list[tuple[dict[str, str] | None, str]], *, all_carry: bool
) -> None:
    """A pod that has not started yet will serve, and one that has ended no more."""

    async def scenario() -> bool:
        async with site() as at:
            for number, (annotations, phase) in enumerate(pods):
                pod = replica(str(number), None)
                pod["metadata"] |= {"annotations": annotations} if annotations else {}
                pod["status"]["phase"] = phase
                await at.client.create(
                    "/api/v1/namespaces/vgpu-system/pods", json.dumps(pod).encode()
                )
            replicas = ApiReplicas(client=at.client, namespace="vgpu-system", labels=REPLICAS)
            return await replicas.all_carry("x")

    assert asyncio.run(scenario()) is all_carry


def test_an_empty_cluster_ends_up_serving() -> None:
    """One look of the leader: Secret made, bundle published, certificate served, Events told."""

    async def scenario() -> tuple[ServingPair, WebhookRegistration, list[dict[str, Any]]]:
        world = World()
        async with site() as at:
            recorder = Recorder(at.client, controller="vgpu-admission.io/webhook", instance="a")
            look = OwnSecret(
                rotation=RotationController(
                    secrets=at.secret,
                    registrations=at.registrations,
                    targets=(MUTATING, VALIDATING),
                    parameters=POLICY,
                    clock=world.time.clock,
                ),
                leading=lambda: True,
                announce=event_announcer(recorder, at.secret),
            )
            serving = ServingPair(now=lambda: world.time.wall)
            keeper = RefreshController(
                serving=serving,
                read_pair=look,
                announce=look.announce,
                lifetimes=LIFETIMES,
                clock=world.time.clock,
            )
            writing = asyncio.create_task(recorder.run())
            await keeper.refresh()
            while recorder.tally.written + recorder.tally.failed < 3:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
            writing.cancel()
            events = [body for body in at.sent("POST") if body["kind"] == "Event"]
            return serving, await at.registration(), events

    serving, registration, events = asyncio.run(scenario())

    assert serving.ready
    assert all(text for _, text in registration.bundles)
    assert [event["type"] for event in events] == ["Normal", "Normal", "Warning"]
    assert {event["reason"] for event in events} == {
        CertificateReason.RENEWED,
        CertificateReason.EXPIRING,
    }
    assert {event["regarding"]["name"] for event in events} == {"certificates"}
