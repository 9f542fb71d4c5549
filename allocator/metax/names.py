"""Names of MetaX's resources, labels and annotations, and those of HAMi that its plugin reads."""

from typing import Final

GPU: Final = "metax-tech.com/gpu"  # whole GPUs of a native node
SGPU: Final = "metax-tech.com/sgpu"  # shares, on a node in mode sgpu
VCORE: Final = "metax-tech.com/vcore"  # percent of a GPU, for each share
VMEMORY: Final = "metax-tech.com/vmemory"  # GiB, for each share
# On a node.
CARDS_KEY: Final = "metax-tech.com/node-gpu-devices"
SCORES_KEY: Final = "metax-tech.com/gpu.topology.scores"
LOSSES_KEY: Final = "metax-tech.com/gpu.topology.losses"
MODEL_LABEL: Final = "metax-tech.com/gpu.product"
MEMORY_LABEL: Final = "metax-tech.com/gpu.memory"  # of one GPU, such as 64GB
NODE_ANNOTATIONS: Final = (CARDS_KEY, SCORES_KEY, LOSSES_KEY)
NODE_LABELS: Final = (MODEL_LABEL, MEMORY_LABEL)
# On a pod, read by MetaX's device plugin at Allocate.
ALLOCATED_KEY: Final = "metax-tech.com/gpu-devices-allocated"
PREDICATE_TIME_KEY: Final = "metax-tech.com/predicate-time"
# On a pod, by which HAMi's scheduler and tools know what it holds.
SGPU_TO_ALLOCATE_KEY: Final = "hami.io/metax-sgpu-devices-to-allocate"
SGPU_ALLOCATED_KEY: Final = "hami.io/metax-sgpu-devices-allocated"
GPU_TO_ALLOCATE_KEY: Final = "hami.io/metax-gpu-devices-to-allocate"
GPU_ALLOCATED_KEY: Final = "hami.io/metax-gpu-devices-allocated"
# The ConfigMap by which MetaX's operator sets the mode of each node, and where its guide puts it.
MODES_CONFIG_MAP: Final = "metax-device-config"
OPERATOR_NAMESPACE: Final = "metax-operator"
