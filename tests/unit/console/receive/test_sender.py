"""Who may send what, without a port: the cases that the port's own tests do not reach."""

from typing import get_args

import pytest

from allocator.audit.record import (
    AnyRecord,
    BindRecord,
    BindVerdict,
    CertificateRecord,
    Component,
    EvictedRecord,
    parse_record,
)
from console.access.identity import UserIdentity
from console.receive.sender import (
    KINDS,
    NODE_CLAIM,
    Sender,
    SenderAccounts,
    foreign_pod,
    rejection,
    sender_of,
)
from tests.builders.sent_records import body_of, started

ACCOUNTS = SenderAccounts(webhook="webhook", agent="agent")
WEBHOOK = Sender(component=Component.WEBHOOK)
AGENT = Sender(component=Component.AGENT, node="n1")
AT = "2026-11-18T11:46:40.000Z"
NOW = 1_795_002_400_000  # milliseconds since 1970, the same moment


@pytest.mark.parametrize("nodes", [(), ("",), ("n1", "n2"), ("", "n1")])
def test_an_agent_whose_node_is_not_known_is_nobody(nodes: tuple[str, ...]) -> None:
    """Its records could not be checked."""
    identity = UserIdentity(user="agent", extra=((NODE_CLAIM, nodes),))
    assert sender_of(identity, ACCOUNTS) is None


def test_a_token_of_a_node_makes_no_agent_of_others() -> None:
    """Every pod has such a token."""
    identity = UserIdentity(user="job", extra=((NODE_CLAIM, ("n1",)),))
    assert sender_of(identity, ACCOUNTS) is None


def test_every_kind_is_sent_by_somebody() -> None:
    """Both evict pods and renew certificates; all else is one sender's own."""
    webhook, agent = KINDS[Component.WEBHOOK], KINDS[Component.AGENT]
    assert webhook | agent == set(get_args(AnyRecord))
    assert webhook & agent == {EvictedRecord, CertificateRecord}


def test_the_webhook_writes_about_every_node() -> None:
    """It has none of its own."""
    record = BindRecord(
        id="0" * 32,
        at=AT,
        component=Component.WEBHOOK,
        node="n7",
        namespace="a",
        pod="train",
        outcome=BindVerdict.PROMISED,
    )
    assert rejection(record, WEBHOOK, NOW) == ""


def test_the_webhook_knows_of_pods_wherever_they_are() -> None:
    """What an agent must not say about a pod of another node, it may."""
    record = parse_record(body_of([started(node="n1", pod_uid="u")]).strip())
    assert foreign_pod(record, WEBHOOK, ("n2",)) == ""
    assert foreign_pod(record, AGENT, None) == ""
    assert foreign_pod(record, AGENT, ("n2", "n1")) == ""


def test_the_nodes_of_a_pod_are_named_in_order_and_not_all() -> None:
    """A pod may have promises on many."""
    record = parse_record(body_of([started(node="n1", pod_uid="u")]).strip())
    assert foreign_pod(record, AGENT, ("n4", "n3", "n2")) == (
        'pod "u" is on node "n2", "n3", but the token is of node "n1"'
    )
    assert foreign_pod(record, AGENT, ()) != ""
