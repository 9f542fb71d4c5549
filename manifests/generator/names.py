"""Names that manifests, policies and programs must agree on."""

from typing import Any, Final

from allocator.catalog.conditions import SYSTEM_NAMESPACE
from allocator.catalog.vocabularies import OWN

Json = dict[str, Any]  # a Kubernetes object, checked by the API server's schema, not by ours

DOMAIN: Final = OWN.rstrip("/")
NAMESPACE: Final = SYSTEM_NAMESPACE
REGISTRATION: Final = "vgpu-admission"  # both webhook configurations
SERVICE: Final = "vgpu-webhook"
CONTROL_PLANE: Final = f"system:serviceaccount:{NAMESPACE}:vgpu-webhook"
# Its pods need what Pod Security restricted forbids, so they have a namespace to themselves.
AGENTS: Final = "vgpu-admission-agents"
AGENT: Final = f"system:serviceaccount:{AGENTS}:vgpu-agent"
REPORTER: Final = f"{OWN}agent"  # how agents sign Events

UPSTREAM: Final = "upstream"  # value of served-by on nodes of the upstream plugin
HAMI: Final = "hami"  # value of served-by on nodes of HAMi's plugin
NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"
