"""Certificates and paths of an installation: what they are called, and who keeps them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from typing import Final

import structlog

from certs.api_client import ApiRegistrations, ApiReplicas, ApiSecret
from certs.ca_bundle import WebhookKind, WebhookTarget
from certs.check import PairFinding
from certs.issue import IssueParameters, Names, service_names
from certs.leaf_controller import ClientLeaf, LeafController, ServerLeaf
from certs.pem import Pair
from certs.refresh_controller import Announce, Notice, ReadPair
from certs.rotation_controller import RotationController
from certs.tls_server import ServingPair
from kube.client import Client
from kube.leases import Election
from webhook.caller.hook_paths import HookPaths
from webhook.caller.path_controller import PathController

NAME: Final = "vgpu-admission"
SERVICE: Final = "vgpu-webhook"
SECRET: Final = "vgpu-webhook-certificates"  # noqa: S105 -- the name of an object
CLIENT_SECRET: Final = "vgpu-extender-client"  # noqa: S105 -- the name of an object
CONSOLE_SERVICE: Final = "vgpu-console"
CONSOLE_SECRET: Final = "vgpu-console-tls"  # noqa: S105 -- the name of an object
AUDIT_SECRET: Final = "vgpu-audit-client"  # noqa: S105 -- the name of an object
AGENTS_NAMESPACE: Final = "vgpu-admission-agents"
PATHS_SECRET: Final = "vgpu-webhook-paths"  # noqa: S105 -- the name of an object
TARGETS: Final = (
    WebhookTarget(WebhookKind.MUTATING, NAME),
    WebhookTarget(WebhookKind.VALIDATING, NAME),
)


log = structlog.get_logger(__name__)
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


def client_certificate(client: Client, namespace: str) -> LeafController:
    """Return what keeps the certificate by which schedulers are known to the extender."""
    return LeafController(
        source=ApiSecret(client=client, namespace=namespace, name=SECRET),
        target=ApiSecret(client=client, namespace=namespace, name=CLIENT_SECRET),
        leaf=ClientLeaf(CLIENT_SECRET),
        kept_poll=0.0,
    )


def audit_certificates(
    client: Client, namespace: str, announce: Announce
) -> Mapping[str, LeafController]:
    """Return what keeps the console's certificate and those of senders of records, by name.

    Agents have a Secret of their own, in their namespace. News of them go to *announce*.
    """
    source = ApiSecret(client=client, namespace=namespace, name=SECRET)
    leaves = (
        (namespace, CONSOLE_SECRET, ServerLeaf(service_names(CONSOLE_SERVICE, namespace))),
        (namespace, AUDIT_SECRET, ClientLeaf(AUDIT_SECRET)),
        (AGENTS_NAMESPACE, AUDIT_SECRET, ClientLeaf(AUDIT_SECRET)),
    )
    return {
        f"certificate {place}/{name}": LeafController(
            source=source,
            target=ApiSecret(client=client, namespace=place, name=name),
            leaf=leaf,
            announce=partial(_of_secret, announce, f"{place}/{name}"),
        )
        for place, name, leaf in leaves
    }


def _of_secret(announce: Announce, secret: str, notice: Notice) -> None:
    """Announce a notice with the name of the *secret* that it is about."""
    announce(replace(notice, note=f"{secret}: {notice.note}"))


@dataclass(slots=True, kw_only=True)
class MutualPair:
    """Reads admission's pair, and serves it to callers whom *authorities* vouch for, too."""

    read_pair: ReadPair
    authorities: Callable[[], bytes]  # PEM; raises ``OSError``
    serving: ServingPair = field(init=False)
    _reported: tuple[PairFinding, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.serving = ServingPair(
            client_ca=lambda: self.authorities().decode("ascii", errors="replace"), mutual=True
        )

    async def __call__(self) -> Pair | None:
        """Return the pair; raises what ``read_pair`` does."""
        pair = await self.read_pair()
        if pair is not None:
            self._load(pair)
        return pair

    def _load(self, pair: Pair) -> None:
        try:
            pair_findings = self.serving.load(pair)
        except OSError as error:
            log.warning("authorities of the extender's callers not read", why=str(error))
            return
        if pair_findings != self._reported:
            self._reported = pair_findings
            for finding in pair_findings:
                log.warning("extender keeps its previous certificate", finding=str(finding))


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
