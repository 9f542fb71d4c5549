"""Grant, ContainerGrants, Assignment, Entry, Option: what a pod gets."""

from dataclasses import dataclass
from datetime import datetime

from allocator.model.board import Placement
from allocator.model.request import Mode, Stage
from allocator.model.units import CorePercent, MiB
from allocator.model.value import Value


class Grant(Value, frozen=True, kw_only=True):
    """One container's share of one GPU; ``placed`` is set exactly when the mode is MIG.

    ``position`` is what Volcano calls that place, as ``group2-3``, where its scheduler knows it.
    """

    gpu: str
    mode: Mode
    memory: MiB
    cores: CorePercent
    placed: Placement | None = None
    position: str | None = None


class Option(Value, frozen=True, kw_only=True):
    """One grant that a container could get, on the GPU at *position* of the node.

    The lower ``rank`` is the better one; all options of one decision have ranks of one length.
    """

    position: int
    grant: Grant
    rank: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGrants:
    """What one container gets; ``stage`` says when it runs, and so with whom it shares."""

    name: str
    grants: tuple[Grant, ...]
    stage: Stage = Stage.APP


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """All grants of one pod on one node."""

    node: str
    mode: Mode
    containers: tuple[ContainerGrants, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One pod's promise since *since*, an aware time; reserved, bound or running is derived."""

    namespace: str
    pod: str
    uid: str
    since: datetime
    containers: tuple[ContainerGrants, ...]
