"""Settings and device configuration from ConfigMaps; an invalid one keeps the last good one."""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import structlog

from allocator.catalog.vocabularies import LostVocabulary, Vocabulary
from allocator.cluster.objects import ConfigMap, decode_config_map
from allocator.config.device_config import (
    DeviceConfig,
    NodeConfig,
    configured_vocabularies,
    load_device_config,
    load_node_config,
    vocabularies_named_in_vain,
    vocabulary_problems,
)
from allocator.config.settings import Settings, SettingsError, load_settings
from allocator.families.family import NodeModesSource
from allocator.model.problem import Loaded, Rejected
from kube.watch import WatchSource

SETTINGS_NAME: Final = "vgpu-admission-settings"
DEVICE_CONFIG_NAME: Final = "volcano-vgpu-device-config"
NODE_CONFIG_NAME: Final = "volcano-vgpu-node-config"
_SETTINGS_DATA_KEY: Final = "settings.yaml"
_DEVICE_CONFIG_DATA_KEY: Final = "device-config.yaml"
_NODE_CONFIG_DATA_KEY: Final = "config.json"
_NO_NODE_CONFIG: Final = "{}"
# The key that is read of each ConfigMap, and what stands for its text where the key is missing.
CONFIGMAP_KEYS: Final = MappingProxyType(
    {
        SETTINGS_NAME: (_SETTINGS_DATA_KEY, ""),
        DEVICE_CONFIG_NAME: (_DEVICE_CONFIG_DATA_KEY, ""),
        NODE_CONFIG_NAME: (_NODE_CONFIG_DATA_KEY, _NO_NODE_CONFIG),
    }
)
NO_SETTINGS: Final = "defaults"  # in place of a digest, while no ConfigMap was read
log = structlog.get_logger(__name__)
T = TypeVar("T")


def text_digest(text: str) -> str:
    """Return the digest by which decisions name settings with this *text*."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:10]


def settings_in(data: Mapping[str, str]) -> tuple[Settings, str] | None:
    """Return our settings and a digest of their text; ``None``, and a log line, if invalid."""
    text = data.get(_SETTINGS_DATA_KEY, "")
    try:
        loaded = load_settings(text)
    except SettingsError as error:
        log.error("settings rejected, previous ones kept", why=str(error))  # noqa: TRY400 -- no traceback
        return None
    for warning in loaded.warnings:
        log.warning("setting ignored", why=str(warning))
    digest = text_digest(text)
    log.info("settings loaded", digest=digest)
    return loaded.value, digest


def device_config_in(data: Mapping[str, str]) -> DeviceConfig | None:
    """Return the device plugin's configuration; ``None``, and a log line, if invalid."""
    return _usable_value(
        "device configuration", load_device_config(data.get(_DEVICE_CONFIG_DATA_KEY, ""))
    )


def node_configs_in(data: Mapping[str, str]) -> Mapping[str, NodeConfig] | None:
    """Return the plugin's configuration by node; ``None``, and a log line, if invalid."""
    return _usable_value(
        "node configuration", load_node_config(data.get(_NODE_CONFIG_DATA_KEY, _NO_NODE_CONFIG))
    )


def _usable_value(what: str, loaded: Loaded[T] | Rejected) -> T | None:
    """Return the loaded value and log its warnings, or log the problems and return ``None``."""
    if isinstance(loaded, Rejected):
        log.error("configuration rejected, previous one kept", of=what, why=str(loaded))
        return None
    for warning in loaded.warnings:
        log.warning("malformed configuration", of=what, what=str(warning))
    return loaded.value


def vocabularies_in(
    settings: Settings, devices: DeviceConfig
) -> tuple[tuple[Vocabulary, ...], tuple[LostVocabulary, ...]]:
    """Return the vocabularies that are served, and those that cannot be.

    A log line tells of each of the latter.
    """
    for problem in vocabulary_problems(settings, devices):
        log.error("vocabulary not served", why=str(problem))
    lost = vocabularies_named_in_vain(settings, devices)
    return configured_vocabularies(settings, devices), lost


def config_map_source(namespace: str, name: str) -> WatchSource[ConfigMap]:
    """Return how one ConfigMap is followed."""
    return WatchSource(
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        decode=decode_config_map,
        key=lambda config_map: config_map.name,
        selectors={"fieldSelector": f"metadata.name={name}"},
    )


def modes_source(modes: NodeModesSource) -> WatchSource[ConfigMap]:
    """Return how the ConfigMap by which a family's operator sets modes is followed."""
    return config_map_source(modes.namespace, modes.name)
