"""Records of certificates: renewed, not renewed, and which one is served."""

from ipaddress import ip_address

import pytest

from certs.issue import IssueParameters, Names
from certs.refresh_controller import CertificateReason, Notice, throwaway
from certs.tls_server import ServingPair
from tests.harness.records import KeptRecords, writer
from webhook.records.certificate_log import record_serving, recording


@pytest.mark.parametrize("reason", CertificateReason)
def test_what_is_announced_is_recorded(reason: CertificateReason) -> None:
    """With the same words; only what was renewed is done."""
    announced: list[Notice] = []
    kept = KeptRecords()
    notice = Notice(reason, "the serving certificate\x1b[2J was renewed")

    recording(announced.append, writer(kept).write)(notice)

    (record,) = kept
    assert announced == [notice]
    assert record["done"] is (reason is CertificateReason.RENEWED)
    assert record["text"] == "the serving certificate\ufffd[2J was renewed"


def test_a_served_certificate_is_stored_once() -> None:
    """Whichever replicas load it; one that serves nothing yet records nothing."""
    kept, pairs = KeptRecords(), [ServingPair(), ServingPair(), ServingPair()]
    parameters = IssueParameters(names=Names(dns=("w",), addresses=(ip_address("127.0.0.1"),)))
    (_, one), (_, other) = throwaway(parameters), throwaway(parameters)
    for serving, pair in zip(pairs, (one, one, other), strict=True):
        record_serving(serving, writer(kept).write)
        serving.load(pair)
        record_serving(serving, writer(kept).write)

    first, second, third = kept
    assert first["id"] == second["id"] != third["id"]
    assert pairs[0].not_after is not None
    assert first["not_after"] == pairs[0].not_after.isoformat()
