"""Mode mps on a node: keeps its GPUs in the mode, and tells starts when they may go on.

Level-triggered: callers say what is wanted now, as often as they like. Each GPU has its own task,
so that a daemon that hangs does not delay the others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, Never

from agent.mps.daemon import DaemonFolders, folders_of
from agent.mps.gpu_controller import MpsGpuController, MpsServices
from agent.mps.limits import client_limits, server_limits
from agent.mps.partitions.table import HeldPartition, Holder
from agent.mps.plan import MpsDesired, MpsIdle, MpsProgress, Ready, Waiting
from agent.settling_controller import SettlingController
from agent.share import NotYetError, Share
from allocator.model.allocation import Grant
from allocator.model.gpu import whole_chunks
from allocator.model.request import Mode

LEAST_CLIENTS: Final = 16  # that a server takes, on GPUs before Volta
ENSURE_TIMEOUT: Final = 15.0  # seconds; kubelet gives PreStartContainer 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """Which GPUs of a node are partitioned, and for whom; both by the UUID of the GPU."""

    # of GPUs that are: why they cannot be, "" where they can
    static: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # the keys of containers with an entry in mode mps
    holders: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))


NO_PARTITIONS: Final = Partitioning()


def _ignore() -> None:
    """Do nothing."""


class MpsController:
    """Serves mode mps on the GPUs of a node; ``run`` does the work."""

    def __init__(
        self,
        services: MpsServices,
        *,
        host_root: str,
        changed: Callable[[], None] = _ignore,
        patience: float = ENSURE_TIMEOUT,
    ) -> None:
        """Touch nothing yet.

        *host_root* is the folder on the node whose parts clients have mounted; *changed* is called
        when ``unready`` or ``progress`` may have changed; *patience* is how many seconds
        ``ready_daemon`` waits.
        """
        self._services = services
        self._host_root = host_root
        self._changed = changed
        self._settling = SettlingController[MpsGpuController](patience=patience)
        self.refusal = ""  # why no GPU of this node may serve the mode; empty: they may
        self._looked = False  # for what an earlier agent left

    def set_desired(
        self,
        configured: Collection[str],
        grants: Mapping[str, Collection[Grant]],
        partitioning: Partitioning = NO_PARTITIONS,
        *,
        uninstalling: bool = False,
    ) -> None:
        """Set the GPUs that the node's owner wants in the mode, and the grants on each GPU.

        A GPU with an entry of the mode stays in it until the entry has ended, whatever is
        configured. One with entries of other modes only is not in it, and leaves it. GPUs that an
        earlier agent left, by its journal or folders, are looked at too. *uninstalling* says that
        the agent leaves for good, and gives up GPUs that are gone.
        """
        gpus = {
            gpu for gpu, on_gpu in grants.items() if any(one.mode is Mode.MPS for one in on_gpu)
        }.union(configured)
        left = self._services.daemons.known() if not self._looked else frozenset()
        self._looked = True
        for gpu in gpus | self._settling.gpus.keys() | set(self._services.journal.before) | left:
            desired = _desired_state(
                grants.get(gpu, ()),
                configured=gpu in configured,
                unable=partitioning.static.get(gpu),
                uninstalling=uninstalling,
            )
            watched = self._settling.watch(gpu, partial(self._new_gpu, gpu))
            holders = partitioning.holders.get(gpu, frozenset())
            changed, watched.partitions.holders = watched.partitions.holders != holders, holders
            if watched.set_desired(desired) or changed:
                self._settling.wake(gpu)

    async def ready_daemon(self, grant: Grant) -> DaemonFolders:
        """Return the folders of the daemon that serves *grant*, once it answers with its limits.

        Raises NotYetError with a text for the user where that takes too long.
        """
        deadline = self._settling.deadline()
        while why := self._why_not(grant):
            if not await self._settling.await_progress(deadline):
                raise NotYetError(f"MPS on {grant.gpu} is not ready yet: {why}")
        return folders_of(self._host_root, grant.gpu)

    async def ready_partition(self, share: Share) -> str:
        """Return the partition of a container that starts, "" on a GPU that has none.

        Its daemon must be ready. Raises NotYetError with a text for the user where it takes long.
        """
        (grant, *_), gpu = share.grants, self._settling.get(share.grants[0].gpu)
        if gpu is None or gpu.desired is None or not gpu.desired.static:
            return ""
        chunks = whole_chunks(grant.cores, of=gpu.progress.chunks)
        if not chunks:
            raise NotYetError(f"the daemon of {grant.gpu} has yet to say how many chunks it has")
        holder = Holder(share.owner.uid, share.owner.container)
        ticket = gpu.partitions.want(holder, HeldPartition(chunks=chunks, stage=share.stage))
        self._settling.wake(grant.gpu)
        deadline = self._settling.deadline()
        while gpu.progress.served < ticket or not gpu.partitions.name_of(holder):
            if not await self._settling.await_progress(deadline):
                why = gpu.progress.missing.get(str(holder), "the daemon has yet to make it")
                raise NotYetError(f"its partition of {grant.gpu} is not ready yet: {why}")
        return gpu.partitions.name_of(holder)

    def chunks(self) -> Mapping[str, int]:
        """Return into how many chunks GPUs are divided, by UUID, as their daemons say."""
        return {
            gpu: each.progress.chunks
            for gpu, each in sorted(self._settling.gpus.items())
            if each.progress.chunks
        }

    def unready(self) -> Mapping[str, str]:
        """Return why GPUs that are to be in the mode take no clients, by UUID."""
        return {
            gpu: f"mode mps: {why}"
            for gpu, each in sorted(self._settling.gpus.items())
            if each.desired is not None and each.desired.mps
            if (why := self.refusal or _why_waiting(each.progress))
        }

    def followed(self) -> frozenset[str]:
        """Return the GPUs of which it is known what mode they are to be in, by UUID."""
        return frozenset(
            gpu for gpu, each in self._settling.gpus.items() if each.desired is not None
        )

    def progress(self) -> Mapping[str, MpsProgress]:
        """Return how far each GPU is that is to be in the mode, by UUID."""
        return {
            gpu: each.progress
            for gpu, each in sorted(self._settling.gpus.items())
            if each.desired is not None and each.desired.mps
        }

    @property
    def most_clients(self) -> int:
        """Return the most clients that one server was seen with."""
        seen = (each.progress.most_clients for each in self._settling.gpus.values())
        return max(seen, default=0)

    def client_limits(self) -> Mapping[str, int]:
        """Return how many clients a server takes that refused one, by the UUID of its GPU.

        As many as it was seen with. Programs with many contexts make a server refuse clients early,
        so no limit is believed that is lower than that of any GPU.
        """
        return {
            gpu: max(LEAST_CLIENTS, each.progress.most_clients)
            for gpu, each in sorted(self._settling.gpus.items())
            if each.progress.refused
        }

    @property
    def is_idle(self) -> bool:
        """Say whether every compute mode is as it was and no daemon of ours runs.

        A GPU whose daemon has folders counts until it was looked at: a damaged journal does not
        name it.
        """
        idle = {
            gpu
            for gpu, each in self._settling.gpus.items()
            if isinstance(each.progress.rest, MpsIdle)
        }
        services = self._services
        left = (
            self._settling.gpus.keys() | services.journal.before.keys() | services.daemons.known()
        )
        return left <= idle and not services.journal.before

    async def settle(self) -> None:
        """Settle all GPUs once."""
        await self._settling.settle()

    async def run(self) -> Never:
        """Settle every GPU again and again, each in its own task."""
        await self._settling.run()

    def _why_not(self, grant: Grant) -> str:
        """Return why a client with *grant* cannot start yet; empty if it can."""
        if self.refusal:
            return self.refusal
        gpu = self._settling.get(grant.gpu)
        if gpu is None:
            return "the agent has not seen its entry yet"
        rest = gpu.progress.rest
        if isinstance(rest, Ready):
            covered = rest.limits.covers(client_limits(grant))
            return "" if covered else "its daemon has yet to be told of the entry"
        return rest.why if isinstance(rest, Waiting) else "the GPU is not in mode mps"

    def _new_gpu(self, gpu: str) -> MpsGpuController:
        return MpsGpuController(gpu, self._services, changed=self._notify)

    def _notify(self) -> None:
        self._settling.tell_progress()
        self._changed()


def _desired_state(
    grants: Collection[Grant], *, configured: bool, unable: str | None, uninstalling: bool
) -> MpsDesired:
    """Return what a GPU with *grants* is to be, as :meth:`MpsController.set_desired` says."""
    ours = [grant for grant in grants if grant.mode is Mode.MPS]
    others = len(ours) < len(grants)
    return MpsDesired(
        # A pod of another mode may have been bound before the GPU was told to be in this one.
        mps=bool(ours) or (configured and not others),
        limits=server_limits(ours),
        others=others,
        static=unable is not None,
        unable=unable or "",
        uninstalling=uninstalling,
    )


def _why_waiting(progress: MpsProgress) -> str:
    return progress.rest.why if isinstance(progress.rest, Waiting) else ""


def grants_by_gpu(grants: Iterable[Grant]) -> dict[str, list[Grant]]:
    """Return *grants* by the UUID of their GPU."""
    by_gpu: dict[str, list[Grant]] = {}
    for grant in grants:
        by_gpu.setdefault(grant.gpu, []).append(grant)
    return by_gpu
