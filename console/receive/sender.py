"""Who may send which records: a webhook those of the control plane, an agent those of its node."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from allocator.audit.record import (
    AdmissionRecord,
    AllocatedRecord,
    AnyRecord,
    BindRecord,
    CertificateRecord,
    Component,
    EvictedRecord,
    HealthRecord,
    LateCommitRecord,
    ReconfiguredRecord,
    Record,
    ReleasedRecord,
    SettingsRecord,
    SnapshotRecord,
    StartedRecord,
    StartRefusedRecord,
    ViolationRecord,
    WaitingRecord,
    WorkloadRecord,
)
from allocator.model.untrusted import quote
from console.access.identity import UserIdentity
from console.records.bounds import value_fault
from console.records.limits import record_defect

_MOST_NODES: Final = 2  # that a rejection names
NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"  # of a token: where its pod runs
KINDS: Final[Mapping[Component, frozenset[type[Record]]]] = MappingProxyType(
    {
        Component.WEBHOOK: frozenset(
            {
                AdmissionRecord,
                BindRecord,
                LateCommitRecord,
                ReleasedRecord,
                WaitingRecord,
                SettingsRecord,
                CertificateRecord,
                WorkloadRecord,
                SnapshotRecord,
                EvictedRecord,
            }
        ),
        Component.AGENT: frozenset(
            {
                AllocatedRecord,
                StartedRecord,
                StartRefusedRecord,
                ReconfiguredRecord,
                ViolationRecord,
                EvictedRecord,
                HealthRecord,
                CertificateRecord,
            }
        ),
    }
)


# Returns on which nodes pods are known to be, by uid; leaves out of which it knows nothing. Reads
# the store, so it may take a while, and raises StoreError.
PodNodes = Callable[[Collection[str]], Mapping[str, Collection[str]]]


def no_pod_nodes(_pod_uids: Collection[str], /) -> Mapping[str, Collection[str]]:
    """Return what is known of pods where nobody follows them: nothing."""
    return {}


def known_nodes(
    pod_uids: Collection[str], *, live: Callable[[str], str], bound: PodNodes
) -> Mapping[str, Collection[str]]:
    """Return on which nodes pods are known to be: by *live*, otherwise by *bound*.

    *live* returns the node that the cluster has for a pod now, or an empty text. Records of binds
    may name several nodes, because a bind may fail after it was promised.
    """
    found = {uid: (node,) for uid in pod_uids if (node := live(uid))}
    return {**bound([uid for uid in pod_uids if uid not in found]), **found}


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderAccounts:
    """The user names of the service accounts that may send."""

    webhook: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A program that sends records; an agent's ``node`` is that of its token."""

    component: Component
    node: str = ""

    @property
    def text(self) -> str:
        """Return how it was authenticated, in words, for the record."""
        place = f" of node {self.node}" if self.node else ""
        return f"{self.component}{place}, by certificate and token"


def sender_of(identity: UserIdentity, accounts: SenderAccounts) -> Sender | None:
    """Return which program *identity* is; ``None`` for everybody else.

    An agent without exactly one node in its token is nobody: its records could not be checked.
    """
    if identity.user == accounts.webhook:
        return Sender(component=Component.WEBHOOK)
    nodes = identity.values(NODE_CLAIM)
    if identity.user == accounts.agent and len(nodes) == 1 and nodes[0]:
        return Sender(component=Component.AGENT, node=nodes[0])
    return None


def rejection(record: AnyRecord, sender: Sender, now: int) -> str:
    """Return why *record* is not taken from *sender*; empty if it is.

    *now* is the time in milliseconds since 1970.
    """
    tag = str(record.__struct_config__.tag)
    if record.component is not sender.component:
        return (
            f"component is {quote(record.component)}, but the sender is {quote(sender.component)}"
        )
    if type(record) not in KINDS[sender.component]:
        return f"kind is {quote(tag)}, of which {sender.component} sends none"
    if sender.component is Component.AGENT and record.node != sender.node:
        return f"node is {quote(record.node)}, but the token is of node {quote(sender.node)}"
    return record_defect(record, now) or value_fault(record)


def foreign_pod(record: AnyRecord, sender: Sender, nodes: Collection[str] | None) -> str:
    """Return why an agent has no say about the pod of *record*; empty if it has.

    *nodes* are those that the pod is known to be on, ``None`` where nothing is known.
    """
    if sender.component is not Component.AGENT or nodes is None or sender.node in nodes:
        return ""
    known = ", ".join(quote(node) for node in sorted(nodes)[:_MOST_NODES])
    return (
        f"pod {quote(record.pod_uid)} is on node {known}, but the token is of node"
        f" {quote(sender.node)}"
    )
