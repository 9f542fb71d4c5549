"""Configuration from ConfigMaps; a malformed one is logged and the last good one stays."""

import hashlib
from collections.abc import Mapping
from typing import Final, TypeVar

import structlog

from allocator.config.device_config import (
    DeviceConfig,
    NodeConfig,
    load_device_config,
    load_node_config,
)
from allocator.config.settings import Settings, SettingsError, settings_of
from allocator.model.problem import Loaded, Rejected

SETTINGS_NAME: Final = "vgpu-admission-settings"
DEVICE_CONFIG_NAME: Final = "volcano-vgpu-device-config"
NODE_CONFIG_NAME: Final = "volcano-vgpu-node-config"
_SETTINGS: Final = "settings.yaml"
_DEVICES: Final = "device-config.yaml"
_NODE: Final = "config.json"
log = structlog.get_logger(__name__)
T = TypeVar("T")


def settings_in(data: Mapping[str, str]) -> tuple[Settings, str] | None:
    """Return our settings and a digest of their text; ``None`` leaves the last good ones."""
    text = data.get(_SETTINGS, "")
    try:
        settings = settings_of(text)
    except SettingsError as error:
        log.error("settings rejected, previous ones kept", why=str(error))  # noqa: TRY400 -- no traceback
        return None
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    log.info("settings loaded", digest=digest)
    return settings, digest


def device_config_in(data: Mapping[str, str]) -> DeviceConfig | None:
    """Return the device plugin's configuration; ``None`` leaves the last good one."""
    return _usable_value("device configuration", load_device_config(data.get(_DEVICES, "")))


def node_configs_in(data: Mapping[str, str]) -> Mapping[str, NodeConfig] | None:
    """Return what the plugin is told about each node; ``None`` leaves the last good one."""
    return _usable_value("node configuration", load_node_config(data.get(_NODE, "{}")))


def _usable_value(what: str, loaded: Loaded[T] | Rejected) -> T | None:
    """Return a configuration that may be used; say what is odd about it, or wrong."""
    if isinstance(loaded, Rejected):
        log.error("configuration rejected, previous one kept", of=what, why=str(loaded))
        return None
    for warning in loaded.warnings:
        log.warning("malformed configuration", of=what, what=str(warning))
    return loaded.value
