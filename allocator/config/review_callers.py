"""Addresses in settings: what callers of the hooks must show, and whom we call ourselves."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from allocator.model.untrusted import quote

Network = IPv4Network | IPv6Network
_NAME: Final = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\]"
_URL: Final = re.compile(rf"https?://(?:{_NAME})(?::[0-9]{{1,5}})?(?:/[!-\"$-~]*)?")
_KEY: Final = "PRIVATE KEY"


def source_problem(text: str) -> str:
    """Return why *text* names no network, empty if it does."""
    try:
        ip_network(text)
    except ValueError:
        return f"{quote(text)} is not an address or a network such as 10.0.0.0/24 or fd00::/64"
    return ""


def url_problem(text: str) -> str:
    """Return why *text* is no address that a GET can be sent to, empty if it is one."""
    if "@" in text:
        return "it carries a name or a password, which everybody who reads the settings would see"
    return "" if _URL.fullmatch(text) else "it is not the URL of an HTTP server"


def is_source(host: str, sources: tuple[str, ...]) -> bool:
    """Say whether a caller at the address *host* is in one of *sources*, or there are none.

    An address that cannot be read is in none of them.
    """
    if not sources:
        return True
    address = _address(host)
    return address is not None and any(address in network for network in _networks(sources))


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address  # a socket for both families shows IPv4 so


@lru_cache(maxsize=8)
def _networks(sources: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(map(ip_network, sources))


def client_ca_problem(text: str) -> str:
    """Return why *text* is no list of authorities, empty if it is one."""
    # Not at the top: it takes a fifth of a second, which each run of kubectl-vgpu would pay.
    from cryptography import x509  # noqa: PLC0415

    if _KEY in text:
        return "it holds a private key; give the certificates alone"
    try:
        authorities = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        return "it is not one or more certificates in PEM"
    for authority in authorities:
        try:
            constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
        except (x509.ExtensionNotFound, ValueError):
            constraints = None
        if constraints is None or not constraints.value.ca:
            return f"{quote(authority.subject.rfc4514_string())} is not an authority"
    return ""
