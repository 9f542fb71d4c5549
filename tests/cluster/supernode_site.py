"""A site with Volcano whose nodes of MetaX form supernodes, as its topo-master tells."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from allocator.ledger.decode import decode
from allocator.metax.names import GPU, MEMORY_LABEL, MODEL_LABEL
from tests.builders.supernodes import Boxes, node_group
from tests.cluster.api import ApiError, Json, wait_for
from tests.cluster.installation import GPU_NODES, PODS, Installation
from tests.cluster.site import MANIFESTS
from tests.cluster.topo_master import TopoMaster, topo_master
from tests.cluster.volcano import CONFIGURATION
from tests.cluster.volcano_site import SERVED_WITHIN, Rig, volcano_site

HYPER_NODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
RIGHTS = MANIFESTS / "components" / "hyper-nodes" / "rbac.yaml"
SETTINGS = MANIFESTS / "components" / "vc-scheduler" / "settings.yaml"
TOPOLOGY_AWARE = f"{CONFIGURATION}  - name: network-topology-aware\n"
GPUS = 8  # of each node


@dataclass(frozen=True, slots=True, kw_only=True)
class SupernodeRig:
    """The site, and who tells its tree."""

    rig: Rig
    topology: TopoMaster

    @property
    def site(self) -> Installation:
        """Return the installation."""
        return self.rig.site

    def hyper_nodes(self) -> dict[str, tuple[int, frozenset[str]]]:
        """Return the tier and the names of the members of each HyperNode by name."""
        return {
            one["metadata"]["name"]: (
                one["spec"]["tier"],
                frozenset(
                    part["selector"]["exactMatch"]["name"] for part in one["spec"]["members"]
                ),
            )
            for one in self.site.api.get(HYPER_NODES)["items"]
        }

    def nodes(self, team: str, start: str = "") -> dict[str, str]:
        """Return the node of each pod that has one, of the pods whose names have this *start*."""
        found = self.rig.bound(team)
        return {
            name: pod["spec"]["nodeName"] for name, pod in found.items() if name.startswith(start)
        }

    def wait_for_nodes(
        self, team: str, start: str, count: int, *, within: float = SERVED_WITHIN
    ) -> dict[str, str]:
        """Return the nodes of these pods once so many have one."""
        wait_for(lambda: len(self.nodes(team, start)) == count, within=within)
        return self.nodes(team, start)

    def pod_group(self, team: str) -> Json:
        """Return the only PodGroup of a namespace."""
        (found,) = wait_for(lambda: self.site.api.get(POD_GROUPS.format(team))["items"])
        group: Json = found
        return group

    def delete_pod(self, team: str, name: str) -> None:
        """Delete a pod at once."""
        self.site.api.request("DELETE", f"{PODS.format(team)}/{name}?gracePeriodSeconds=0")

    def clear(self, *teams: str) -> None:
        """Delete all Jobs and pods, and wait until the ledgers are empty."""
        for team in teams:
            for name in self.rig.jobs(team):
                self.rig.delete_job(team, name)
            for one in self.site.api.get(PODS.format(team))["items"]:
                with contextlib.suppress(ApiError):  # its Job's controller was faster
                    self.delete_pod(team, one["metadata"]["name"])
        wait_for(self._empty, within=SERVED_WITHIN, every=0.5)

    def _empty(self) -> bool:
        nodes = self.site.api.get(GPU_NODES)["items"]
        return not any(one["spec"]["entries"] for one in nodes)


def add_node(rig: Rig, name: str) -> None:
    """Add a node as MetaX's operator announces it, whose GPUs are given out whole."""
    labels = {MODEL_LABEL: "MXC500", MEMORY_LABEL: "64GB", "pool": name}
    rig.site.api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    rig.site.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": []}})
    rig.offer(name, {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(GPUS)})


def _is_known(site: Installation, name: str) -> bool:
    return len(decode(site.api.get(f"{GPU_NODES}/{name}")).node.gpus) == GPUS


def grant_rights(site: Installation) -> None:
    """Grant what the component ``hyper-nodes`` grants."""
    for document in yaml.safe_load_all(RIGHTS.read_text()):
        place = f"/apis/rbac.authorization.k8s.io/v1/{document['kind'].lower()}s"
        site.api.create(place, document)


@contextlib.contextmanager
def supernode_site(
    programs: Mapping[str, Path], folder: Path, boxes: Boxes, *, scheduler: str = TOPOLOGY_AWARE
) -> Iterator[SupernodeRig]:
    """Yield a site with *boxes* of nodes of 8 GPUs, whose HyperNodes are kept."""
    with topo_master(node_group(boxes)) as topology:
        wanted = f"{SETTINGS.read_text()}nodeGroupURL: {topology.url}\nhyperNodes: true\n"
        with volcano_site(programs, folder, settings=wanted, scheduler=scheduler) as rig:
            grant_rights(rig.site)
            for name in names_of(boxes):
                add_node(rig, name)
            for name in names_of(boxes):
                wait_for(lambda name=name: _is_known(rig.site, name), within=SERVED_WITHIN)  # type: ignore[misc]
            yield SupernodeRig(rig=rig, topology=topology)


def names_of(boxes: Boxes) -> Iterable[str]:
    """Return the names of all nodes."""
    return [name for flies in boxes.values() for nodes in flies.values() for name in nodes]
