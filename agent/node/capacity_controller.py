"""The controller of the Node: our label, the capacity that no device plugin reports, and the taint.

Capacity is written only after the register annotation of vc-scheduler, which crashes otherwise. It
is withdrawn by deleting its keys: a restarting kubelet would end running pods if they were 0. The
names of what we added, slots too, are noted on the Node first, so that a later agent can remove it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Never

import structlog

from agent.node import capacity
from agent.node.node_informer import NodeInformer, OwnNode
from agent.node.status import Hardware, model_label, served_gpus
from allocator.catalog.keys import AGENT_LABEL, CAPACITY_KEY, NOT_READY_TAINT
from allocator.cluster.inventory import NODES
from allocator.cluster.objects import MODEL_LABEL
from allocator.model.gpu import Gpu
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, KubeError

INTERVAL: Final = 1.0  # seconds between two sweeps
# Kubelet writes its own figure for what another plugin had registered, every ten seconds for five
# minutes, and 0 at the end. Ours comes right after each, and not more often.
LONGEST_REWRITE_PAUSE: Final = 10.0  # most seconds between two writes of the same capacity
STABLE_AFTER: Final = 60.0  # seconds without a rewrite after which capacity counts as accepted
LONGEST_PAUSE: Final = 30.0
log = structlog.get_logger(__name__)


class CapacityController:
    """Keeps our part of the Node up to date; ``serving`` says that kubelet knows our slots."""

    def __init__(
        self,
        api_client: ApiClient,
        informer: NodeInformer,
        hardware: Callable[[], Hardware | None],
        *,
        version: str,
        clock: Clock = SYSTEM,
    ) -> None:
        """Write through *api_client*; *version* is the value of our label."""
        self._calls = api_client
        self._informer = informer
        self._hardware = hardware
        self._version = version
        self._clock = clock
        self._changed = informer.subscribe()
        self._written: Mapping[str, int] | None = None
        self._written_at = 0.0  # monotonic seconds of the last write
        self._undone = 0  # how often in a row another writer changed it back
        self._pause = 0.0  # seconds before the next write of the same capacity
        self.serving = False

    async def run(self) -> Never:
        """Sweep after changes, for ever."""
        failures = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.sweep()
                failures = 0
            except ConflictError:
                self._changed.set()
            except KubeError as error:
                failures += 1
                log.warning("Node not updated", why=str(error))
                self._changed.set()
            pause = self._clock.backoff(failures, first=INTERVAL, most=LONGEST_PAUSE)
            await self._clock.sleep(pause if failures else INTERVAL)

    async def sweep(self) -> None:
        """Bring label, capacity and taint up to date; raises :class:`KubeError`."""
        node = self._informer.node
        if node is None or not self._informer.is_configured or self._informer.is_upstream:
            return
        if labels := self._label_changes(node):
            await self._patch_metadata(node, {"labels": labels})
        if not self.may_write_capacity(node):
            return
        if self._informer.synced and await self._write_capacity(node) and self.serving:
            await self._untaint(node)

    def _label_changes(self, node: OwnNode) -> dict[str, str | None]:
        """Return the changes to our labels; the one of the model stays while no driver answers."""
        hardware = self._hardware()
        models = [] if hardware is None else [device.model for device in hardware.devices]
        model = node.model if hardware is None else model_label(models)
        existing = {AGENT_LABEL: node.label, MODEL_LABEL: node.model}
        wanted = {AGENT_LABEL: self._version, MODEL_LABEL: model}
        return {key: value for key, value in wanted.items() if existing[key] != value}

    def may_write_capacity(self, node: OwnNode) -> bool:
        """Say whether capacity, slots included, may appear.

        Not while another plugin serves the node, unless we serve already; and, if the setting
        volcanoRegister is on, not before the register annotation.
        """
        if self._informer.plugin_conflict and not self.serving:
            return False
        return node.has_volcano_register or not self._informer.settings.volcano_register

    async def _write_capacity(self, node: OwnNode) -> bool:
        """Write capacity; say whether the Node already had it."""
        hardware, stored_gpu_node = self._hardware(), self._informer.gpu_node
        if hardware is None or stored_gpu_node is None:
            return False
        informer = self._informer
        served = served_gpus(
            hardware, informer.device_config, informer.node_config, before=stored_gpu_node.ledger
        )
        wanted = self._desired_capacity([served_gpu.gpu for served_gpu in served])
        # What we removed may come back from another plugin, so it is ours no longer.
        added = node.added_resources & node.capacity.keys()
        names = added | wanted.keys() | capacity.slot_names(informer.vocabularies)
        if names != node.added_resources:
            await self._patch_metadata(node, {"annotations": {CAPACITY_KEY: _join(names)}})
        changed = _status_changes(node, wanted, self._owned_names(node))
        if not changed:
            return True
        if not self._is_due(wanted):
            self._changed.set()
            return False
        await self._calls.merge_patch(f"{NODES}/{node.name}/status", {"status": changed})
        log.info("Node capacity updated", changes=changed)
        return True

    def _owned_names(self, node: OwnNode) -> frozenset[str]:
        """Return the resources that we may write or remove; a slot only after it was renamed."""
        vocabularies = self._informer.vocabularies
        return capacity.writable_names(vocabularies) | (
            node.added_resources - capacity.slot_names(vocabularies)
        )

    def _is_due(self, wanted: Mapping[str, int]) -> bool:
        """Say whether to write *wanted* now; what others undo is rewritten with back-off."""
        now = self._clock.monotonic()
        if wanted != self._written or now - self._written_at >= STABLE_AFTER:
            self._undone, self._pause = 0, 0.0
        elif now - self._written_at < self._pause:
            return False
        else:
            self._undone += 1
            self._pause = self._clock.backoff(
                self._undone, first=INTERVAL, most=LONGEST_REWRITE_PAUSE
            )
        self._written, self._written_at = wanted, now
        return True

    def _desired_capacity(self, gpus: Sequence[Gpu]) -> dict[str, int]:
        informer = self._informer
        own = informer.node_config.cores_scaling if informer.node_config else None
        scaling = own or informer.device_config.cores_scaling
        most = capacity.capacity(gpus, informer.vocabularies, cores_scaling=scaling)
        stored_gpu_node = informer.gpu_node
        entries = () if stored_gpu_node is None else stored_gpu_node.ledger.entries
        pods = informer.pods.values()
        return capacity.desired_capacity(
            most,
            capacity.unaccounted_capacity(gpus, entries, pods),
            capacity.writable_names(informer.vocabularies),
            linked=capacity.linked_capacity(
                gpus, informer.vocabularies, entries=entries, pods=pods
            ),
        )

    async def _untaint(self, node: OwnNode) -> None:
        if NOT_READY_TAINT not in node.taints:
            return
        index = node.taints.index(NOT_READY_TAINT)
        path = f"/spec/taints/{index}"
        ops = (
            {"op": "test", "path": f"{path}/key", "value": NOT_READY_TAINT},
            {"op": "remove", "path": path},
        )
        await self._calls.json_patch(f"{NODES}/{node.name}", ops)
        log.info("startup taint removed", taint=NOT_READY_TAINT)

    async def _patch_metadata(self, node: OwnNode, metadata: Mapping[str, object]) -> None:
        await self._calls.merge_patch(f"{NODES}/{node.name}", {"metadata": metadata})

    async def withdraw(self) -> frozenset[str]:
        """Remove from the Node what we added; raises :class:`KubeError`.

        Capacity goes first, because schedulers that still see it look for the rest. Returns the
        slots that kubelet still counts, which it does for five minutes after the plugin is gone.
        Our annotation names those until then, so that whoever comes next can remove them.
        """
        node = self._informer.node
        if node is None:
            return frozenset()
        slots = capacity.slot_names(self._informer.vocabularies) & node.capacity.keys()
        gone = {
            name for name in slots if node.capacity[name] == "0"
        }  # kubelet counts none any more
        if changed := _status_changes(node, {}, self._owned_names(node) | gone):
            await self._calls.merge_patch(f"{NODES}/{node.name}/status", {"status": changed})
        counted = slots - gone
        if node.label is not None or node.added_resources != counted:
            rest = {CAPACITY_KEY: _join(counted) or None}
            labels = {AGENT_LABEL: None, MODEL_LABEL: None}
            await self._patch_metadata(node, {"labels": labels, "annotations": rest})
        return counted


def _status_changes(
    node: OwnNode, wanted: Mapping[str, int], names: frozenset[str]
) -> dict[str, Mapping[str, str | None]]:
    """Return the changes to a Node's status, of capacity and of allocatable.

    Kubelet would copy the one to the other within ten seconds. Meanwhile schedulers, and kubelet
    when it admits a pod, would refuse what has become free.
    """
    parts = {"capacity": node.capacity, "allocatable": node.allocatable}
    changed = {part: capacity.changes(old, wanted, names) for part, old in parts.items()}
    return {part: found for part, found in changed.items() if found}


def _join(names: frozenset[str]) -> str:
    return ",".join(sorted(names))
