"""Certificates of an installation: what they are called, and who keeps them."""

from ipaddress import ip_address
from typing import Final

from certs.core.issue import Names, Terms, service_names
from certs.core.registration import Kind, Target
from certs.shell.cluster import ApiRegistrations, ApiSecret
from certs.shell.secret import Writer
from kube.client import Client

NAME: Final = "vgpu-admission"
SERVICE: Final = "vgpu-webhook"
SECRET: Final = "vgpu-webhook-certificates"  # noqa: S105 -- the name of an object
TARGETS: Final = (Target(Kind.MUTATING, NAME), Target(Kind.VALIDATING, NAME))


def certificates(client: Client, namespace: str, *, names: tuple[str, ...] = ()) -> Writer:
    """Return what keeps the certificates of the installation in *namespace*."""
    own = service_names(SERVICE, namespace)
    return Writer(
        secrets=ApiSecret(calls=client, namespace=namespace, name=SECRET),
        registrations=ApiRegistrations(calls=client),
        targets=TARGETS,
        terms=Terms(names=_with(own, names)),
    )


def _with(own: Names, more: tuple[str, ...]) -> Names:
    """Return *own* names with those of the command line, addresses told from names."""
    names, addresses = list(own.dns), list(own.addresses)
    for text in more:
        try:
            addresses.append(ip_address(text))
        except ValueError:
            names.append(text)
    return Names(dns=tuple(names), addresses=tuple(addresses))
