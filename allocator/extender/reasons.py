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
CLOSED: Final = FailureReason("GPU inventory not ready", lasting=True)
RESERVED: Final = FailureReason("GPUs reserved for nominated pods")
UNREADABLE: Final = FailureReason("unreadable GPU request", lasting=True)
TOO_FEW: Final = FailureReason("too few GPUs with free capacity")
TOO_FEW_ON_NUMA: Final = FailureReason("too few GPUs with free capacity on one NUMA node")
# What a GPU lacks now, the ones that come closest to fitting last.
CURRENT: Final = MappingProxyType(
    {
        Reason.MODE_UNAVAILABLE: FailureReason("GPUs in another mode"),
        Reason.MODEL_UNAVAILABLE: FailureReason("GPU model not accepted"),
        Reason.UNHEALTHY: FailureReason("unhealthy GPUs"),
        Reason.NO_GEOMETRY: FailureReason("no free slots for the MIG profile"),
        Reason.SHARE_CLASS: FailureReason("GPUs shared by another class"),
        Reason.SHARES_SHORT: FailureReason("no free GPU shares"),
        Reason.MEMORY_SHORT: FailureReason("insufficient GPU memory"),
        Reason.CORES_SHORT: FailureReason("insufficient GPU cores"),
    }
)
CLOSENESS: Final = MappingProxyType({reason: i for i, reason in enumerate(CURRENT)})
CLOSEST: Final = tuple(CURRENT.values())
# What a node lacks even when it is empty.
LASTING: Final = MappingProxyType(
    {
        Reason.MODE_UNAVAILABLE: FailureReason("GPUs in another mode", lasting=True),
        Reason.MODEL_UNAVAILABLE: FailureReason("GPU model not accepted", lasting=True),
        Reason.UNHEALTHY: FailureReason("unhealthy GPUs", lasting=True),
        Reason.NO_GEOMETRY: FailureReason("no matching MIG profile", lasting=True),
        Reason.MEMORY_SHORT: FailureReason("GPU memory too small", lasting=True),
        Reason.CORES_SHORT: FailureReason("GPU too small", lasting=True),
        Reason.TOO_MANY: FailureReason("too few GPUs", lasting=True),
    }
)
