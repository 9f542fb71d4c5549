"""GPUNodes for tests: as the API server keeps them, and what their writes do to them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jsonpatch

from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.ledger.schema import spec_of, status_of
from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.gpu import Node
from allocator.model.request import Stage

Json = dict[str, Any]

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def entry(uid: str, *grants: Grant, since: datetime = NOON, container: str = "main") -> Entry:
    """Build the entry of a pod with one container; the pod is named after its uid."""
    held = ContainerGrants(name=container, grants=grants)
    return Entry(namespace="team-a", pod=uid, uid=uid, since=since, containers=(held,))


def held(stage: Stage, *grants: Grant, name: str = "") -> ContainerGrants:
    """Build the grants of one container, named after its stage."""
    return ContainerGrants(name=name or str(stage), grants=grants, stage=stage)


def several(uid: str, *containers: ContainerGrants) -> Entry:
    """Build the entry of a pod with several containers, init containers first."""
    return replace(entry(uid), containers=containers)


def gpu_node(node: Node, entries: Iterable[Entry] = (), **status: object) -> Json:
    """Write the GPUNode of *node*, whose grants are those of *entries*."""
    return {
        "apiVersion": "vgpu-admission.io/v1alpha1",
        "kind": "GPUNode",
        "metadata": {
            "name": node.name,
            "uid": f"uid-{node.name}",
            "generation": 7,
            "resourceVersion": "100",
        },
        "spec": spec_of(entries),
        "status": {"bootID": "boot-1", "observedGeneration": 7, **status_of(node), **status},
    }


def ledger(node: Node, entries: Iterable[Entry] = (), **status: object) -> Ledger:
    """Read the GPUNode of *node*."""
    return parse_ledger(gpu_node(node, entries, **status))


def patched(stored: Json, ops: Sequence[Mapping[str, object]]) -> Json:
    """Return *stored* as the API server keeps it after a JSON Patch of the main resource.

    Raises ``jsonpatch.JsonPatchException`` where a test fails. A change of the spec raises the
    generation, any change the resource version; the status cannot be changed that way.
    """
    found: Json = jsonpatch.apply_patch(stored, list(ops))  # a copy
    metadata = {**stored["metadata"]}
    if found["spec"] != stored["spec"]:
        metadata["generation"] += 1
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
    return {**stored, "metadata": metadata, "spec": found["spec"]}
