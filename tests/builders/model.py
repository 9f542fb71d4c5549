"""GPUs, nodes, snapshots and requests for tests, which name only what matters to them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import msgspec

from agent.driver.driver import Device, MigMode
from allocator.catalog.boards import Model, model_named
from allocator.model.allocation import Grant
from allocator.model.board import Board, Placement, Profile
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.gpu import Gpu, GpuKind, Node, Snapshot
from allocator.model.request import ContainerRequest, Filters, Mode, PodRequest, Stage
from allocator.model.units import CorePercent, MiB
from allocator.placement.fleet import snapshot_of

A100_40: Final = "NVIDIA A100-SXM4-40GB"
A100_80: Final = "NVIDIA A100-SXM4-80GB"
H100: Final = "NVIDIA H100 80GB HBM3"
A30: Final = "NVIDIA A30"
PRO_6000: Final = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
T4: Final = "Tesla T4"


def model(product: str) -> Model:
    """Return the catalogue's entry; a test asks for models that exist."""
    found = model_named(product)
    if found is None:
        raise LookupError(product)
    return found


def board(product: str) -> Board:
    """Return the shapes of a model that MIG can cut."""
    found = model(product).board
    if found is None:
        raise LookupError(product)
    return found


def profile(name: str, product: str = A100_40) -> Profile:
    found = board(product).profile(name)
    if found is None:
        raise LookupError(name)
    return found


def placed(name: str, start: int, product: str = A100_40) -> Placement:
    return Placement(profile(name, product), start)


def mig_grant(name: str, start: int, *, gpu: str = "GPU-0", product: str = A100_40) -> Grant:
    at = placed(name, start, product)
    return Grant(gpu=gpu, mode=Mode.MIG, memory=at.profile.memory, cores=CorePercent(0), placed=at)


def soft_grant(memory: int, cores: int = 0, *, gpu: str = "GPU-0") -> Grant:
    return Grant(gpu=gpu, mode=Mode.HAMI_CORE, memory=MiB(memory), cores=CorePercent(cores))


def device(product: str = T4, *, index: int = 0, mig: MigMode | None = None) -> Device:
    """Build a GPU called ``GPU-<index>`` as a driver lists it."""
    known = model(product)
    return Device(
        uuid=f"GPU-{index}",
        index=index,
        minor=index,
        pci=f"0000:{index:02x}:00.0",
        model=product,
        memory=known.memory,
        ampere_or_older=True,
        mig=mig,
        board=known.board,
    )


def gpu(
    product: str = A100_40,
    *,
    index: int = 0,
    mode: Mode = Mode.HAMI_CORE,
    grants: Iterable[Grant] = (),
    instances: Iterable[Placement] = (),
) -> Gpu:
    """Build a healthy GPU called ``GPU-<index>``; its grants are renamed to it."""
    uuid = f"GPU-{index}"
    known = model(product)
    return Gpu(
        uuid=uuid,
        index=index,
        model=product,
        memory=known.memory,
        mode=mode,
        slots=10,
        board=known.board if mode is Mode.MIG else None,
        grants=tuple(msgspec.structs.replace(grant, gpu=uuid) for grant in grants),
        instances=tuple(instances),
    )


def node(name: str, *gpus: Gpu, fresh: bool = True) -> Node:
    """Build a node; GPU UUIDs become unique across nodes: ``GPU-<node>-<index>``."""
    return Node(name=name, gpus=tuple(_at(name, gpu) for gpu in gpus), fresh=fresh)


def _at(name: str, gpu: Gpu) -> Gpu:
    uuid = f"GPU-{name}-{gpu.index}"
    return replace(
        gpu, uuid=uuid, grants=tuple(msgspec.structs.replace(g, gpu=uuid) for g in gpu.grants)
    )


def nodes_of(
    count: int, product: str = A100_40, *, mode: Mode = Mode.HAMI_CORE, name: str = "n0"
) -> Node:
    """Build a node with *count* equal, empty GPUs."""
    return node(name, *(gpu(product, index=i, mode=mode) for i in range(count)))


def snapshot(*nodes: Node, complete: bool = True, demand: Demand = NOTHING_LEARNED) -> Snapshot:
    return snapshot_of(nodes, version="1", complete=complete, demand=demand)


def offer(product: str = A100_40, *, mode: Mode = Mode.HAMI_CORE) -> GpuKind:
    known = model(product)
    return GpuKind(
        model=product,
        memory=known.memory,
        mode=mode,
        board=known.board if mode is Mode.MIG else None,
    )


def fleet(*kinds: tuple[str, Mode], count: int = 8) -> Mapping[GpuKind, int]:
    """Return offers of *count* GPUs of each kind on one node."""
    return MappingProxyType({offer(product, mode=mode): count for product, mode in kinds})


def ask(
    memory: int | None = None,
    *,
    percent: int | None = None,
    cores: int = 0,
    count: int = 1,
    name: str = "main",
) -> ContainerRequest:
    """Build the request of one app container; without amounts, all memory of one GPU."""
    return ContainerRequest(
        name=name,
        index=0,
        stage=Stage.APP,
        count=count,
        memory=None if memory is None else MiB(memory),
        percent=percent,
        cores=CorePercent(cores),
    )


def init(container: ContainerRequest) -> ContainerRequest:
    return msgspec.structs.replace(container, stage=Stage.INIT)


def sidecar(container: ContainerRequest) -> ContainerRequest:
    return msgspec.structs.replace(container, stage=Stage.SIDECAR)


def pod(
    *asks: ContainerRequest,
    mode: Mode | None = None,
    profile: str | None = None,
    filters: Filters | None = None,
) -> PodRequest:
    """Build a request in Volcano's vocabulary; init containers and sidecars come first."""
    first = [a for a in asks if a.of_init]
    main = [a for a in asks if not a.of_init]
    parts = (first, main)
    numbered = [msgspec.structs.replace(a, index=i) for part in parts for i, a in enumerate(part)]
    return PodRequest(
        vocabulary="volcano",
        containers=tuple(numbered),
        mode=mode,
        profile=profile,
        filters=filters or Filters(),
    )
