"""Withdrawal: removes the agent from a node without disturbing running pods.

What the cluster sees is removed at once, so that no new pod is scheduled here. Files are removed
when the last pod has ended, because containers have them mounted. An agent withdraws at its end if
its Node lost the label of the DaemonSet meanwhile. Otherwise it withdraws nothing when it is
stopped: its successor continues.
"""

import asyncio
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, Never, Protocol

import structlog

from agent.deviceplugin.cdi import is_ours
from agent.deviceplugin.registration_client import ENDPOINT
from agent.node.capacity_controller import CapacityController
from agent.node.node_informer import SELECTOR_LABEL, NodeInformer, own_node
from agent.node.status_controller import Alive, StatusController
from agent.serve.device_plugin import Paths
from allocator.cluster.inventory import NODES
from kube.errors import KubeError

INTERVAL: Final = 5.0  # seconds between looks at what is left
LAST_SECONDS: Final = 5.0  # for a withdrawal, of the DaemonSet's grace period of 20
log = structlog.get_logger(__name__)


class LeavingGpus(Protocol):
    """The GPUs in mode mps."""

    async def withdraw(self, *, in_use: bool) -> bool:
        """Take GPUs out of the mode where nobody has an entry; say whether all are out.

        *in_use* says that pods with our files still run.
        """


class WithdrawalController:
    """Removes what the agent added to the node, repeatedly, until nothing is left."""

    def __init__(
        self,
        informer: NodeInformer,
        capacity_controller: CapacityController,
        paths: Paths,
        *,
        cdi: Path,
        alive: Alive,
    ) -> None:
        """Touch nothing yet; with ``mps`` set, GPUs leave mode mps before files are removed."""
        self._informer = informer
        self._capacity_controller = capacity_controller
        self._paths = paths
        self._cdi = cdi
        self._alive = alive
        self.mps: LeavingGpus | None = None
        self._last_logged: tuple[Collection[str], Collection[str], bool] | None = None

    async def run(self) -> Never:
        """Withdraw until cancelled."""
        while True:
            try:
                await self.step()
            except (KubeError, OSError) as error:
                log.warning("withdrawal incomplete", why=str(error))
            await asyncio.sleep(INTERVAL)

    async def depart(self, status_controller: StatusController) -> None:
        """Withdraw once if the DaemonSet selects our Node no longer; the agent is about to end.

        The Node is read anew, because its watch may not have told of the label yet. A DaemonSet
        that selects nodes by something else never had us see the label, and nothing is withdrawn.
        """
        informer = self._informer
        if not informer.was_selected or not informer.synced or informer.is_upstream:
            return
        try:
            async with asyncio.timeout(LAST_SECONDS):
                raw = await informer.client.get(f"{NODES}/{informer.name}")
                informer.learn_node(own_node(raw))
                if informer.node is not None and not informer.node.is_selected:
                    log.info("withdrawing", why=f"the Node has no label {SELECTOR_LABEL} any more")
                    status_controller.leaving = True
                    await status_controller.flush()
                    await self.step()
        except (KubeError, OSError, TimeoutError) as error:
            log.warning("withdrawal incomplete", why=str(error) or type(error).__name__)

    async def step(self) -> None:
        """Remove what can be removed now; raises KubeError, OSError."""
        if not self._informer.synced:
            return
        counted = await self._capacity_controller.withdraw()
        (self._paths.plugins / ENDPOINT).unlink(missing_ok=True)
        pods = await self._pods_with_files()
        out = self.mps is None or await self.mps.withdraw(in_use=bool(pods))
        if out and not pods:
            await asyncio.to_thread(self._remove)
        if (pods, counted, out) != self._last_logged:
            self._last_logged = pods, counted, out
            text = _progress_text(pods, counted, out=out)
            log.info(text, pods=sorted(pods), counted=sorted(counted))

    async def _pods_with_files(self) -> frozenset[str]:
        """Return the uids of pods that may have our files mounted."""
        informer = self._informer
        names = {name for vocabulary in informer.vocabularies for name in vocabulary.resources}
        live = {
            uid
            for uid, pod in informer.pods.items()
            if not pod.ended and not names.isdisjoint(pod.requests)
        }
        stored_gpu_node = informer.gpu_node
        held = frozenset() if stored_gpu_node is None else stored_gpu_node.ledger.held
        return frozenset(live | (held & frozenset(await self._alive())))

    def _remove(self) -> None:
        """Remove all our files; raises OSError. Folders that our own pod has mounted stay."""
        for path in _list_files(self._cdi, is_ours):
            path.unlink(missing_ok=True)
        library = self._paths.host_root
        for path in library.iterdir() if library.is_dir() else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            library.rmdir()
        for path in _list_files(self._paths.state, lambda _: True):
            path.unlink(missing_ok=True)


def _progress_text(pods: Collection[str], counted: Collection[str], *, out: bool) -> str:
    if pods:
        return "files kept for running pods"
    if not out:
        return "files kept until all GPUs have left mode mps"
    return "kubelet still counts slots" if counted else "withdrawal complete"


def _list_files(folder: Path, wanted: Callable[[str], bool]) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if wanted(path.name) and path.is_file()]
    except FileNotFoundError:
        return []
