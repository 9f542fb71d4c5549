"""Addresses and authorities that an administrator lists, and those of hostile callers."""

import pytest

from allocator.config.review_callers import client_ca_problem, is_source, source_problem
from tests.fakes.pki import Authority

OWN = Authority("api-servers")


@pytest.mark.parametrize(
    "text", ["10.0.0.0/8", "10.1.2.3", "fd00::/64", "::1", "0.0.0.0/0", "10.0.0.1/32"]
)
def test_networks(text: str) -> None:
    """Addresses count as networks of one."""
    assert source_problem(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.0/33",
        "10.0.0.1/8",  # which of both is meant?
        "10.0.0",
        "010.0.0.1",
        "10.0.0.0/-1",
        "kubernetes.default.svc",
        "10.0.0.0/8,fd00::/8",
        "\x1b[2J",
        "9" * 253,
        "fd00::/64%eth0",
    ],
)
def test_what_is_no_network_is_named(text: str) -> None:
    """The sentence quotes it and says what would do."""
    assert "such as 10.0.0.0/24" in source_problem(text)
    assert "\x1b" not in source_problem(text)


@pytest.mark.parametrize(
    ("host", "sources", "is_one"),
    [
        pytest.param("10.1.2.3", (), True, id="nothing-listed"),
        pytest.param("10.1.2.3", ("10.0.0.0/8",), True, id="inside"),
        pytest.param("11.1.2.3", ("10.0.0.0/8",), False, id="outside"),
        pytest.param("11.1.2.3", ("10.0.0.0/8", "11.1.2.3"), True, id="the-second"),
        pytest.param("::ffff:10.1.2.3", ("10.0.0.0/8",), True, id="mapped"),
        pytest.param("::ffff:11.1.2.3", ("10.0.0.0/8",), False, id="mapped-outside"),
        pytest.param("fd00::1", ("10.0.0.0/8",), False, id="other-family"),
        pytest.param("fe80::1%eth0", ("fe80::/10",), True, id="with-a-zone"),
        pytest.param("", ("0.0.0.0/0",), False, id="none"),
        pytest.param("localhost", ("0.0.0.0/0",), False, id="a-name"),
        pytest.param("10.1.2.3:443", ("10.0.0.0/8",), False, id="with-a-port"),
    ],
)
def test_sources(host: str, sources: tuple[str, ...], *, is_one: bool) -> None:
    """A caller is in one of the networks, or it is not answered."""
    assert is_source(host, sources) is is_one


def test_authorities() -> None:
    """One or more, as PEM."""
    text = OWN.certificate.decode()

    assert client_ca_problem(text) == ""
    assert client_ca_problem(text + Authority("next").certificate.decode()) == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not one or more certificates in PEM"),
        ("x", "not one or more certificates in PEM"),
        (OWN.certificate.decode()[:-40], "not one or more certificates in PEM"),
        (OWN.certificate.decode().replace("CERTIFICATE", "X509 CRL"), "not one or more"),
        (OWN.issue("leaf").certificate.decode(), '"CN=leaf" is not an authority'),
        (OWN.certificate.decode() + OWN.issue("b\n").certificate.decode(), "is not an authority"),
        (OWN.issue("leaf").key.decode(), "it holds a private key"),
        (OWN.certificate.decode() + OWN.issue("leaf").key.decode(), "it holds a private key"),
        ("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", "not one or more"),
        ("-----BEGIN CERTIFICATE-----\n" + "A" * 60_000 + "\n-----END CERTIFICATE-----", "not one"),
        ("\ud800", "not one or more certificates in PEM"),
    ],
)
def test_what_is_no_authority_is_refused(text: str, told: str) -> None:
    """With a leaf in its place nobody could call; a key would be readable to all."""
    problem = client_ca_problem(text)

    assert told in problem
    assert "\n" not in problem
