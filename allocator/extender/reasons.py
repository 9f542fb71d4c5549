"""Why a node does not take a pod, in fixed texts.

A scheduler counts nodes with equal texts, so none contains a number or a name.
"""

from types import MappingProxyType
from typing import Final, NamedTuple

from allocator.model.decision import Reason


class FailureReason(NamedTuple):
    """One reason."""

    text: str
    lasting: bool = False  # no pod is in the way, so evictions cannot help


NO_INVENTORY: Final = FailureReason("no GPU inventory", lasting=True)
CLOSED: Final = FailureReason("GPUs not ready to be promised", lasting=True)
RESERVED: Final = FailureReason("GPUs reserved for pods nominated to the node")
UNREADABLE: Final = FailureReason("GPU request cannot be read", lasting=True)
TOO_FEW: Final = FailureReason("too few GPUs with room")
# What a GPU lacks now, the ones that come closest to fitting last.
CURRENT: Final = MappingProxyType(
    {
        Reason.MODE_UNAVAILABLE: FailureReason("GPUs in another mode"),
        Reason.MODEL_UNAVAILABLE: FailureReason("GPU model not accepted"),
        Reason.UNHEALTHY: FailureReason("GPUs unhealthy"),
        Reason.NO_GEOMETRY: FailureReason("no place for the MIG profile"),
        Reason.SHARES_SHORT: FailureReason("GPU shares taken"),
        Reason.MEMORY_SHORT: FailureReason("GPU memory short"),
        Reason.CORES_SHORT: FailureReason("GPU cores short"),
    }
)
CLOSENESS: Final = MappingProxyType({reason: i for i, reason in enumerate(CURRENT)})
CLOSEST: Final = tuple(CURRENT.values())
# What a node lacks even when it is empty.
LASTING: Final = MappingProxyType(
    {
        Reason.MODE_UNAVAILABLE: FailureReason("GPUs in another mode", lasting=True),
        Reason.MODEL_UNAVAILABLE: FailureReason("GPU model not accepted", lasting=True),
        Reason.UNHEALTHY: FailureReason("GPUs unhealthy", lasting=True),
        Reason.NO_GEOMETRY: FailureReason("no matching MIG profile", lasting=True),
        Reason.MEMORY_SHORT: FailureReason("GPU memory too small", lasting=True),
        Reason.CORES_SHORT: FailureReason("GPU too small", lasting=True),
        Reason.TOO_MANY: FailureReason("too few GPUs", lasting=True),
    }
)
