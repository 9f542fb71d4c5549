"""Shares: what the entry of a bound pod gives to a container, or why it cannot start yet."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from agent.driver.driver import Device
from agent.node.pods import NodePod, PodContainer
from agent.share import NotYetError, Owner, Share
from allocator.model.allocation import Entry, Grant
from allocator.model.board import Placement
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU
from allocator.model.untrusted import quote


class StillRunsError(NotYetError):
    """An earlier container still runs, according to a pod status that may be outdated."""


def next_container(owner: Owner, pod: NodePod) -> PodContainer:
    """Return the candidate of *owner* that starts next: the first that has not completed.

    An app container starts once every init container has completed. Raises NotYetError where all
    candidates have, StillRunsError where several share slots and that one already runs.
    """
    names = frozenset(owner.containers)
    containers = [
        container
        for container in pod.containers
        if container.name in names and not container.completed
    ]
    if not containers:
        what = (
            f"pod {_pod_name(pod)} has no container {quote(owner.container)} that is due to start"
        )
        raise NotYetError(what)
    if len(names) > 1 and containers[0].running:
        what = f"container {quote(containers[0].name)} of pod {_pod_name(pod)} is still running"
        raise StillRunsError(what)
    return containers[0]


def share_of(
    owner: Owner,
    pod: NodePod | None,
    entry: Entry | None,
    *,
    devices: Collection[Device],
    unguarded: bool = False,
) -> Share:
    """Return the share of the container of *owner* that starts; grants in PCI order.

    *unguarded* says that only our injection limits the container to its share, so that a container
    without it must not start. Raises NotYetError with a text for the user.
    """
    if pod is None or pod.uid != owner.uid:
        raise NotYetError(
            f"pod {quote(f'{owner.namespace}/{owner.pod}')} is not bound to this node"
        )
    if pod.ended:
        raise NotYetError(f"pod {_pod_name(pod)} has already ended")
    if entry is None:
        raise NotYetError(
            f"pod {_pod_name(pod)} has no entry on this node yet; the control plane adds it "
            "within seconds, or says in an Event why it cannot"
        )
    container = next_container(owner, pod)
    if unguarded and not container.injected:
        raise NotYetError(
            f"container {quote(container.name)} of pod {_pod_name(pod)} was not admitted by "
            "vgpu-admission and could see every GPU; delete the pod so that it is recreated"
        )
    grants = next((each.grants for each in entry.containers if each.name == container.name), ())
    if not grants:
        raise NotYetError(
            f"container {quote(container.name)} of pod {_pod_name(pod)} was given no GPU"
        )
    if missing := _missing_gpus(grants, devices):
        raise NotYetError(f"GPU {quote(missing[0])} is no longer on this node")
    share = _share(pod, container, _by_pci_address(grants, devices), devices=devices)
    if unguarded:
        _check_limits(share, pod, container)
    return share


def _check_limits(share: Share, pod: NodePod, container: PodContainer) -> None:
    """Raise NotYetError where nothing would hold a container to its share of a GPU."""
    soft = any(grant.mode is Mode.HAMI_CORE for grant in share.grants)
    if soft and not share.library_off and not container.limited:
        raise NotYetError(
            f"container {quote(container.name)} of pod {_pod_name(pod)} has no variables that keep "
            "it to its share, and its grant is not whole GPUs of this node that it may use without "
            "the library; delete the pod so that it is recreated"
        )


def _whole(grant: Grant, devices: Collection[Device]) -> bool:
    """Say whether *grant* is all memory, as the driver lists it now, and all cores of a GPU."""
    total = next((device.memory for device in devices if device.uuid == grant.gpu), None)
    return (
        grant.mode is Mode.HAMI_CORE
        and total is not None
        and grant.memory >= total
        and grant.cores == WHOLE_GPU
    )


def _share(
    pod: NodePod,
    container: PodContainer,
    grants: tuple[Grant, ...],
    *,
    devices: Collection[Device],
) -> Share:
    """Return the share; an annotation alone, which may change, never takes the library off."""
    owner = Owner(uid=pod.uid, namespace=pod.namespace, pod=pod.name, containers=(container.name,))
    return Share(
        owner=owner,
        grants=grants,
        key=container.key,
        has_mounts=container.has_mounts,
        priority=container.priority,
        stage=container.stage,
        library_off=pod.library_off
        and not container.has_mounts
        and all(_whole(grant, devices) for grant in grants),
    )


def _missing_gpus(grants: Iterable[Grant], devices: Iterable[Device]) -> list[str]:
    names = {device.uuid for device in devices}
    return [grant.gpu for grant in grants if grant.gpu not in names]


def _by_pci_address(grants: Sequence[Grant], devices: Collection[Device]) -> tuple[Grant, ...]:
    """Return the grants by PCI address: admission injects CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Where a GPU is gone, its address is unknown. Then the order of the entry stays, which is by the
    driver's index and so the same. No grant may be left out: its position is the device's number.
    """
    if _missing_gpus(grants, devices):
        return tuple(grants)
    addresses = {device.uuid: device.pci.lower() for device in devices}
    return tuple(sorted(grants, key=lambda grant: addresses[grant.gpu]))


def _pod_name(pod: NodePod) -> str:
    return quote(f"{pod.namespace}/{pod.name}")


def shares_of(
    entries: Iterable[Entry], pods: Mapping[str, NodePod], devices: Collection[Device]
) -> tuple[Share, ...]:
    """Return the shares of all containers of pods that are bound here, in the order of *entries*.

    Grants on GPUs that are gone are included.
    """
    return tuple(
        _share(pod, container, _by_pci_address(each.grants, devices), devices=devices)
        for entry in entries
        if (pod := pods.get(entry.uid)) is not None and not pod.ended
        for each in entry.containers
        if (container := pod.container(each.name)) is not None
        if each.grants
    )


def placements_of(entries: Iterable[Entry]) -> dict[str, frozenset[Placement]]:
    """Return the placements of MIG instances that *entries* promise, by GPU."""
    placements_by_gpu: dict[str, set[Placement]] = {}
    for entry in entries:
        for container in entry.containers:
            for grant in container.grants:
                if grant.placed is not None:
                    placements_by_gpu.setdefault(grant.gpu, set()).add(grant.placed)
    return {gpu: frozenset(places) for gpu, places in placements_by_gpu.items()}
