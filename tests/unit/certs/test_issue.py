"""What our certificates look like to those who verify them."""

from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.issue import authority, client, leaf, service_names
from certs.pem import Pair
from certs.rotation_controller import new_key_material
from tests.fakes.certificates import LIFETIMES, POLICY, START

CA = authority(LIFETIMES, new_key_material(START))
LEAF = leaf(CA, POLICY, new_key_material(START)).certificate


@pytest.mark.parametrize("name", POLICY.names.dns)
def test_an_independent_verifier_accepts_every_name_of_the_service(name: str) -> None:
    """The rules of the web's public key infrastructure hold for our chain."""
    store = verification.Store([CA.certificate])
    verifier = verification.PolicyBuilder().store(store).time(START)

    chain = verifier.build_server_verifier(x509.DNSName(name)).verify(LEAF, [])

    assert chain == [LEAF, CA.certificate]


def test_a_client_is_known_and_serves_nobody() -> None:
    """And a serving certificate makes nobody known, though one authority signs both."""
    made = client(CA, "scheduler", new_key_material(START)).certificate
    store = verification.Store([CA.certificate])
    servers = verification.PolicyBuilder().store(store).time(START)

    usages = [
        list(each.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        for each in (made, LEAF)
    ]

    assert usages == [[ExtendedKeyUsageOID.CLIENT_AUTH], [ExtendedKeyUsageOID.SERVER_AUTH]]
    made.verify_directly_issued_by(CA.certificate)
    with pytest.raises(verification.VerificationError):
        servers.build_server_verifier(x509.DNSName("scheduler")).verify(made, [])


def test_a_client_lives_as_long_as_its_issuer() -> None:
    """Who holds it must fetch another one when the authority changes, and at no other time."""
    made = client(CA, "scheduler", new_key_material(START), lifetimes=LIFETIMES).certificate

    assert made.not_valid_before_utc == START - LIFETIMES.skew
    assert made.not_valid_after_utc == CA.certificate.not_valid_after_utc


def test_a_service_has_four_names() -> None:
    """From the shortest that resolves in the namespace to the longest."""
    names = service_names("hook", "gpu")

    assert sorted(names.dns, key=len) == [
        "hook",
        "hook.gpu",
        "hook.gpu.svc",
        "hook.gpu.svc.cluster.local",
    ]


def test_addresses_are_names_too() -> None:
    """A demonstration is called by its loopback address."""
    names = replace(POLICY.names, addresses=(ip_address("127.0.0.1"),))

    made = leaf(CA, replace(POLICY, names=names), new_key_material(START)).certificate

    held = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert held.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1")]


def test_certificates_start_early_and_a_leaf_ends_with_its_issuer() -> None:
    """Clocks that are behind accept it at once, and nothing outlives what signed it."""
    late = new_key_material(START + LIFETIMES.ca - timedelta(seconds=1))

    last = leaf(CA, POLICY, late).certificate

    assert LEAF.not_valid_before_utc == START - LIFETIMES.skew
    assert LEAF.not_valid_after_utc == START + LIFETIMES.leaf
    assert last.not_valid_after_utc == CA.certificate.not_valid_after_utc


def test_two_authorities_share_neither_name_nor_serial_number() -> None:
    """A verifier that holds both must not take one for the other."""
    other = authority(LIFETIMES, new_key_material(START)).certificate

    assert other.subject != CA.certificate.subject
    assert other.serial_number != CA.certificate.serial_number


def test_a_long_service_name_still_makes_a_certificate() -> None:
    """The subject is cut to what X.509 allows; the names that count are not."""
    names = service_names("w" * 63, "n" * 63)

    made = leaf(CA, replace(POLICY, names=names), new_key_material(START)).certificate

    assert len(made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value) == 64


def test_a_key_is_not_shown() -> None:
    """A pair in a log or a traceback gives nothing away."""
    assert "PRIVATE" not in repr(CA.pair)
    assert isinstance(CA.pair, Pair)
