"""Annotation, label and taint keys, and who may write each."""

from typing import Final

from allocator.catalog.vocabularies import OWN

OPT_IN_LABEL: Final = f"{OWN}inject"  # of namespaces whose pods are ours to decide
OPT_IN_VALUE: Final = "enabled"
DECISION_KEY: Final = f"{OWN}decision"
ASKED_KEY: Final = f"{OWN}asked"
# Named by people where their vocabulary has no key for it; admission writes there what it chose.
MODE_KEY: Final = f"{OWN}mode"
MODE_SOURCE_KEY: Final = f"{OWN}mode-source"
SERVED_BY_KEY: Final = f"{OWN}served-by"
ASSIGNMENT_KEY: Final = f"{OWN}assignment"
PROFILE_KEY: Final = f"{OWN}mig-profile"
HINT_KEY: Final = f"{OWN}hint"  # the node that we have last nominated a pod to, as a hint
NODE_POLICY_KEY: Final = f"{OWN}node-policy"
GPU_POLICY_KEY: Final = f"{OWN}gpu-policy"
ISOLATE_KEY: Final = f"{OWN}isolate"
# "off": containers whose every grant is a whole GPU run without the interception library.
LIBRARY_KEY: Final = f"{OWN}library"
LIBRARY_OFF: Final = "off"
PRIORITY_KEY: Final = f"{OWN}task-priority"
# On a Node whose Volcano register shows less than the node has.
REGISTER_KEY: Final = f"{OWN}register"
# On a Node that we registered with HAMi's scheduler: the digest of that register.
HAMI_REGISTER_KEY: Final = f"{OWN}hami-register"
# On a namespace: its pods may use priority high, which holds back the kernels of others.
HIGH_KEY: Final = f"{OWN}high-priority"
HIGH_ALLOWED: Final = "allow"
# On a namespace: which mode wins where several can serve, and the weakest mode that is admitted.
PREFER_KEY: Final = f"{OWN}prefer"
MIN_ISOLATION_KEY: Final = f"{OWN}min-isolation"
# Label by which a pod leaves HAMi's webhook out. Nobody leaves ours out.
HAMI_WEBHOOK_LABEL: Final = "hami.io/webhook"
# What a person may write on a pod under our prefix.
USER_KEYS: Final = frozenset(
    {
        MODE_KEY,
        PROFILE_KEY,
        ISOLATE_KEY,
        LIBRARY_KEY,
        NODE_POLICY_KEY,
        GPU_POLICY_KEY,
        PRIORITY_KEY,
    }
)
# What admission writes; forged ones are overwritten.
ADMISSION_KEYS: Final = frozenset({DECISION_KEY, ASKED_KEY, MODE_SOURCE_KEY})
# Volcano's six and MetaX's two, written by a scheduler or on the Binding.
ALLOCATION_KEYS: Final = frozenset(
    {
        "volcano.sh/vgpu-node",
        "volcano.sh/vgpu-time",
        "volcano.sh/vgpu-ids-new",
        "volcano.sh/devices-to-allocate",
        "volcano.sh/bind-time",
        "volcano.sh/bind-phase",
        "metax-tech.com/gpu-devices-allocated",
        "metax-tech.com/predicate-time",
    }
)
# Volcano's, since 1.15: pods of one PodGroup share no GPU. Its scheduler checks that, see
# allocator/volcano/device_list.py.
GROUP_POLICY_KEY: Final = "volcano.sh/vgpu-podgroup-policy"
# Volcano's names for a pod's PodGroup; the first that is there counts.
POD_GROUP_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
# MetaX's, on any pod of a job: how many GPUs of it must be in one dragonfly or switchbox.
GROUP_SIZE_KEY: Final = "metax-tech.com/gpu-group-size"
GROUP_LABEL: Final = f"{OWN}group"  # on pods of a Volcano job with several groups: its number
CDI_PREFIX: Final = "cdi.k8s.io/"
AGENT_LABEL: Final = f"{OWN}agent"  # set by our agent on its Node, with its version
SIMULATED_LABEL: Final = f"{OWN}simulated"  # "true" on a Node whose MetaX GPUs our agent simulates
CAPACITY_KEY: Final = f"{OWN}capacity"  # annotation: the resources whose capacity an agent wrote
# On our ValidatingWebhookConfiguration, where a policy reads it: what only our agents offer.
SOLE_KEY: Final = f"{OWN}sole-resources"
NOT_READY_TAINT: Final = f"{OWN}agent-not-ready"  # put on new nodes, taken off by their agent
