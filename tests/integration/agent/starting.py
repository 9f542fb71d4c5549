"""A device plugin with a kubelet before it, and promises, instances and regions behind it."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent.deviceplugin.identity import PodName
from agent.deviceplugin.owner_client import OwnerClient
from agent.deviceplugin.plugin_server import DevicePlugin
from agent.deviceplugin.podresources_client import PodResources
from agent.deviceplugin.prestart_server import PreStart, RegionProvider, StartServices
from agent.deviceplugin.registration_client import PluginPaths, RegistrationClient
from agent.deviceplugin.slot_files import SlotFiles
from agent.mps.daemon import DaemonFolders, folders_of
from agent.node.slots import SlotOffer
from agent.serve.node_events import NodeEvents
from agent.share import DeviceNode, NotYetError, Owner, ReadyInstance, Share
from allocator.model.allocation import Grant
from allocator.model.board import Placement
from kube.events import Event, Reference
from tests.fakes.kubelet import Kubelet
from tests.integration.waiting import until

NODE = Reference(api_version="v1", kind="Node", name="gpu-1")


@dataclass(slots=True)
class Ledger:
    """Promises by uid and container, and what the agent asked for them, in order."""

    shares: dict[tuple[str, str], tuple[Grant, ...]] = field(default_factory=dict)
    pods: dict[str, PodName] = field(default_factory=dict)
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    vacated: list[str] = field(default_factory=list)
    withheld: list[tuple[str, str]] = field(default_factory=list)
    partitions: dict[str, str] = field(default_factory=dict)  # by GPU
    lingering: set[str] = field(default_factory=set)
    told: list[Event] = field(default_factory=list)
    asked: int = 0
    library_off: bool = False  # whether shares are whole GPUs of pods that want no library
    mounting: bool = True  # whether admission mounts what a share needs
    made: list[tuple[str, Placement]] = field(default_factory=list)
    regions: RegionProvider | None = None  # real ones, where a test wants them
    stuck: asyncio.Event | None = None  # while set to an event, instances wait for it
    ensuring: Callable[[str, Placement], Awaitable[ReadyInstance]] | None = (
        None  # in the place of that
    )

    def promise(self, uid: str, pod: str, *grants: Grant, container: str = "main") -> None:
        self.pods[uid] = PodName("team-a", pod)
        self.shares[uid, container] = grants

    async def share(self, owner: Owner) -> Share:
        for container in owner.containers:
            if (grants := self.shares.get((owner.uid, container))) is not None:
                sole = Owner(
                    uid=owner.uid,
                    namespace=owner.namespace,
                    pod=owner.pod,
                    containers=(container,),
                )
                return Share(
                    owner=sole,
                    grants=grants,
                    key="c0",
                    has_mounts=self.mounting,
                    library_off=self.library_off,
                )
        raise NotYetError(f"{owner.pod} has no entry in the ledger")

    async def hold(self, uid: str) -> None:
        self.held.append(uid)

    async def annotate(self, owner: Owner, annotations: Mapping[str, str]) -> None:
        self.annotations.setdefault(owner.uid, {}).update(annotations)

    async def ensure(self, gpu: str, placed: Placement) -> ReadyInstance:
        self.asked += 1
        if self.ensuring is not None:
            return await self.ensuring(gpu, placed)
        if self.stuck is not None:
            await self.stuck.wait()
        self.made.append((gpu, placed))
        minor, memory = 30 + placed.start, placed.profile.memory
        nodes = (DeviceNode(f"/dev/nvidia-caps/nvidia-cap{minor}", 237, minor),)
        return ReadyInstance(uuid=f"MIG-{gpu}-{placed.start}", memory=memory, nodes=nodes)

    async def ready_daemon(self, grant: Grant) -> DaemonFolders:
        if self.stuck is not None:
            await self.stuck.wait()
        return folders_of("/usr/local/vgpu", grant.gpu)

    async def ready_partition(self, share: Share) -> str:
        return self.partitions.get(share.grants[0].gpu, "")

    async def seed(self, share: Share, *, by_cdi: bool) -> str:
        if self.regions is not None:
            return await self.regions.seed(share, by_cdi=by_cdi)
        return f"/regions/{share.owner.uid}_{share.owner.container}"

    async def withhold(self, share: Share) -> None:
        self.withheld.append((share.owner.uid, share.owner.container))

    async def vacate(self, uid: str) -> None:
        if self.regions is not None:
            await self.regions.vacate(uid)
        if uid in self.lingering:
            raise NotYetError(f"a process of {uid} still runs")
        self.vacated.append(uid)


@dataclass(slots=True, kw_only=True)
class Site:
    """One node: everything that a test turns or looks at."""

    root: Path
    kubelet: Kubelet
    ledger: Ledger
    slots: SlotFiles
    plugin: DevicePlugin
    prestart: PreStart
    registration: RegistrationClient
    resources: PodResources

    async def registered(self) -> None:
        """Return once kubelet has the offer."""
        await until(lambda: self.kubelet.allocatable > 0)


def site(
    root: Path,
    *,
    cdi: bool = True,
    kubelet: Kubelet | None = None,
    count: int = 8,
    folder: Path | None = None,
) -> Site:
    """Put an agent's parts together below *root*, of which nothing runs yet.

    It registers with what listens in *folder*, with kubelet itself unless told otherwise.
    """
    kubelet = kubelet or Kubelet(root)
    ledger = Ledger()
    resources = PodResources(kubelet.socket, kubelet.resource)
    owners = OwnerClient(
        kubelet.resource, kubelet.checkpoint, lister=resources, pods=lambda: ledger.pods
    )
    slots = SlotFiles(root / "usr/local/vgpu", cdi=root / "cdi" if cdi else None)
    news = NodeEvents(lambda: NODE, ledger.told.append)
    parts = StartServices(
        owners=owners,
        entries=ledger,
        instances=ledger,
        regions=ledger,
        mps=ledger,
        slots=slots,
        events=news,
    )
    prestart = PreStart(parts)
    plugin = DevicePlugin(slots, prestart)
    plugin.offer(SlotOffer(total=count, healthy=count))
    place = PluginPaths(
        resource=kubelet.resource,
        folder=folder or kubelet.plugins,
        lock=root / "state" / "lock",
    )
    return Site(
        root=root,
        kubelet=kubelet,
        ledger=ledger,
        slots=slots,
        plugin=plugin,
        prestart=prestart,
        registration=RegistrationClient(plugin, place),
        resources=resources,
    )


@asynccontextmanager
async def running(*, cdi: bool = True, count: int = 8) -> AsyncIterator[Site]:
    """Run kubelet and agent while the block runs, registered."""
    with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:  # a socket's path is short
        made = site(Path(folder), cdi=cdi, count=count)
        await made.kubelet.start()
        keeper = asyncio.create_task(made.registration.run())
        try:
            await made.registered()
            yield made
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])
            await made.resources.close()
            await made.kubelet.stop()


def on(act: Callable[[Site], Awaitable[None]], *, cdi: bool = True) -> None:
    """Run *act* on a node whose plugin is registered."""

    async def main() -> None:
        async with running(cdi=cdi) as site:
            await act(site)

    asyncio.run(main())


def edits(site: Site, slot: str) -> dict[str, list[object]]:
    """Return what the document of *slot* hands out now."""
    path = site.root / "cdi" / f"vgpu-admission.io-slot_{slot}.json"
    (device,) = json.loads(path.read_text())["devices"]
    assert device["name"] == slot
    found: dict[str, list[object]] = device["containerEdits"]
    return found


def links(site: Site, slot: str) -> dict[str, str]:
    """Return where each file of the folder of *slot* leads."""
    folder = site.root / "usr/local/vgpu/slots" / slot
    return {path.name: str(path.readlink()) for path in folder.glob("*") if path.is_symlink()}
