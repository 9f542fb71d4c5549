"""Records each content of our settings and of both device configurations, and who changed it.

Only the leader writes them. The identifier of a record is made of its content and of the time of
the change, so that a new leader adds nothing to a store that has it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from allocator.audit.record_source import content_id
from allocator.audit.record_writer import WriteRecord
from allocator.cluster.configmaps import (
    CONFIGMAP_KEYS,
    DEVICE_CONFIG_NAME,
    NO_SETTINGS,
    SETTINGS_NAME,
    text_digest,
)
from allocator.cluster.objects import ConfigMap
from allocator.config.device_config import load_device_config, load_node_config
from allocator.config.settings import SettingsError, load_settings
from allocator.model.problem import Rejected
from allocator.model.untrusted import LONGEST_NAME, escaped, inert

SWEEP_SECONDS: Final = 5.0
MOST_PROBLEMS: Final = 8
LONGEST_TEXT: Final = 1000  # characters of a problem


@dataclass(slots=True, kw_only=True)
class SettingsRecordController:
    """Writes a record when a ConfigMap that we read has changed.

    ``config_maps`` returns them by name, ``None`` while not all are known.
    """

    config_maps: Callable[[], Mapping[str, ConfigMap] | None]
    write_record: WriteRecord
    _written: dict[str, ConfigMap | None] = field(default_factory=dict, init=False)

    async def sweep(self) -> None:
        """Record what is new."""
        config_maps = self.config_maps()
        if config_maps is None:
            return
        for name in CONFIGMAP_KEYS:
            found = config_maps.get(name)
            if name in self._written and self._written[name] == found:
                continue
            self._written[name] = found
            if found is not None:
                self._record(found)
            elif name == SETTINGS_NAME:  # decisions name the defaults until there are others
                self._write({"configmap": name, "content_digest": NO_SETTINGS, "text": ""})

    def _record(self, found: ConfigMap) -> None:
        name, (key, missing) = found.name, CONFIGMAP_KEYS[found.name]
        text = found.data.get(key, missing)
        problems = content_problems(name, text)
        fields = {
            "configmap": name,
            "content_digest": text_digest(text),
            "text": text.replace("\0", "\ufffd"),  # no store keeps a NUL, and no parser takes one
            "author": escaped(found.author, LONGEST_NAME) if found.author else None,
            "changed_at": escaped(found.changed_at) if found.changed_at else None,
            "accepted": problems is None,
            "problems": problems or None,
        }
        self._write(fields)

    def _write(self, fields: Mapping[str, Any]) -> None:
        parts = (fields["configmap"], fields["content_digest"], fields.get("changed_at") or "")
        self.write_record("settings", fields, record_id=content_id("settings", *parts))


def content_problems(name: str, text: str) -> list[str] | None:
    """Return why the *text* of ConfigMap *name* is rejected, ``None`` where it is accepted."""
    if name == SETTINGS_NAME:
        try:
            load_settings(text)
        except SettingsError as error:
            return [inert(str(error)[:LONGEST_TEXT])]
        return None
    loaded = load_device_config(text) if name == DEVICE_CONFIG_NAME else load_node_config(text)
    if not isinstance(loaded, Rejected):
        return None
    return [inert(str(one)[:LONGEST_TEXT]) for one in loaded.problems[:MOST_PROBLEMS]]
