"""Rows that only roles decide: what each account may ask for at all."""

from typing import Final

from manifests.generator.names import NAMESPACE
from tests.authorization.rows import (
    FALSE_AGENT,
    FALSE_WEBHOOK,
    KUBE_SCHEDULER,
    OUR_SCHEDULER,
    OWN,
    RBAC,
    READER,
    STRANGER,
    TENANT,
    WEBHOOK,
    roles,
)

AGENTS_ROLES: Final = (
    *roles(
        OWN,
        (),
        f"""
        get,list,watch nodes gpu-1
        get,list,watch pods
        get,list,watch gpunodes gpu-1
        get,list,watch configmaps {NAMESPACE}/vgpu-admission-settings
        get,list,watch configmaps kube-system/volcano-vgpu-node-config
        get,list,watch configmaps kube-system/volcano-vgpu-device-config
        """,
    ),
    *roles(
        OWN,
        (RBAC,),
        f"""
        list secrets
        get secrets {NAMESPACE}/vgpu-webhook-certificates
        get secrets {NAMESPACE}/vgpu-webhook-paths
        list configmaps
        list configmaps {NAMESPACE}/
        get configmaps kube-system/extension-apiserver-authentication
        patch configmaps {NAMESPACE}/vgpu-admission-settings
        create nodes
        update nodes gpu-1
        delete nodes gpu-1
        update nodes/status gpu-1
        get nodes/proxy gpu-1
        create gpunodes
        update gpunodes/status gpu-1
        delete gpunodes gpu-1
        deletecollection gpunodes
        create pods team/
        update pods team/bound
        delete pods team/bound
        deletecollection pods team/
        create pods/eviction team/bound
        create pods/exec team/bound
        create pods/binding team/waiting
        patch pods/status team/bound
        patch pods/ephemeralcontainers team/bound
        patch pods/resize team/bound
        create serviceaccounts/token vgpu-admission-agents/vgpu-agent
        impersonate users
        impersonate userextras
        patch namespaces team
        patch validatingadmissionpolicies agents-nodes.vgpu-admission.io
        patch mutatingadmissionpolicies hiding.vgpu-admission.io
        delete validatingadmissionpolicybindings agents-nodes.vgpu-admission.io
        patch customresourcedefinitions gpunodes.vgpu-admission.io
        patch daemonsets vgpu-admission-agents/vgpu-agent
        create clusterrolebindings
        escalate clusterroles vgpu-agent
        """,
    ),
    *roles(OWN, (), "create pods/eviction team/bound", installed="evict"),
)

WEBHOOKS_ROLES: Final = (
    *roles(
        WEBHOOK,
        (),
        f"""
        get,list,watch nodes
        get,list,watch namespaces
        get,list,watch pods
        get,list,watch gpunodes
        get podgroups team/gang
        create leases {NAMESPACE}/
        get,patch leases {NAMESPACE}/vgpu-ledger
        get,patch leases {NAMESPACE}/vgpu-certificates
        create secrets {NAMESPACE}/
        get,patch secrets {NAMESPACE}/vgpu-webhook-certificates
        get,patch secrets {NAMESPACE}/vgpu-webhook-paths
        get,list,watch configmaps {NAMESPACE}/vgpu-admission-settings
        get,list,watch configmaps kube-system/volcano-vgpu-device-config
        get,list,watch configmaps kube-system/volcano-vgpu-node-config
        get,list,watch configmaps metax-operator/metax-device-config
        get,patch mutatingwebhookconfigurations vgpu-admission
        get,patch validatingwebhookconfigurations vgpu-admission
        get validatingadmissionpolicies hidden.vgpu-admission.io
        get validatingadmissionpolicies unlabelled.vgpu-admission.io
        create,patch mutatingadmissionpolicies hiding.vgpu-admission.io
        create,patch mutatingadmissionpolicybindings hiding.vgpu-admission.io
        create,patch events team/
        """,
    ),
    *roles(
        WEBHOOK,
        (RBAC,),
        f"""
        list secrets
        list secrets {NAMESPACE}/
        get secrets kube-system/bootstrap-token
        get,patch secrets {NAMESPACE}/another
        get,patch leases {NAMESPACE}/another
        get,list configmaps {NAMESPACE}/another
        get configmaps kube-system/kubeadm-config
        patch mutatingwebhookconfigurations another
        create mutatingadmissionpolicies
        create,patch mutatingadmissionpolicies another
        create,patch mutatingadmissionpolicybindings another
        update,delete mutatingadmissionpolicies hiding.vgpu-admission.io
        update,delete mutatingadmissionpolicybindings hiding.vgpu-admission.io
        create,delete validatingwebhookconfigurations
        delete secrets {NAMESPACE}/vgpu-webhook-certificates
        patch configmaps {NAMESPACE}/vgpu-admission-settings
        delete nodes gpu-1
        patch nodes/status gpu-1
        update gpunodes gpu-1
        deletecollection gpunodes
        create pods team/
        delete pods team/bound
        patch pods/status team/bound
        patch pods/ephemeralcontainers team/bound
        create pods/binding team/waiting
        create pods/exec team/bound
        create serviceaccounts/token vgpu-admission-agents/vgpu-agent
        impersonate users
        patch namespaces team
        get validatingadmissionpolicies frozen.vgpu-admission.io
        patch,delete validatingadmissionpolicies hidden.vgpu-admission.io
        patch validatingadmissionpolicies frozen.vgpu-admission.io
        delete validatingadmissionpolicybindings frozen.vgpu-admission.io
        create rolebindings team/
        bind clusterroles vgpu-webhook
        """,
    ),
    *roles(
        WEBHOOK,
        (),
        f"""
        create pods/binding team/waiting
        get,patch secrets {NAMESPACE}/vgpu-extender-client
        """,
        installed="extender",
    ),
    *roles(
        WEBHOOK,
        (RBAC,),
        f"""
        create bindings team/
        update pods/status team/bound
        delete secrets {NAMESPACE}/vgpu-extender-client
        """,
        installed="extender",
    ),
    *roles(
        WEBHOOK,
        (),
        f"""
        get,patch secrets {NAMESPACE}/vgpu-audit-client
        get,patch secrets {NAMESPACE}/vgpu-console-tls
        get,patch secrets vgpu-admission-agents/vgpu-audit-client
        """,
        installed="records",
    ),
    *roles(
        WEBHOOK,
        (RBAC,),
        f"""
        delete secrets {NAMESPACE}/vgpu-audit-client
        list secrets vgpu-admission-agents/
        create secrets vgpu-admission-agents/
        get,patch secrets vgpu-admission-agents/another
        get secrets {NAMESPACE}/vgpu-console-session
        """,
        installed="records",
    ),
)

OTHERS_ROLES: Final = (
    *roles(
        READER,
        (),
        f"""
        get,list gpunodes
        get,list nodes
        get namespaces team
        get configmaps {NAMESPACE}/vgpu-admission-settings
        get configmaps kube-system/volcano-vgpu-device-config
        """,
    ),
    *roles(
        READER,
        (RBAC,),
        """
        watch gpunodes
        patch gpunodes gpu-1
        patch gpunodes/status gpu-1
        list configmaps kube-system/
        get configmaps kube-system/kubeadm-config
        list secrets
        patch nodes gpu-1
        """,
    ),
    *roles(
        OUR_SCHEDULER,
        (),
        f"""
        get,list,watch gpunodes
        get,list,watch pods
        get,list,watch nodes
        get,list,watch namespaces
        create pods/binding team/waiting
        create,patch events team/
        create leases {NAMESPACE}/
        get,update leases {NAMESPACE}/vgpu-scheduler
        get,list,watch configmaps {NAMESPACE}/vgpu-admission-settings
        get,list,watch configmaps kube-system/volcano-vgpu-device-config
        get,list,watch configmaps kube-system/volcano-vgpu-node-config
        get,list,watch configmaps metax-operator/metax-device-config
        """,
        installed="kube-scheduler",
    ),
    *roles(
        OUR_SCHEDULER,
        (RBAC,),
        f"""
        patch gpunodes gpu-1
        patch gpunodes/status gpu-1
        patch nodes gpu-1
        patch pods team/waiting
        patch,update leases {NAMESPACE}/vgpu-ledger
        get secrets {NAMESPACE}/vgpu-webhook-certificates
        get secrets {NAMESPACE}/vgpu-webhook-paths
        """,
        installed="kube-scheduler",
    ),
    *roles(
        STRANGER,
        (RBAC,),
        """
        get gpunodes gpu-1
        patch gpunodes/status gpu-1
        create events team/
        """,
    ),
    *roles(TENANT, (RBAC,), "list gpunodes\npatch gpunodes/status gpu-1\npatch namespaces team"),
    *roles(FALSE_AGENT, (RBAC,), "patch gpunodes/status gpu-1\npatch nodes gpu-1"),
    *roles(FALSE_WEBHOOK, (RBAC,), "patch gpunodes gpu-1\npatch nodes gpu-1"),
    *roles(KUBE_SCHEDULER, (RBAC,), "patch gpunodes gpu-1\npatch pods team/waiting"),
)


ROLES: Final = (*AGENTS_ROLES, *WEBHOOKS_ROLES, *OTHERS_ROLES)
