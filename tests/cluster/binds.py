"""Binds that are posted as a scheduler posts them, on one board to cut and one GPU to share."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.ledger.decode import decode
from allocator.model.allocation import Entry
from allocator.model.request import Mode
from manifests.generator.names import CONTROL_PLANE
from tests.builders.model import A30, T4, nodes_of
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import MERGE, ApiError, Json, Reply
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.site import Who


@contextlib.contextmanager
def two_boards(programs: Mapping[str, Path], folder: Path) -> Iterator[Installation]:
    """Yield an installation of two replicas with one GPU to cut and one to share."""
    with installation(programs, folder, replicas=2) as found:
        found.add_node(nodes_of(1, A30, mode=Mode.MIG, name="cut"))
        found.add_node(nodes_of(1, T4, name="soft"))
        found.wait_for_models("A30", "T4")
        yield found


@contextlib.contextmanager
def emptied(site: Installation) -> Iterator[str]:
    """Yield a namespace that opted in; its pods and promises go afterwards."""
    found = site.namespace()
    yield found
    site.api.delete(PODS.format(found), {"gracePeriodSeconds": 0})  # else they get them back
    for name in ("cut", "soft"):
        write(site, name, {"spec": {"entries": []}})


def write(site: Installation, node: str, change: Json) -> None:
    """Write a GPUNode, or its status, past the hook."""
    headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
    path = f"{GPU_NODES}/{node}" + ("/status" if "status" in change else "")
    site.api.request("PATCH", path, change, headers=headers)


def make(site: Installation, team: str, name: str, *, memory: int = 6000, **mode: str) -> Json:
    """Create a pod that asks for one share of a GPU and return it as it is stored."""
    asking = container(limits={NUMBER: 1, MEMORY: memory})
    written = pod(asking, annotations={MODE: mode["mode"]} if mode else None)
    return site.stored(team, written | {"metadata": {**written["metadata"], "name": name}})


def bind(
    site: Installation, team: str, name: str, *, node: str, legacy: bool = False, **more: object
) -> Reply:
    """Post a Binding as a scheduler does; *more* is metadata, or dryRun."""
    dry = {"dryRun": str(more.pop("dryRun"))} if "dryRun" in more else {}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **more},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"{PODS.format(team)}/{name}/binding"
    return site.api.create(f"/api/v1/namespaces/{team}/bindings" if legacy else path, body, **dry)


def denied(
    site: Installation, team: str, name: str, *, node: str, **more: object
) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        bind(site, team, name, node=node, **more)  # type: ignore[arg-type]  # metadata
    return caught.value.status, caught.value.message


def promised(site: Installation, node: str) -> tuple[Entry, ...]:
    return decode(site.api.get(f"{GPU_NODES}/{node}")).entries
