"""Obstacles: why a node does not take a pod, in words that a scheduler can count.

It adds up the nodes with equal texts, so none has a number or a name in it.
"""

from types import MappingProxyType
from typing import Final, NamedTuple

from allocator.model.decision import Reason


class Obstacle(NamedTuple):
    """One text; ``lasting`` says that no pod is in the way, so that evicting some cannot help."""

    text: str
    lasting: bool = False


NO_INVENTORY: Final = Obstacle("no GPU inventory", lasting=True)
CLOSED: Final = Obstacle("GPUs not ready to be promised", lasting=True)
RESERVED: Final = Obstacle("GPUs reserved for pods nominated to the node")
UNREADABLE: Final = Obstacle("GPU request cannot be read", lasting=True)
TOO_FEW: Final = Obstacle("too few GPUs with room")
# What a GPU lacks now; of several, that of the GPU which comes closest is the last.
NOW: Final = MappingProxyType(
    {
        Reason.MODE_UNAVAILABLE: Obstacle("GPUs in another mode"),
        Reason.MODEL_UNAVAILABLE: Obstacle("GPU model not accepted"),
        Reason.UNHEALTHY: Obstacle("GPUs unhealthy"),
        Reason.NO_GEOMETRY: Obstacle("no place for the MIG profile"),
        Reason.SHARES_SHORT: Obstacle("GPU shares taken"),
        Reason.MEMORY_SHORT: Obstacle("GPU memory short"),
        Reason.CORES_SHORT: Obstacle("GPU cores short"),
    }
)
CLOSENESS: Final = MappingProxyType({reason: i for i, reason in enumerate(NOW)})
CLOSEST: Final = tuple(NOW.values())
# What a node lacks even when it is empty.
EVER: Final = MappingProxyType(
    {
        Reason.MODE_UNAVAILABLE: Obstacle("GPUs in another mode", lasting=True),
        Reason.MODEL_UNAVAILABLE: Obstacle("GPU model not accepted", lasting=True),
        Reason.UNHEALTHY: Obstacle("GPUs unhealthy", lasting=True),
        Reason.NO_GEOMETRY: Obstacle("no matching MIG profile", lasting=True),
        Reason.MEMORY_SHORT: Obstacle("GPU memory too small", lasting=True),
        Reason.CORES_SHORT: Obstacle("GPU too small", lasting=True),
        Reason.TOO_MANY: Obstacle("too few GPUs", lasting=True),
    }
)
