"""Records of certificates: which one is served, what was renewed, and what could not be."""

from typing import Final

from allocator.audit.record_source import content_id
from allocator.audit.record_writer import WriteRecord
from allocator.model.untrusted import inert
from certs.refresh_controller import Announce, CertificateReason, Notice
from certs.tls_server import ServingPair

LONGEST_TEXT: Final = 1000  # characters


def recording(announce: Announce, write_record: WriteRecord) -> Announce:
    """Return what announces a notice by *announce*, and records it."""

    def announce_and_record(notice: Notice) -> None:
        announce(notice)
        done = notice.reason is CertificateReason.RENEWED
        write_record("certificate", {"text": inert(notice.note[:LONGEST_TEXT]), "done": done})

    return announce_and_record


def record_serving(pair: ServingPair, write_record: WriteRecord) -> None:
    """Record that *pair* is served from now on: once, whichever replica loads it first."""
    until = pair.not_after
    if pair.fingerprint is None or until is None:
        return
    fields = {
        "text": f"serving certificate {pair.fingerprint[:16]} is in use",
        "not_after": until.isoformat(),
    }
    write_record("certificate", fields, record_id=content_id("certificate", pair.fingerprint))
