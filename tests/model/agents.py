"""The nodes of the model: what really runs on them, and what their agents say about it.

An agent writes its status in one go, as ours does: a container counts as held before it starts,
and until it has ended. A node that left the cluster goes on running what it runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.hami.node_lock import parse_node_lock
from allocator.ledger.schema import status_of
from allocator.model.allocation import Entry
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from allocator.model.units import NO_MEMORY, MiB
from tests.builders.gpunodes import Json, entry
from tests.builders.model import model
from tests.model.cluster import World


@dataclass(slots=True)
class Agent:
    """One node: its hardware, its containers by pod uid, and how often it was booted."""

    world: World
    node: Node
    running: dict[str, Entry] = field(default_factory=dict)
    boots: int = 1
    joined: int = 1
    present: bool = True
    accounted: bool = False  # it has spoken since it came, and to this very GPUNode

    def join(self) -> None:
        """Be a Node of the cluster; the kubelet knows boot and uid before the agent speaks."""
        self.present = True
        labels = {"vgpu-admission.io/agent": "0.1.0"}
        self.world.attach(
            {
                "metadata": {"name": self.name, "uid": f"node-{self.joined}", "labels": labels},
                "status": {"nodeInfo": {"bootID": f"boot-{self.boots}"}},
            }
        )

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def ledger(self) -> Json | None:
        return self.world.gpu_nodes.get(self.name)

    def leave(self) -> None:
        """Vanish from the cluster, e.g. into a partition; what runs there goes on."""
        self.world.detach(self.name)
        self.present = self.accounted = False
        self.joined += 1

    def reboot(self) -> None:
        """Lose all that runs, and come back under another boot id."""
        self.running.clear()
        self.boots += 1
        self.accounted = False
        if self.present:
            self.join()

    def start(self) -> None:
        """Let kubelet ask for the start of a pod that is bound here; it is held before it runs."""
        self.allocate()
        stored = self.ledger
        if stored is None or not self._speaks(stored):
            return
        startable = sorted(self._alive() - self.running.keys() - self.leaving().keys())
        if not startable:
            return
        uid = self.world.rng.choice(startable)
        share = self.share(uid)
        if share is not None:
            self.running[uid] = share
            self.report()

    def allocate(self) -> None:
        """Be the device plugin that has served the pod for which the node is locked (HAMi)."""
        machine = self.world.machines.get(self.name, {"metadata": {}})
        annotations = machine["metadata"].get("annotations", {})
        lock = parse_node_lock(annotations.get(LOCK_ANNOTATION, ""))
        pod = None if lock is None else self.world.pods.get(lock.pod)
        if pod is not None and pod["spec"].get("nodeName") == self.name:
            rest = {key: text for key, text in annotations.items() if key != LOCK_ANNOTATION}
            self.world.attach({**machine, "metadata": {**machine["metadata"], "annotations": rest}})

    def share(self, uid: str) -> Entry | None:
        """Return what a pod may start on: what it is promised at this very moment."""
        entries = self.world.decoded(self.name).entries
        return next((found for found in entries if found.uid == uid), None)

    def _speaks(self, stored: Json) -> bool:
        """Say whether it has accounted for what runs, and nobody has shut the node since."""
        return self.present and self.accounted and bool(stored["status"].get("inventory"))

    def end(self, lingering: float = 0.5) -> None:
        """Let containers of pods that are gone end, but for those that linger."""
        for uid in sorted(self.running.keys() - self._alive()):
            if self.world.rng.random() >= lingering:
                del self.running[uid]

    def leaving(self) -> dict[str, str]:
        """Return the names of this node's pods that were deleted and are still there, by uid."""
        alive = self._alive()
        return {
            uid: name
            for name, pod in self.world.pods.items()
            if (uid := pod["metadata"]["uid"]) in alive and "deletionTimestamp" in pod["metadata"]
        }

    def settle(self) -> None:
        """Speak if there is anything new to say."""
        stored = self.ledger
        if stored is not None and stored["status"] != self._status(stored):
            self.report()

    def report(self) -> None:
        """Write the whole status: what is there, what is held, and what has no entry."""
        stored = self.ledger
        if stored is None or not self.present:
            return
        self.accounted = True
        self.world.report(self.name, self._status(stored))

    def _status(self, stored: Json) -> Json:
        uids = {entry["pod"]["uid"] for entry in stored["spec"]["entries"]}
        unpromised = [entry for uid, entry in sorted(self.running.items()) if uid not in uids]
        return {
            **status_of(self.node, unpromised),
            "bootID": f"boot-{self.boots}",
            "nodeUID": f"node-{self.joined}",
            "observedGeneration": stored["metadata"]["generation"],
            "held": sorted(self.running.keys() & uids),
        }

    def complete(self) -> None:
        """Let containers of a pod end by themselves; the pod stays, and is over."""
        ending = [pod for pod in self.world.pods.values() if pod["metadata"]["uid"] in self.running]
        if ending and self.present:
            pod = self.world.rng.choice(ending)
            del self.running[pod["metadata"]["uid"]]
            self.world.place({**pod, "status": {"phase": "Succeeded"}})

    def fall_ill(self, ill: int) -> None:
        """Let one GPU fail, or none, and say so."""
        gpus = tuple(replace(gpu, healthy=gpu.index != ill) for gpu in self.node.gpus)
        self.node = replace(self.node, gpus=gpus)
        if self.accounted:
            self.report()

    def crowd(self) -> None:
        """Let processes of others take memory of a GPU that is shared in software, or give it back.

        What is promised there already they do not know of; only later promises can heed them.
        """
        gpu = self.world.rng.choice(self.node.gpus)
        if gpu.mode is Mode.HAMI_CORE:
            self._become(gpu, foreign=MiB(self.world.rng.choice((0, 4000, 10000))))

    def recut(self) -> None:
        """Take a GPU into another mode, as its owner may while nobody has a part of it.

        One without MIG goes to and fro between mps and hami-core; those of MetaX's stay shared.
        """
        gpu = self.world.rng.choice(self.node.gpus)
        stored = self.ledger
        if gpu.mode is Mode.SGPU or stored is None or not self._speaks(stored):
            return
        if self.running or stored["spec"]["entries"]:
            return
        board = model(gpu.model).board
        if gpu.mode is not Mode.HAMI_CORE:
            self._become(gpu, mode=Mode.HAMI_CORE, board=None)
        elif board is None:
            self._become(gpu, mode=Mode.MPS)
        else:
            self._become(gpu, mode=Mode.MIG, board=board, foreign=NO_MEMORY)

    def _become(self, gpu: Gpu, **changes: Any) -> None:  # noqa: ANN401 -- fields of a Gpu
        found = tuple(replace(one, **changes) if one is gpu else one for one in self.node.gpus)
        self.node = replace(self.node, gpus=found)
        if self.accounted:
            self.report()

    def _alive(self) -> set[str]:
        return set(self.world.bound(self.name))

    def used(self) -> Iterator[Gpu]:
        """Yield every GPU with what really runs on it."""
        grants = [
            grant
            for entry in self.running.values()
            for held in entry.containers
            for grant in held.grants
        ]
        for gpu in self.node.gpus:
            yield replace(gpu, grants=tuple(g for g in grants if g.gpu == gpu.uuid))


class Bold(Agent):
    """Starts containers that were promised nothing, on nothing."""

    def share(self, uid: str) -> Entry | None:
        return super().share(uid) or entry(uid)
