"""Who may send which records: a webhook those of the control plane, an agent those of its node."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec

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
from console.access.identity import Identity
from console.receive.bounds import fault_of

NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"  # of a token: where its pod runs
AHEAD: Final = timedelta(minutes=5)  # how far the clock of a sender may be ahead of ours
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


def sender_of(identity: Identity, accounts: SenderAccounts) -> Sender | None:
    """Return which program *identity* is; ``None`` for everybody else.

    An agent without exactly one node in its token is nobody: its records could not be checked.
    """
    if identity.user == accounts.webhook:
        return Sender(component=Component.WEBHOOK)
    nodes = identity.values(NODE_CLAIM)
    if identity.user == accounts.agent and len(nodes) == 1 and nodes[0]:
        return Sender(component=Component.AGENT, node=nodes[0])
    return None


def rejection(record: AnyRecord, sender: Sender, now: datetime) -> str:
    """Return why *record* is not taken from *sender*; empty if it is."""
    tag = str(record.__struct_config__.tag)
    if record.component is not sender.component:
        return (
            f"component is {quote(record.component)}, but the sender is {quote(sender.component)}"
        )
    if type(record) not in KINDS[sender.component]:
        return f"kind is {quote(tag)}, of which {sender.component} sends none"
    if sender.component is Component.AGENT and record.node != sender.node:
        return f"node is {quote(record.node)}, but the token is of node {quote(sender.node)}"
    if _time(record.at) > now + AHEAD:
        return f"at is {quote(record.at)}, which is in the future"
    return fault_of(record)


def _time(at: str) -> datetime:
    """Return when a record was made, long ago where that cannot be read (``fault_of`` says so)."""
    try:
        return msgspec.convert(at, datetime).astimezone(UTC)
    except (msgspec.ValidationError, ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
