"""Certificates of callers: whose, and by which authority."""

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from console.access.client_certificate import (
    common_name,
    identity_of_certificate,
    is_issued_by,
    read_certificate,
)
from console.access.identity import UserIdentity
from tests.fakes.pki import Authority

CLUSTER, PROXIES = Authority("cluster"), Authority("proxies")
NOW = dt.datetime.now(dt.UTC)
HOUR = dt.timedelta(hours=1)


def of(authority: Authority, name: str = "amy") -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority.issue(name).certificate)


def named(*attributes: tuple[x509.ObjectIdentifier, str], usage: object = None) -> x509.Certificate:
    """Return a certificate that nobody of ours signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - HOUR)
        .not_valid_after(NOW + HOUR)
    )
    if usage is not None:
        assert isinstance(usage, x509.ObjectIdentifier)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return builder.sign(key, hashes.SHA256())


def signed(
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
    *,
    since: dt.datetime = NOW - HOUR,
    until: dt.datetime = NOW + HOUR,
    usage: x509.ExtensionType | None = None,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return a certificate, signed by *issuer* or by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "amy")])
    issuer_name, issuer_key = issuer or (subject, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(since)
        .not_valid_after(until)
    )
    if usage is not None:
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()), key


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


CN, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME


def test_only_its_own_authority_issued_it() -> None:
    """A proxy's certificate makes nobody a user, and a user's nobody a proxy."""
    authorities = {
        name: each.certificate.decode() for name, each in (("c", CLUSTER), ("p", PROXIES))
    }
    leaf = of(CLUSTER)

    assert is_issued_by(leaf, authorities["c"], NOW)
    assert is_issued_by(leaf, authorities["p"] + authorities["c"], NOW)
    assert not is_issued_by(leaf, authorities["p"], NOW)
    assert not is_issued_by(leaf, "", NOW)
    assert not is_issued_by(leaf, "no pem", NOW)


def test_an_authority_of_the_same_name_is_another() -> None:
    """The signature decides."""
    assert not is_issued_by(of(CLUSTER), Authority("cluster").certificate.decode(), NOW)


def test_a_certificate_ends_while_its_connection_goes_on() -> None:
    """So does an authority."""
    text = CLUSTER.certificate.decode()

    assert not is_issued_by(of(CLUSTER), text, NOW + 2 * HOUR)
    assert not is_issued_by(of(CLUSTER), text, NOW - 2 * HOUR)


LONG, SHORT = 100 * HOUR, HOUR


@pytest.mark.parametrize(
    ("of_authority", "of_leaf"),
    [pytest.param(LONG, SHORT, id="the-leaf"), pytest.param(SHORT, LONG, id="the-authority")],
)
def test_each_of_both_must_be_valid(of_authority: dt.timedelta, of_leaf: dt.timedelta) -> None:
    """A leaf under a long authority, and an old authority under a leaf that outlives it."""
    moment = NOW.replace(microsecond=0)
    authority, key = signed(since=moment - of_authority, until=moment + of_authority)
    issuer = (authority.subject, key)
    leaf, _ = signed(issuer, since=moment - of_leaf, until=moment + of_leaf)

    def good(at: dt.datetime) -> bool:
        return is_issued_by(leaf, pem(authority), at)

    second = dt.timedelta(seconds=1)
    assert good(moment - SHORT)  # the first and the last moment belong to the time of validity
    assert good(moment + SHORT)
    assert not good(moment - SHORT - second)
    assert not good(moment + SHORT + second)


def test_a_purpose_that_cannot_be_read_is_none() -> None:
    """What a certificate is for is not guessed."""
    leaf, _ = signed(usage=x509.UnrecognizedExtension(x509.ExtendedKeyUsage.oid, b"\xff\x00"))

    assert not is_issued_by(leaf, pem(leaf), NOW)


@pytest.mark.parametrize(
    ("usage", "good"),
    [
        (None, True),
        (ExtendedKeyUsageOID.CLIENT_AUTH, True),
        (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE, True),
        (ExtendedKeyUsageOID.SERVER_AUTH, False),
    ],
)
def test_a_certificate_of_a_server_is_no_user(usage: object, *, good: bool) -> None:
    """Kubelets have such, for example."""
    leaf = named((CN, "amy"), usage=usage)

    assert is_issued_by(leaf, pem(leaf), NOW) is good


def test_user_and_groups_stand_in_the_subject() -> None:
    """As the API server reads them."""
    leaf = named((CN, "amy"), (ORG, "team-a"), (ORG, "team-b"), (ORG, "team-a"))

    assert identity_of_certificate(leaf) == UserIdentity(
        user="amy", groups=("team-a", "team-b", "system:authenticated")
    )
    assert common_name(leaf) == "amy"


@pytest.mark.parametrize("names", [[], [(ORG, "team")], [(CN, "amy"), (CN, "root")]])
def test_without_one_name_it_is_nobody(names: list[tuple[x509.ObjectIdentifier, str]]) -> None:
    """Two names could be read in two ways."""
    leaf = named(*names)

    assert common_name(leaf) == ""
    assert identity_of_certificate(leaf) is None


@pytest.mark.parametrize("der", [None, b"", b"x", b"\x30\x80" * 100])
def test_what_is_no_certificate_is_none(der: bytes | None) -> None:
    """OpenSSL would not have taken it either."""
    assert read_certificate(der) is None


def test_a_certificate_is_read_as_it_was_shown() -> None:
    """In DER."""
    leaf = of(CLUSTER)

    assert read_certificate(leaf.public_bytes(Encoding.DER)) == leaf
