"""The generated dashboards, by the path below ``manifests``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from manifests.dashboards.cluster import CLUSTER
from manifests.dashboards.node import NODE
from manifests.dashboards.panels import Dashboard
from manifests.dashboards.tenant import TENANT

DASHBOARDS: Final[Mapping[str, Dashboard]] = MappingProxyType(
    {
        "monitoring/dashboards/cluster.json": CLUSTER,
        "monitoring/dashboards/node.json": NODE,
        "monitoring/dashboards/tenant.json": TENANT,
    }
)
