"""Certificates and paths of an installation: what they are called, and who keeps them."""

from ipaddress import ip_address
from typing import Final

from certs.api_client import ApiRegistrations, ApiReplicas, ApiSecret
from certs.ca_bundle import WebhookKind, WebhookTarget
from certs.issue import IssueParameters, Names, service_names
from certs.rotation_controller import RotationController
from kube.client import Client
from kube.leases import Election
from webhook.caller.hook_paths import HookPaths
from webhook.caller.path_controller import PathController

NAME: Final = "vgpu-admission"
SERVICE: Final = "vgpu-webhook"
SECRET: Final = "vgpu-webhook-certificates"  # noqa: S105 -- the name of an object
PATHS_SECRET: Final = "vgpu-webhook-paths"  # noqa: S105 -- the name of an object
TARGETS: Final = (
    WebhookTarget(WebhookKind.MUTATING, NAME),
    WebhookTarget(WebhookKind.VALIDATING, NAME),
)


REPLICAS: Final = "app.kubernetes.io/component=webhook"  # labels of the pods behind the Service


def certificates(
    client: Client, namespace: str, *, names: tuple[str, ...] = (), pod: str = ""
) -> RotationController:
    """Return what keeps the certificates of the installation in *namespace*.

    *pod* is the name of the replica that asks, if it is one.
    """
    own = service_names(SERVICE, namespace)
    return RotationController(
        secrets=ApiSecret(client=client, namespace=namespace, name=SECRET),
        registrations=ApiRegistrations(client=client),
        targets=TARGETS,
        parameters=IssueParameters(names=_add_names(own, names)),
        replicas=ApiReplicas(client=client, namespace=namespace, labels=REPLICAS, own=pod),
    )


def hook_paths(
    client: Client, namespace: str, paths: HookPaths, *, election: Election
) -> PathController:
    """Return what keeps the secret in the *paths* of the installation in *namespace*."""
    return PathController(
        secrets=ApiSecret(client=client, namespace=namespace, name=PATHS_SECRET),
        registrations=ApiRegistrations(client=client),
        replicas=ApiReplicas(client=client, namespace=namespace, labels=REPLICAS),
        targets=TARGETS,
        paths=paths,
        leading=lambda: election.is_leader,
    )


def _add_names(own: Names, more: tuple[str, ...]) -> Names:
    """Return *own* names with those of the command line, addresses told from names."""
    names, addresses = list(own.dns), list(own.addresses)
    for text in more:
        try:
            addresses.append(ip_address(text))
        except ValueError:
            names.append(text)
    return Names(dns=tuple(names), addresses=tuple(addresses))
