"""Monitor view: what the monitor reads about this node, and the evictions it requests."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from agent.deviceplugin.shares import shares_of
from agent.driver.driver import Device, Instance
from agent.health.hardware_informer import HardwareInformer
from agent.mig.instances_controller import InstancesController
from agent.monitor.monitor_controller import Monitor
from agent.monitor.violation import LocalPod
from agent.mps.mps_controller import MpsController
from agent.mps.plan import MpsProgress
from agent.node.node_informer import NodeInformer
from agent.node.pods import NodePod
from agent.node.status import rounded_memory
from agent.node.unaccounted import uses_gpus
from agent.share import Share
from allocator.config.settings import Enforcement
from allocator.model.units import NO_MEMORY, MiB
from allocator.model.usage import peak_grants
from kube.client import ApiClient
from kube.errors import KubeError

EVICTION: Final = "/api/v1/namespaces/{}/pods/{}/eviction"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MonitorView:
    """Reads the state of the agent's other parts."""

    informer: NodeInformer
    hardware_informer: HardwareInformer
    instances_controller: InstancesController
    mps: MpsController

    def devices(self) -> tuple[Device, ...] | None:
        """Return the GPUs that are served; those that the configuration filters out are not."""
        hardware, node = self.hardware_informer.hardware, self.informer.node_config
        if hardware is None or not self.informer.synced:
            return None
        return tuple(
            device
            for device in hardware.devices
            if node is None or not node.excludes(device.uuid, device.index)
        )

    def shares(self) -> tuple[Share, ...] | None:
        """Return what the ledger promises to containers of pods that are bound here."""
        stored_gpu_node, devices = self.informer.gpu_node, self.devices()
        if stored_gpu_node is None or devices is None:
            return None
        return shares_of(stored_gpu_node.ledger.entries, self.informer.pods, devices)

    def unpromised_memory(self) -> Mapping[tuple[str, str], MiB]:
        """Return what the status says is used without an entry, by pod uid and GPU."""
        stored_gpu_node = self.informer.gpu_node
        entries = () if stored_gpu_node is None else stored_gpu_node.ledger.unpromised
        memory: Counter[tuple[str, str]] = Counter()
        for entry in entries:
            for grant in peak_grants(entry.containers):
                memory[entry.uid, grant.gpu] += grant.memory
        return {key: MiB(amount) for key, amount in memory.items()}

    def pods(self) -> Mapping[str, LocalPod]:
        """Return the pods that are bound here, by uid."""
        return {
            uid: LocalPod(
                uid=uid,
                namespace=t.namespace,
                name=t.name,
                containers=t.container_names,
                exempt=t.recreated_here or self._predates_ledger(t),
            )
            for uid, t in self.informer.pods.items()
        }

    def _predates_ledger(self, pod: NodePod) -> bool:
        """Say whether *pod* started before the ledger existed: it has no entry but uses GPUs."""
        stored_gpu_node = self.informer.gpu_node
        has_entry = (
            stored_gpu_node is not None and stored_gpu_node.ledger.entry(pod.uid) is not None
        )
        return not has_entry and uses_gpus(pod, self.informer.vocabularies)

    def instances(self) -> tuple[Instance, ...] | None:
        """Return the MIG instances that exist, ``None`` until those of all GPUs were read."""
        if not self.hardware_informer.instances_known:
            return None
        return tuple(present.instance for present in self.instances_controller.live_instances())

    def unhealthy_gpus(self) -> Mapping[str, str]:
        """Return why GPUs accept no new pods, by UUID."""
        hardware = self.hardware_informer.hardware
        return {} if hardware is None else hardware.unhealthy

    def stuck_instances(self) -> Mapping[str, int]:
        """Return how many MIG instances could not be created or removed, by GPU."""
        failures = self.instances_controller.failures().items()
        return {
            gpu: sum(trouble.is_stuck for trouble in failed_reconfigurations)
            for gpu, failed_reconfigurations in failures
        }

    def mps_progress(self) -> Mapping[str, MpsProgress]:
        """Return how far the GPUs in mode mps are, by UUID."""
        return self.mps.progress()

    def enforcement(self) -> Enforcement:
        """Return what the settings demand on violations."""
        return self.informer.settings.enforcement


def update_foreign_use(informer: HardwareInformer, monitor: Monitor) -> None:
    """Report what *monitor* saw in use without an entry, so that it is not promised."""
    before, snapshot = informer.foreign_memory, monitor.snapshot
    measured = monitor.foreign.items()
    rounded = {gpu: rounded_memory(before.get(gpu, NO_MEMORY), held) for gpu, held in measured}
    reached = informer.reached if snapshot is None else snapshot.reached
    if rounded != before or reached != informer.reached:
        # A GPU that does not answer keeps its last value.
        informer.foreign_memory = {**before, **rounded}
        informer.reached = reached
        informer.refresh()


def _ignore(_pod: LocalPod, _why: str) -> None:
    """Report nothing."""


class Evictor:
    """Evicts through the API server, which respects disruption budgets."""

    def __init__(
        self, api_client: ApiClient, report: Callable[[LocalPod, str], None] = _ignore
    ) -> None:
        """Ask through *api_client*, and *report* what was granted."""
        self._calls = api_client
        self._report = report

    async def evict(self, pod: LocalPod, why: str) -> None:
        """Request the eviction of exactly this pod; a refusal is logged."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        path = EVICTION.format(pod.namespace, pod.name)
        try:
            await self._calls.create(path, msgspec.json.encode(body))
        except KubeError as error:
            log.warning("eviction failed", pod=f"{pod.namespace}/{pod.name}", why=str(error))
        else:
            log.warning("pod evicted", pod=f"{pod.namespace}/{pod.name}", because=why)
            self._report(pod, why)
