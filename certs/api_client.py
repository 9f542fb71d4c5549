"""Reads and writes the Secret and the webhook configurations through the API server."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from certs.ca_bundle import Endpoint, WebhookKind, WebhookRegistration, WebhookTarget
from certs.refresh_controller import Announce, CertificateReason, Notice
from certs.rotation_controller import SecretChange, StoredSecret
from kube.client import ApiClient, Client
from kube.errors import NotFoundError, UnreadableError
from kube.events import Event, Recorder, Reference, Severity

FIELD_MANAGER: Final = "vgpu-admission-certs"
PATHS_MANAGER: Final = "vgpu-admission-paths"
GROUP: Final = "admissionregistration.k8s.io/v1"
_COLLECTIONS: Final = {
    WebhookKind.MUTATING: f"/apis/{GROUP}/mutatingwebhookconfigurations",
    WebhookKind.VALIDATING: f"/apis/{GROUP}/validatingwebhookconfigurations",
}
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_T = TypeVar("_T")


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] = {}


class _Secret(msgspec.Struct):
    metadata: _Meta
    data: dict[str, str] = {}


class _Condition(msgspec.Struct):
    type: str
    status: str


class _PodStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None
    phase: str = ""


class _PodMeta(msgspec.Struct):
    name: str
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _PodMeta
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def is_ready(self) -> bool:
        """Say whether its Service passes calls on to it, as far as its kubelet has reported."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions or ())


class _Pods(msgspec.Struct):
    items: list[_Pod] | None = None


class _Service(msgspec.Struct):
    namespace: str
    name: str
    path: str = ""


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""
    service: _Service | None = None
    url: str = ""

    @property
    def endpoint(self) -> Endpoint:
        """Return where the webhook is called."""
        if self.service is None:
            _, _, path = self.url.partition("://")[2].partition("/")
            return Endpoint(path="/" + path.partition("?")[0])
        return Endpoint(path=self.service.path, service=(self.service.namespace, self.service.name))


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig


class _Configuration(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_Webhook] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSecret:
    """One Secret; RBAC: secrets get and patch by this name, and create if it is not shipped."""

    client: ApiClient
    namespace: str
    name: str

    @property
    def _collection(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    async def read(self) -> StoredSecret | None:
        """Read it; raises :class:`kube.errors.KubeError`."""
        try:
            body = await self.client.get(f"{self._collection}/{self.name}")
        except NotFoundError:
            return None
        secret = _parse(body, _Secret)
        return StoredSecret(
            version=secret.metadata.resource_version,
            data={key: base64.b64decode(text) for key, text in secret.data.items()},
            annotations=secret.metadata.annotations,
        )

    async def write(self, version: str | None, change: SecretChange) -> None:
        """Patch that version or create it; raises :class:`kube.errors.KubeError`."""
        data = {key: _base64(value) for key, value in change.data.items()}
        meta: dict[str, object] = {"annotations": change.annotations}
        if version is not None:
            meta["resourceVersion"] = version
            changes = {"metadata": meta, "data": data}
            await self.client.merge_patch(f"{self._collection}/{self.name}", changes)
            return
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",  # kubernetes.io/tls requires a leaf, which does not exist yet
            "metadata": {"name": self.name, "annotations": _without_none(change.annotations)},
            "data": _without_none(data),
        }
        await self.client.create(self._collection, msgspec.json.encode(secret))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiReplicas:
    """The pods with *labels*, of which *own* is ours; RBAC: pods list.

    A pod that is not ready gets no calls, because its Service leaves it out.
    """

    client: Client
    namespace: str
    labels: str  # a label selector
    own: str = ""  # name of our pod

    async def nobody_serves(self) -> bool:
        """Say whether we are one of these pods and no other is ready; raises KubeError.

        Where our own pod is not listed we run in another way, and so may the others.
        """
        pods = await self._pods()
        others = [pod for pod in pods if pod.metadata.name != self.own]
        return len(others) < len(pods) and not any(pod.is_ready for pod in others)

    async def all_carry(self, annotation: str) -> bool:
        """Say whether each pod that has not ended carries *annotation*; raises KubeError."""
        return all(
            annotation in (pod.metadata.annotations or {})
            for pod in await self._pods()
            if pod.status.phase not in _ENDED
        )

    async def _pods(self) -> list[_Pod]:
        params = {"labelSelector": self.labels}
        body = await self.client.get(f"/api/v1/namespaces/{self.namespace}/pods", params=params)
        return _parse(body, _Pods).items or []


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRegistrations:
    """Webhook configurations, of which we own caBundle and path; RBAC: get and patch by name."""

    client: ApiClient

    async def read(self, target: WebhookTarget) -> WebhookRegistration | None:
        """Read it; raises :class:`kube.errors.KubeError`."""
        try:
            body = await self.client.get(f"{_COLLECTIONS[target.kind]}/{target.name}")
        except NotFoundError:
            return None
        configuration = _parse(body, _Configuration)
        bundles = tuple(
            (item.name, base64.b64decode(item.client_config.ca_bundle))
            for item in configuration.webhooks
        )
        return WebhookRegistration(
            target=target,
            version=configuration.metadata.resource_version,
            bundles=bundles,
            endpoints={item.name: item.client_config.endpoint for item in configuration.webhooks},
        )

    async def publish(self, registration: WebhookRegistration, bundle: bytes) -> None:
        """Apply *bundle* to every webhook; raises :class:`kube.errors.KubeError`."""
        config = {"caBundle": base64.b64encode(bundle).decode()}
        configs = {name: config for name, _ in registration.bundles}
        await self._apply(registration, configs, FIELD_MANAGER)

    async def publish_paths(
        self, registration: WebhookRegistration, paths: Mapping[str, Endpoint]
    ) -> None:
        """Apply the path of each webhook of a Service; raises :class:`kube.errors.KubeError`."""
        services = {
            name: {"namespace": each.service[0], "name": each.service[1], "path": each.path}
            for name, each in paths.items()
            if each.service is not None
        }
        configs = {name: {"service": service} for name, service in services.items()}
        await self._apply(registration, configs, PATHS_MANAGER)

    async def _apply(
        self, registration: WebhookRegistration, configs: Mapping[str, object], manager: str
    ) -> None:
        """Apply the clientConfig of webhooks, by name.

        The version is a precondition; it also keeps apply from creating a deleted configuration.
        """
        target = registration.target
        configuration = {
            "apiVersion": GROUP,
            "kind": target.kind,
            "metadata": {"name": target.name, "resourceVersion": registration.version},
            "webhooks": [
                {"name": name, "clientConfig": config} for name, config in configs.items()
            ],
        }
        path = f"{_COLLECTIONS[target.kind]}/{target.name}"
        await self.client.apply(path, msgspec.json.encode(configuration), field_manager=manager)


def event_announcer(recorder: Recorder, secret: ApiSecret) -> Announce:
    """Return a function that records notices as Events about *secret*; RBAC: the recorder's."""
    regarding = Reference(
        api_version="v1", kind="Secret", name=secret.name, namespace=secret.namespace
    )

    def announce(notice: Notice) -> None:
        good = notice.reason is CertificateReason.RENEWED
        event = Event(
            regarding=regarding,
            severity=Severity.NORMAL if good else Severity.WARNING,
            reason=notice.reason,
            action="Renew",
            note=notice.note,
        )
        recorder.record(event)

    return announce


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _without_none(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def _parse(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(f"not a {kind.__name__.strip('_')}") from error
