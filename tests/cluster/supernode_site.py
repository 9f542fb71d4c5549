"""A site with Volcano whose nodes of MetaX form supernodes, as its topo-master tells."""

import contextlib
import time
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
from tests.cluster.volcano_site import JOBS, POD_GROUPS, SERVED_WITHIN, Rig, volcano_site

HYPER_NODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
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
        try:
            wait_for(lambda: len(self.nodes(team, start)) == count, within=within)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self._situation()}") from error
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
        """Delete all Jobs and pods until none comes back and the ledgers are empty.

        A Job's controller that learns of the end of a pod before that of its Job replaces the pod.
        """
        wait_for(lambda: self._is_clear(teams), within=SERVED_WITHIN, every=0.5)
        time.sleep(0.5)  # in which such a controller acts
        wait_for(lambda: self._is_clear(teams), within=SERVED_WITHIN, every=0.5)

    def _is_clear(self, teams: Iterable[str]) -> bool:
        return not self._deleted(teams) and self._empty()

    def _deleted(self, teams: Iterable[str]) -> int:
        """Delete the Jobs, PodGroups and pods that there are, and return how many they were."""
        paths = [
            f"{place.format(team)}/{one['metadata']['name']}"
            for team in teams
            for place in (JOBS, POD_GROUPS, PODS)
            for one in self.site.api.get(place.format(team))["items"]
        ]
        for path in paths:
            with contextlib.suppress(ApiError):  # its controller was faster
                self.site.api.request("DELETE", f"{path}?gracePeriodSeconds=0")
        return len(paths)

    def _empty(self) -> bool:
        nodes = self.site.api.get(GPU_NODES)["items"]
        return not any(one["spec"]["entries"] for one in nodes)

    def _situation(self) -> str:
        """Return in few lines where each pod and entry is, and what vc-scheduler complained of."""
        pods = [
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}={pod['spec'].get('nodeName')}"
            for pod in self.site.api.get("/api/v1/pods")["items"]
        ]
        entries = [
            f"{one['metadata']['name']}={entry['pod']['name']}"
            for one in self.site.api.get(GPU_NODES)["items"]
            for entry in one["spec"]["entries"]
        ]
        events = self.site.api.get("/apis/events.k8s.io/v1/events")["items"]
        told = {event.get("note", "")[:200] for event in events}
        notes = sorted(note for note in told if not note.startswith("Successfully assigned"))
        log = self.rig.volcano.scheduler.tail(4000)
        complaints = [line for line in log.splitlines() if line[:1] in "EW"]
        return "\n".join([", ".join(pods), ", ".join(entries), *notes[:20], *complaints[-10:]])


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
