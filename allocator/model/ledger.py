"""The ledger's vocabulary: entries, each one pod's assignment on one node."""

from dataclasses import dataclass
from datetime import datetime

from allocator.model.decision import ContainerGrants


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One pod's promise since *since*, an aware time; reserved, bound or running is derived."""

    namespace: str
    pod: str
    uid: str
    since: datetime
    containers: tuple[ContainerGrants, ...]
