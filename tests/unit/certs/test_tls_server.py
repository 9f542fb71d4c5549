"""Which pair a server ends up with."""

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certs.check import PairFault
from certs.issue import authority, leaf
from certs.pem import Pair, certificates, certificates_pem, fingerprint
from certs.rotation_controller import new_key_material
from certs.rotation_policy import DEFAULT
from certs.tls_server import ServingPair
from tests.fakes.certificates import LIFETIMES, POLICY, START, Time

CA = authority(DEFAULT, new_key_material(START))


def pair_at(moment: timedelta) -> Pair:
    return leaf(CA, POLICY, new_key_material(START + moment)).pair


def serving(time: Time) -> ServingPair:
    return ServingPair(now=lambda: time.wall)


NOW = pair_at(timedelta())
LATER = pair_at(timedelta(seconds=5))
AHEAD = pair_at(timedelta(days=1))


def shown(pair: Pair) -> str:
    return fingerprint(certificates(pair.certificate)[0])


def test_nothing_is_served_at_first() -> None:
    """A server that was given nothing is not ready and knows no dates."""
    empty = serving(Time())

    assert not empty.ready
    assert (empty.fingerprint, empty.not_after) == (None, None)


def test_a_good_pair_is_served() -> None:
    """It is ready, and tells its end for metrics and people."""
    served = serving(Time())

    pair_findings = served.load(NOW)

    assert pair_findings == ()
    assert served.ready
    assert served.fingerprint == shown(NOW)
    assert served.not_after == START + LIFETIMES.leaf


@pytest.mark.parametrize(
    ("offered", "fault"),
    [
        pytest.param(replace(NOW, key=LATER.key), PairFault.MISMATCH, id="mismatch"),
        pytest.param(replace(NOW, certificate=b""), PairFault.UNREADABLE, id="truncated"),
        pytest.param(AHEAD, PairFault.EARLY, id="not-yet-valid"),
        pytest.param(pair_at(-timedelta(hours=1)), PairFault.EXPIRED, id="expired"),
    ],
)
def test_a_worse_pair_does_not_replace_a_good_one(offered: Pair, fault: PairFault) -> None:
    """The one that works stays, and what is wrong is told."""
    served = serving(Time())
    served.load(NOW)

    pair_findings = served.load(offered)

    assert [item.fault for item in pair_findings] == [fault]
    assert served.ready
    assert served.fingerprint == shown(NOW)


def test_a_pair_of_the_wrong_time_is_better_than_none() -> None:
    """Clocks heal: it is served, but the server is not ready until the time is right."""
    time = Time()
    served = serving(time)

    pair_findings = served.load(AHEAD)
    before = served.ready
    time.jumped += timedelta(days=1)

    assert [item.fault for item in pair_findings] == [PairFault.EARLY]
    assert (before, served.ready) == (False, True)


def test_an_expired_pair_makes_the_server_unready_until_the_next() -> None:
    """Readiness is about what is loaded now, by the wall clock."""
    time = Time()
    served = serving(time)
    served.load(NOW)
    states = [served.ready]

    time.jumped += LIFETIMES.leaf + timedelta(seconds=1)
    states.append(served.ready)
    served.load(LATER)
    states.append(served.ready)

    assert states == [True, False, True]


def test_the_context_given_to_the_server_never_changes() -> None:
    """Servers take it once, at start."""
    served = serving(Time())
    context = served.context

    served.load(NOW)
    served.load(LATER)

    assert served.context is context
    assert served.fingerprint == shown(LATER)


def test_a_key_that_openssl_refuses_is_a_finding() -> None:
    """Not every pair that matches may be served; the present one stays."""
    weak = rsa.generate_private_key(65537, 1024)  # noqa: S505 - its weakness is the point
    name = x509.Name([])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(weak.public_key())
        .serial_number(1)
        .not_valid_before(START)
        .not_valid_after(START + timedelta(days=1))
        .sign(weak, hashes.SHA256())
    )
    key = weak.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    served = serving(Time())
    served.load(NOW)

    pair_findings = served.load(Pair(certificate=certificates_pem(certificate), key=key))

    assert [item.fault for item in pair_findings] == [PairFault.UNREADABLE]
    assert served.fingerprint == shown(NOW)


BUNDLE = certificates_pem(CA.certificate)


@pytest.mark.parametrize("authorities", [b"", b"no PEM", BUNDLE[:-40]], ids=["none", "text", "cut"])
def test_without_authorities_no_caller_is_served(authorities: bytes) -> None:
    """A pair that serves known callers alone is not loaded while nobody could be known."""
    served = ServingPair(now=lambda: START, client_ca=authorities.decode, mutual=True)

    (finding,) = served.load(NOW)

    assert finding.fault is PairFault.UNREADABLE
    assert not served.ready


def test_authorities_that_are_lost_do_not_replace_those_there_were() -> None:
    """The pair stays as well: both are loaded together."""
    known = [BUNDLE.decode()]
    served = ServingPair(now=lambda: START, client_ca=lambda: known[-1], mutual=True)
    served.load(NOW)

    known.append("")
    served.load(LATER)

    assert served.fingerprint == shown(NOW)
