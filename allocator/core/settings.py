"""Settings: what an operator may decide, one ConfigMap key, checked before it is believed."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
import yaml

from allocator.model.request import Mode

LARGEST: Final = 512 * 1024  # bytes; a ConfigMap holds at most 1 MiB of everything


class Fleet(StrEnum):
    """Whether GPUs may exist that no inventory shows yet, e.g. behind an autoscaler."""

    OPEN = "open"
    CLOSED = "closed"


class NodeAgent(StrEnum):
    """Which device plugin serves the nodes."""

    OURS = "vgpu-admission"
    UPSTREAM = "upstream"


class Injection(StrEnum):
    """Who mounts the interception library."""

    AUTO = "auto"  # the webhook, except where Pod Security forbids hostPath
    WEBHOOK = "webhook"
    AGENT = "agent"


class Prefer(StrEnum):
    """What decides between modes that both serve."""

    COST = "cost"
    ISOLATION = "isolation"
    DENSITY = "density"


class VolcanoMode(StrEnum):
    """Whether a mode we chose binds vc-scheduler, which takes its annotation as a must."""

    OPEN = "open"
    DECIDE = "decide"


class Policy(StrEnum):
    """What happens to something unwanted that a site may still need."""

    REFUSE = "refuse"
    WARN = "warn"
    ALLOW = "allow"


class MemoryUnit(StrEnum):
    """The unit of ``aliyun.com/gpu-mem``, which the pod does not carry."""

    GIB = "GiB"
    MIB = "MiB"


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class Settings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """All settings; every field has the default an installation starts with."""

    fleet: Fleet = Fleet.OPEN
    node_agent: NodeAgent = NodeAgent.OURS
    injection: Injection = Injection.AUTO
    prefer: Prefer = Prefer.COST
    default_mode: Mode = Mode.HAMI_CORE
    volcano_mode: VolcanoMode = VolcanoMode.OPEN
    volcano_schedulers: tuple[Name, ...] = ("volcano",)
    privileged: Policy = Policy.REFUSE
    gpushare_memory_unit: MemoryUnit = MemoryUnit.GIB
    stale_after_seconds: Annotated[int, msgspec.Meta(ge=10, le=86400)] = 120


DEFAULTS: Final = Settings()


class SettingsError(Exception):
    """Settings that cannot be used; the text names the value, its place and what would do."""


def settings_of(text: str) -> Settings:
    """Decode the YAML of key ``settings.yaml``; an empty text means the defaults.

    Raises :class:`SettingsError`.
    """
    if len(text) > LARGEST:
        raise SettingsError(f"settings.yaml has {len(text)} characters; at most {LARGEST} are read")
    try:
        document = yaml.safe_load(text) if text.strip() else {}
        found = msgspec.convert(document, Settings)
    except yaml.YAMLError as error:
        raise SettingsError(f"settings.yaml is not YAML: {str(error)[:256]}") from error
    except msgspec.ValidationError as error:
        raise SettingsError(f"settings.yaml: {str(error)[:256]}") from error
    if found.default_mode is Mode.MEMORY_ONLY:
        raise SettingsError(
            'settings.yaml: defaultMode "memory-only" is no default; use hami-core or mig'
        )
    return found
