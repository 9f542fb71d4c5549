"""What each reason means, with an example; docs/reasons.md and the console show the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from allocator.model.decision import Reason


@dataclass(frozen=True, slots=True)
class ReasonText:
    """The meaning of a reason, and a message that ends with it; backquotes surround code."""

    meaning: str
    example: str


REASON_TEXTS: Final[Mapping[Reason, ReasonText]] = MappingProxyType(
    {
        Reason.MALFORMED: ReasonText(
            "an invalid amount: a unit on memory, a fraction, a negative number, a "
            "percentage outside 1 to 100, a misspelt name, an amount in `requests` only",
            'container "main": vgpu-memory "8Gi" would mean 8589934592 MiB; give MiB, e.g. 8192',
        ),
        Reason.CONFLICTING: ReasonText(
            "two parts of the request exclude each other: memory and percentage, a "
            "limit and a different request, two vocabularies, "
            '`vgpu-admission.io/library: "off"` without a whole GPU',
            'container "main": both vgpu-memory 8000 and vgpu-memory-percentage 50; keep one',
        ),
        Reason.MEMORY_SHORT: ReasonText(
            "no GPU has that much memory",
            'container "main": asks for 90000 MiB on one GPU; the largest has 81251; '
            "ask for at most 81251",
        ),
        Reason.CORES_SHORT: ReasonText(
            "more compute than a GPU has",
            'container "main": vgpu-cores 140 is more than one whole GPU; ask for at most 100',
        ),
        Reason.SHARES_SHORT: ReasonText(
            "every suitable GPU is shared by as many containers as it may be",
            'container "main": all 10 shares of the closest GPU are taken; wait until '
            "other pods end",
        ),
        Reason.NO_GEOMETRY: ReasonText(
            "no MIG profile is large enough, or none has room",
            'container "main": no MIG profile here has 24400 MiB (largest: 4g.24gb on '
            "A30 with 23344 MiB usable); ask for at most 23344 or remove "
            "volcano.sh/vgpu-mode",
        ),
        Reason.MODE_UNAVAILABLE: ReasonText(
            "the mode is unknown, or no GPU is in it",
            'pod: mode "smi" is not known; use mig, hami-core or mps, or remove '
            "volcano.sh/vgpu-mode",
        ),
        Reason.MODEL_UNAVAILABLE: ReasonText(
            "the model filter matches no GPU",
            'pod: nvidia.com/use-gputype "H100" matches none of A100-SXM4-40GB; name '
            "one of these, or remove it",
        ),
        Reason.UNHEALTHY: ReasonText(
            "the suitable GPUs are unhealthy",
            "pod: every GPU that qualifies is unhealthy; wait until one recovers",
        ),
        Reason.TOO_MANY: ReasonText(
            "more GPUs than a node has, or than the library can limit; or more asking "
            "containers than an entry may have (64)",
            'container "main": asks for 16 GPUs; no node has more than 8 that qualify; '
            "ask for at most 8 per pod",
        ),
        Reason.RESERVED_VARIABLE: ReasonText(
            "a variable that would lift a limit",
            'container "main": variable CUDA_DEVICE_MEMORY_LIMIT_0 is reserved for vGPU '
            "limits; remove it",
        ),
        Reason.RESERVED_MOUNT: ReasonText(
            "a mount that would hide the library, or a volume that reaches devices of the node",
            'container "main": mount at /etc would hide /etc/ld.so.preload, which '
            "carries the vGPU limits; mount it elsewhere",
        ),
        Reason.RESERVED_ANNOTATION: ReasonText(
            "an annotation that only a scheduler, a device plugin or vgpu-admission may write",
            "pod: annotation volcano.sh/vgpu-ids-new is reserved: it is written when "
            "the pod is bound; remove it",
        ),
        Reason.NODE_NAME: ReasonText(
            "the pod sets `nodeName`",
            "pod: nodeName gpu-1 bypasses the scheduler; use nodeSelector "
            "kubernetes.io/hostname instead",
        ),
        Reason.PRIVILEGED: ReasonText(
            "a privileged container sees all devices",
            'container "main": is privileged: it sees every GPU, and no limit holds; '
            "remove privileged or the vGPU request",
        ),
        Reason.PRIORITY: ReasonText(
            "high kernel priority in a namespace that does not allow it",
            "pod: vgpu-admission.io/task-priority high slows down other pods on the "
            "GPU, which the namespace does not allow; remove it, or ask an "
            "administrator to annotate the namespace with "
            "vgpu-admission.io/high-priority=allow",
        ),
        Reason.ISOLATION: ReasonText(
            "the mode isolates less than the namespace demands, or its demand is unreadable",
            "pod: mode hami-core isolates less than mig, which the namespace demands "
            "with vgpu-admission.io/min-isolation; remove volcano.sh/vgpu-mode",
        ),
        Reason.UNSERVED: ReasonText(
            "the pod also asks by names of a vocabulary that the setting `vocabularies` leaves out",
            'container "main": aliyun.com/gpu-mem belongs to the vocabulary gpushare, '
            "which this cluster does not serve; ask by the names of another vocabulary, "
            "such as volcano.sh/vgpu-memory, or ask the administrators to add gpushare "
            "to the setting vocabularies",
        ),
        Reason.SHARE_CLASS: ReasonText(
            "every suitable GPU is shared by pods of another QoS policy or application class",
            'container "main": shares a GPU as fixed-share; the closest is shared as best-effort; '
            "wait until other pods end",
        ),
        Reason.GROUP: ReasonText(
            "the group of the pod has no room in one dragonfly or switchbox, or the room that is "
            "free there is reserved for another group",
            'node "n1": needs 32 GPUs for 4 pods of its group in one dragonfly or switchbox; the '
            'most free and not reserved is 24, in switchbox "sb2"',
        ),
        Reason.EPHEMERAL: ReasonText(
            "a debug container asks for a GPU",
            'ephemeral container "debug": an ephemeral container cannot ask for GPUs; '
            "remove its resources",
        ),
        Reason.INCOMPLETE: ReasonText(
            "a later webhook removed part of the injection",
            "pod: the vGPU injection is incomplete at /spec/containers/0/env/-; keep "
            "later webhooks from removing what vgpu-admission adds, then recreate the "
            "pod",
        ),
        Reason.UNREADABLE: ReasonText(
            "the object is not a pod, or has too many parts (limits: 512 containers; "
            "4,096 variables or mounts of one container)",
            "pod: the object cannot be read: object is a 'apps/Deployment'; expected a pod",
        ),
    }
)
HAMI_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CardInsufficientMemory": Reason.MEMORY_SHORT,
        "CardInsufficientCore": Reason.CORES_SHORT,
        "CardMigTopologyInfeasible": Reason.NO_GEOMETRY,
        "CardTypeMismatch": Reason.MODEL_UNAVAILABLE,
        "ModeNotFit": Reason.MODE_UNAVAILABLE,
        "CardTimeSlicingExhausted": Reason.SHARES_SHORT,
        "CardQosPolicyMismatch": Reason.SHARE_CLASS,
        "CardAppClassMismatch": Reason.SHARE_CLASS,
        "CardNotHealth": Reason.UNHEALTHY,
    }
)
