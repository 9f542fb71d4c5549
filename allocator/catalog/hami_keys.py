"""Annotation and label keys of HAMi, on Nodes and on pods."""

from typing import Final

COUNT_RESOURCE: Final = "nvidia.com/gpu"  # by default
REGISTER_ANNOTATION: Final = "hami.io/node-nvidia-register"
HANDSHAKE_ANNOTATION: Final = "hami.io/node-handshake"
LOCK_ANNOTATION: Final = "hami.io/mutex.lock"
# On a pod; the first is a label too, by which HAMi's monitor lists pods.
NODE_KEY: Final = "hami.io/vgpu-node"
TIME_KEY: Final = "hami.io/vgpu-time"
TO_ALLOCATE_KEY: Final = "hami.io/vgpu-devices-to-allocate"
ALLOCATED_KEY: Final = "hami.io/vgpu-devices-allocated"
PHASE_KEY: Final = "hami.io/bind-phase"
BIND_TIME_KEY: Final = "hami.io/bind-time"
MIG_KEY: Final = "hami.io/vgpu-mig-allocations"
ALLOCATING: Final = "allocating"  # values of the phase
SUCCESS: Final = "success"
POD_KEYS: Final = frozenset(
    {NODE_KEY, TIME_KEY, TO_ALLOCATE_KEY, ALLOCATED_KEY, PHASE_KEY, BIND_TIME_KEY, MIG_KEY}
)
