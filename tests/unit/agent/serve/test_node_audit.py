"""The certificate by which the console knows an agent: recorded when it is another one."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

from agent.serve.node_audit import ClientCertificateLog
from certs.issue import IssueParameters, Names
from certs.pem import certificates
from certs.refresh_controller import throwaway
from tests.harness.records import KeptRecords, writer

PARAMETERS = IssueParameters(names=Names(dns=("a",), addresses=(ip_address("127.0.0.1"),)))
ONE, OTHER = (throwaway(PARAMETERS)[1].certificate for _ in range(2))
END = certificates(ONE)[0].not_valid_after_utc
READ = "[Errno 2] No such file or directory: '/audit/certificates/tls.crt'"


class Log:
    """The log of a node at a time that a test sets."""

    def __init__(self, node: str = "gpu-1") -> None:
        self.kept = KeptRecords()
        self.time = datetime.now(UTC)
        self.log = ClientCertificateLog(node, writer(self.kept).write, now=lambda: self.time)


def test_each_certificate_is_recorded_once() -> None:
    """With its end and its node; an agent that starts again adds none."""
    first, again = Log(), Log()
    for look in (ONE, ONE, OTHER, OTHER):
        first.log.note(look)
    again.log.note(OTHER)

    one, other = first.kept
    assert one["node"] == "gpu-1"
    assert one["not_after"] == END.isoformat()
    assert one["text"].startswith("client certificate ")
    assert (one["kind"], one.get("done", True)) == ("certificate", True)
    assert again.kept[0]["id"] == other["id"] != one["id"]


def test_nodes_have_records_of_their_own() -> None:
    """All agents share a certificate; one that does not get the new one is worth knowing."""
    logs = [Log("gpu-1"), Log("gpu-2")]
    for one in logs:
        one.log.note(ONE)

    assert logs[0].kept[0]["id"] != logs[1].kept[0]["id"]


def test_a_fault_is_recorded_when_it_begins() -> None:
    """And again when it comes back."""
    node = Log()
    for look in (READ, READ, ONE, READ, b"", b"no pem", ONE):
        node.log.note(look)

    texts = [record["text"] for record in node.kept if record.get("done") is False]
    assert texts == [
        f"the client certificate cannot be read: {READ}",
        f"the client certificate cannot be read: {READ}",
        "the client certificate cannot be read: it holds no certificate, in PEM",
    ]


def test_one_that_ends_soon_is_told_once() -> None:
    """Nobody renewed it."""
    node = Log()
    node.log.note(ONE)
    node.time = END - timedelta(minutes=1)
    node.log.note(ONE)
    node.log.note(ONE)

    *_, last = node.kept
    assert len(node.kept) == 2
    assert last["text"] == f"the client certificate ends at {END.isoformat()} and was not renewed"


@pytest.mark.parametrize(
    "text",
    [
        *("\x1b[2J", "\x00", "a\nb", "\u202ex", "x" * 100_000, "\ud83d"),
        *(b"\x00" * 1000, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        *(b"\xff\xfe", ONE[:-30], b"-----BEGIN CERTIFICATE-----", b"<html>"),
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_a_file_of_whatever_content_is_one_fault(text: bytes | str) -> None:
    """Its text is cut, and harmless."""
    node = Log()

    node.log.note(text)

    (record,) = node.kept
    assert record["done"] is False
    assert record["text"].isprintable()
    assert len(record["text"]) < 1100
