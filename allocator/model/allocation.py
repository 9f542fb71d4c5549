"""Grant, ContainerGrants, Assignment, Entry, Option: what a pod gets."""

from dataclasses import dataclass
from datetime import datetime

from allocator.model.board import Placement
from allocator.model.request import Mode, Stage
from allocator.model.units import CorePercent, MiB
from allocator.model.value import Value


class Grant(Value, frozen=True, kw_only=True):
    """One container's share of one GPU."""

    gpu: str  # UUID
    mode: Mode
    memory: MiB
    cores: CorePercent
    placed: Placement | None = None  # set exactly when the mode is MIG
    position: str | None = None  # Volcano's name of the placement, such as group2-3, if any
    share: str = ""  # the sharing class of its pod, see allocator.model.sharing; empty: none


class Option(Value, frozen=True, kw_only=True):
    """One grant that a container could get.

    It is here because its class keyword ``kw_only`` would be lost in a compiled module
    (``allocator.model.value``).
    """

    position: int  # of the GPU in Node.gpus
    grant: Grant
    rank: tuple[int, ...]  # lower is better; of the same length within one decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGrants:
    """What one container gets."""

    name: str
    grants: tuple[Grant, ...]
    stage: Stage = Stage.APP  # when it runs; init containers share the GPUs of later containers


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """All grants of one pod on one node."""

    node: str
    mode: Mode
    containers: tuple[ContainerGrants, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one pod was promised. Whether it is reserved, bound or running is derived elsewhere."""

    namespace: str
    pod: str
    uid: str
    since: datetime  # time-zone aware
    containers: tuple[ContainerGrants, ...]
