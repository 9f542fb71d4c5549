"""Shares: a container on this node and what its ledger entry gives it."""

from dataclasses import dataclass

from allocator.model.allocation import Grant
from allocator.model.request import Priority, Stage
from allocator.model.units import MiB


class NotYetError(Exception):
    """The container cannot start yet; kubelet shows the text and calls again."""


class RetryStartError(NotYetError):
    """Everything is ready; kubelet only has to call again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The container that was given slots, with its live pod.

    Kubelet gives the slots of an init container to an app container again. Such containers are
    all candidates until the pod shows which of them starts.
    """

    uid: str  # of the pod
    namespace: str
    pod: str
    containers: tuple[str, ...]  # the candidates, in the order of their starts; never empty

    @property
    def container(self) -> str:
        """Return the first candidate."""
        return self.containers[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one container of an entry was promised."""

    owner: Owner
    grants: tuple[Grant, ...]  # in the PCI order of their GPUs
    key: str  # the container's annotation prefix, as c0
    has_mounts: bool = True  # admission injected the library's volumes, so the agent need not
    priority: Priority = Priority.LOW  # among containers that share a GPU in software
    stage: Stage = Stage.APP  # when the container runs
    library_off: bool = False  # gets no library: it was granted whole GPUs, and its pod wants none


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file that a container needs, by its path on the node."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyInstance:
    """A MIG instance that a container may use."""

    uuid: str
    memory: MiB
    nodes: tuple[DeviceNode, ...]  # the device files by which a container reaches it
