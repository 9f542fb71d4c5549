"""Sharing: the share of a bound pod's container in the ledger, or why it cannot start yet."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from agent.driver.driver import Device
from agent.node.pods import NodePod, PodContainer
from agent.share import NotYetError, Owner, Share
from allocator.model.allocation import Entry, Grant
from allocator.model.board import Placement
from allocator.model.untrusted import quote


class StillRunsError(NotYetError):
    """An earlier container seems to be running still; the pod as last seen may be outdated."""


def next_container(owner: Owner, pod: NodePod) -> PodContainer:
    """Return the container of *owner* whose turn it is, where several share their slots.

    An app starts once every init container has ended well, so the first that has not is meant.
    Raises NotYetError where the pod has no such container, StillRunsError where that one runs.
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

    *unguarded* says that nothing but our injection keeps the container to its share, so that one
    without it may not start. Raises NotYetError with a text for the user.
    """
    if pod is None or pod.uid != owner.uid:
        raise NotYetError(
            f"pod {quote(f'{owner.namespace}/{owner.pod}')} is not bound to this node"
        )
    if pod.ended:
        raise NotYetError(f"pod {_pod_name(pod)} has already ended")
    if entry is None:
        raise NotYetError(
            f"pod {_pod_name(pod)} has no entry on this node yet; "
            "the control plane adds it within "
            "seconds, or says in an Event why it cannot"
        )
    container = next_container(owner, pod)
    if unguarded and not container.injected:
        raise NotYetError(
            f"container {quote(container.name)} of pod {_pod_name(pod)} was not admitted by "
            "vgpu-admission and could see every GPU; delete the pod so that it is recreated"
        )
    grants = next((held.grants for held in entry.containers if held.name == container.name), ())
    if not grants:
        raise NotYetError(
            f"container {quote(container.name)} of pod {_pod_name(pod)} was given no GPU"
        )
    if missing := _missing_gpus(grants, devices):
        raise NotYetError(f"GPU {quote(missing[0])} is no longer on this node")
    return _share(pod, container, _by_pci_address(grants, devices))


def _share(pod: NodePod, container: PodContainer, grants: tuple[Grant, ...]) -> Share:
    owner = Owner(uid=pod.uid, namespace=pod.namespace, pod=pod.name, containers=(container.name,))
    return Share(
        owner=owner,
        grants=grants,
        key=container.key,
        has_mounts=container.has_mounts,
        priority=container.priority,
        stage=container.stage,
    )


def _missing_gpus(grants: Iterable[Grant], devices: Iterable[Device]) -> list[str]:
    names = {device.uuid for device in devices}
    return [grant.gpu for grant in grants if grant.gpu not in names]


def _by_pci_address(grants: Sequence[Grant], devices: Collection[Device]) -> tuple[Grant, ...]:
    """Order by PCI address, as CUDA counts under the order that admission injects.

    Where one is gone nobody tells its address any more; the entry names GPUs by the driver's index,
    which is the same order. None may be left out: what a container runs with has its place.
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
    """Return what is promised to the containers of pods that are bound here, by pod.

    What is on GPUs that are not there any more is promised all the same.
    """
    return tuple(
        _share(pod, container, _by_pci_address(held.grants, devices))
        for entry in entries
        if (pod := pods.get(entry.uid)) is not None and not pod.ended
        for held in entry.containers
        if (container := pod.container(held.name)) is not None
        if held.grants
    )


def placements_of(entries: Iterable[Entry]) -> dict[str, frozenset[Placement]]:
    """Return at which places of which GPUs *entries* promise MIG instances."""
    placements_by_gpu: dict[str, set[Placement]] = {}
    for entry in entries:
        for held in entry.containers:
            for grant in held.grants:
                if grant.placed is not None:
                    placements_by_gpu.setdefault(grant.gpu, set()).add(grant.placed)
    return {gpu: frozenset(places) for gpu, places in placements_by_gpu.items()}
