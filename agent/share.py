"""Shares: a container on this node and what its ledger entry gives it."""

from dataclasses import dataclass

from allocator.model.allocation import Grant
from allocator.model.request import Priority, Stage
from allocator.model.units import MiB


class NotYetError(Exception):
    """The container cannot start yet; kubelet shows the text and asks again."""


class RetryStartError(NotYetError):
    """Everything is ready; kubelet only has to ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A container of a live pod, by all the names it goes by.

    ``container`` is a candidate only where several share slots (an init container whose slots
    an app container reuses): see ``containers``, which is never empty.
    """

    uid: str
    namespace: str
    pod: str
    containers: tuple[str, ...]

    @property
    def container(self) -> str:
        """Return the container, the first where slots are shared."""
        return self.containers[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one container of an entry was promised: *grants* in the PCI order of their GPUs.

    ``key`` is the container's annotation prefix, as ``c0``; ``has_mounts`` says that admission
    injected the library's volumes, so that the agent need not. ``priority`` is among those who
    share a GPU in software. ``stage`` says when the container runs.
    """

    owner: Owner
    grants: tuple[Grant, ...]
    key: str
    has_mounts: bool = True
    priority: Priority = Priority.LOW
    stage: Stage = Stage.APP


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file that a container needs, by its path on the node."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyInstance:
    """A MIG instance that is there for the container: its UUID and the files it is reached by."""

    uuid: str
    memory: MiB
    nodes: tuple[DeviceNode, ...]
