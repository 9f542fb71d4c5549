"""Which generated file holds what, and how YAML is written."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import yaml

from manifests.generator.agents import agents
from manifests.generator.controlplane import control_plane
from manifests.generator.gpunode import gpunode
from manifests.generator.names import Json
from manifests.generator.policies import policies
from manifests.generator.registrations import registrations

_HEADER: Final = "# Written by `python -m manifests.generator`; edit that instead.\n"

FILES: Final[Mapping[str, tuple[Json, ...]]] = MappingProxyType(
    {
        "base/gpunode.yaml": (gpunode(),),
        "base/policies.yaml": (*policies(), *agents(), *control_plane()),
        "base/registrations.yaml": registrations(),
    }
)


def rendered(objects: Iterable[Json]) -> str:
    """Write *objects* as YAML documents, longer text and quotes as a literal block."""
    return _HEADER + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=96)


class _Dumper(yaml.SafeDumper):
    """PyYAML's seam: representers belong to a class, and shared values become aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        """Write shared values out each time; the API has no aliases."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value or "'" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
