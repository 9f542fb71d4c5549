"""Reads of a cluster for one command: a warning names what the person may not read."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Self, TypeVar

from allocator.config.device_config import (
    DeviceConfig,
    configured_vocabularies,
    load_device_config,
    vocabularies_named_in_vain,
    vocabulary_problems,
)
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy, namespace_policy
from allocator.config.settings import DEFAULTS, Settings, SettingsError, load_settings
from allocator.model.problem import Rejected
from allocator.model.untrusted import escaped, quote
from allocator.placement.choose import PlacementPolicy
from console.cluster.cluster_client import ClusterClient
from console.cluster.event import EventView, events_of
from console.cluster.pod import PodView, pod_of
from console.cluster.snapshot import (
    READER_ROLE,
    ClusterView,
    Configuration,
    cluster_view,
    name_of,
)
from kube.errors import ApiError, NotFoundError, UnreadableError

FORBIDDEN: Final = 403
SETTINGS: Final = "vgpu-admission-settings"
DEVICES: Final = ("kube-system", "volcano-vgpu-device-config", "device-config.yaml")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceView:
    """The labels of a namespace, and what its annotations say of modes."""

    labels: Mapping[str, str] | None = None  # None: they could not be read
    policy: NamespacePolicy = ANY_MODE


@dataclass(frozen=True, slots=True)
class ClusterReader:
    """Reads for commands; what the person may not read is left out with a warning."""

    cluster: ClusterClient
    system: str  # the namespace that vgpu-admission is installed in
    warn: Callable[[str], None]
    # What the person may not read, in the order of the attempts; the value says who grants it.
    forbidden: dict[str, str] = field(default_factory=dict)

    def with_warn(self, warn: Callable[[str], None]) -> Self:
        """Return the same reader, which warns by *warn*."""
        return replace(self, warn=warn)

    def warn_of_missing_rights(self) -> None:
        """Name in one line what was left out because the person may not read it."""
        if not self.forbidden:
            return
        roles = " and ".join(dict.fromkeys(self.forbidden.values()))
        self.warn(
            f"you may not read {', '.join(self.forbidden)}, so the answer goes without; ask an"
            f" administrator for {roles}"
        )

    async def site(self, *, needed: bool = True) -> ClusterView:
        """Return nodes and ledgers as they are now.

        Ledgers that may not be read are an error only where they are *needed*.
        """
        reading = self.cluster.gpu_nodes()
        gpu_nodes = await (reading if needed else self._read_if_allowed(reading, "GPUNodes"))
        nodes = await self._read_if_allowed(self.cluster.nodes(), "Nodes")
        configuration = await self.configuration()
        now = datetime.now(UTC)
        site = cluster_view(gpu_nodes, nodes, now=now, configuration=configuration)
        for problem in site.unreadable:
            self.warn(problem)
        return site

    async def labelled_nodes(self, labels: str) -> frozenset[str] | None:
        """Return the names of the Nodes with *labels*, ``None`` where none are asked for."""
        if not labels:
            return None
        return frozenset(map(name_of, await self.cluster.nodes(labels)))

    async def configuration(self) -> Configuration:
        """Return the operator's settings, with the defaults for those that cannot be read."""
        settings = await self._settings()
        devices = await self._devices()
        for problem in vocabulary_problems(settings, devices):
            self.warn(str(problem))
        return Configuration(
            settings=settings,
            vocabularies=configured_vocabularies(settings, devices),
            lost=vocabularies_named_in_vain(settings, devices),
            policy=PlacementPolicy(
                prefer=settings.prefer,
                geometries=devices.geometries,
                fill_policies=settings.fill_policies,
            ),
        )

    async def _settings(self) -> Settings:
        text = await self._text(self.system, SETTINGS, "settings.yaml")
        try:
            loaded = load_settings(text)
        except SettingsError as error:
            self.warn(f"{error}; the defaults are assumed")
            return DEFAULTS
        for warning in loaded.warnings:
            self.warn(str(warning))
        return loaded.value

    async def _devices(self) -> DeviceConfig:
        text = await self._text(*DEVICES)
        parsed = load_device_config(text) if text else None
        if isinstance(parsed, Rejected):
            self.warn(f"{DEVICES[1]}: {parsed}; the defaults are assumed")
        return DeviceConfig() if parsed is None or isinstance(parsed, Rejected) else parsed.value

    async def _text(self, namespace: str, name: str, key: str) -> str:
        """Return one key of a ConfigMap; empty where it is missing or may not be read."""
        try:
            reading = self.cluster.config_map(namespace, name)
            document = await self._read_if_allowed(reading, f"the ConfigMap {name}")
        except NotFoundError:
            return ""
        return str(((document or {}).get("data") or {}).get(key, ""))

    async def pod(self, namespace: str, name: str) -> PodView:
        """Return one pod; raises :class:`UnreadableError` where it cannot be read."""
        document = await self.cluster.pod(namespace, name)
        try:
            return pod_of(document)
        except ValueError as error:
            text = f"pod {quote(name)} cannot be read: {escaped(str(error))}"
            raise UnreadableError(text) from error

    async def namespace(self, name: str) -> NamespaceView:
        """Return what is known about a namespace, which need not exist yet."""
        try:
            document = await self._read_if_allowed(
                self.cluster.namespace_object(name), "the Namespace"
            )
        except NotFoundError:
            document = None
        if document is None:
            return NamespaceView()
        metadata = document["metadata"]
        return NamespaceView(
            labels=metadata.get("labels") or {},
            policy=namespace_policy(metadata.get("annotations") or {}),
        )

    async def pods(self, namespace: str | None, labels: str = "") -> Sequence[PodView]:
        """Return the pods of a namespace, or of all, without those that cannot be read."""
        pods = []
        for document in await self.cluster.pods(namespace, labels):
            try:
                pods.append(pod_of(document))
            except ValueError as error:
                name = quote(name_of(document))
                self.warn(f"pod {name} cannot be read: {escaped(str(error))}")
        return pods

    async def events(self, namespace: str, uid: str) -> tuple[EventView, ...]:
        """Return the Events of an object, none where they may not be read."""
        documents = await self._read_if_allowed(
            self.cluster.events(namespace, uid), "Events", granted_by="the ClusterRole view"
        )
        return events_of(documents or ())

    async def _read_if_allowed(
        self,
        reading: Awaitable[T],
        what: str,
        *,
        granted_by: str = f"the ClusterRole {READER_ROLE}",
    ) -> T | None:
        """Return what was read; note *what* and return ``None`` where it is forbidden."""
        try:
            return await reading
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            self.forbidden[what] = granted_by
            return None
