"""Certificates replaced under load, on a real API server that verifies each connection."""

import base64
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from certs.pem import certificates, fingerprint
from certs.rotation_policy import DEFAULT
from tests.builders.pods import pod
from tests.cluster.api import wait_for
from tests.cluster.forwarder import forwarding
from tests.cluster.installation import SYSTEM, Installation, Replica, installation
from tests.cluster.load import Load
from tests.cluster.site import MANIFESTS
from webhook.serve.certificates import SECRET

RATE, SECONDS = 100, 60
# A pod that the namespace of the control plane admits.
RESTRICTED = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "webhook",
            "image": "vgpu-admission",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}
SOON = 60.0  # seconds for an API server to notice another bundle


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield two replicas behind one port."""
    folder = tmp_path_factory.mktemp("rotation")
    with (
        installation(programs, folder, replicas=2) as found,
        forwarding([replica.port for replica in found.replicas]) as port,
    ):
        found.point_at(port)
        found.wait_until_called()
        yield found


@dataclass(frozen=True, slots=True)
class Seen:
    """Which authorities every registration trusts, and which leaf each replica serves."""

    authorities: frozenset[str]
    leaves: frozenset[str]


def seen(site: Installation) -> Seen:
    """Do what an API server does with what is registered now: verify both replicas, or fail."""
    bundles = [base64.b64decode(bundle) for bundle in site.bundles()]
    trusted = [frozenset(map(fingerprint, certificates(bundle))) for bundle in bundles]
    leaves = [verified(replica, bundle) for bundle in bundles for replica in site.replicas]
    return Seen(frozenset.intersection(*trusted), frozenset(leaves))


def awaited(site: Installation, condition: Callable[[Seen], bool]) -> Seen:
    """Look again and again, which verifies each time, until something has come about."""

    def look() -> list[Seen]:
        return [now for now in (seen(site),) if condition(now)]

    (found,) = wait_for(look, within=60)
    return found


def verified(replica: Replica, bundle: bytes) -> str:
    """Connect anew and return the fingerprint of what was served; fails if it does not verify."""
    context = ssl.create_default_context(cadata=bundle.decode())
    with (
        socket.create_connection(("127.0.0.1", replica.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        held = secure.getpeercert(binary_form=True)
    assert held is not None
    return fingerprint(certificates(ssl.DER_cert_to_PEM_cert(held).encode())[0])


def certs(site: Installation, *arguments: str) -> str:
    """Run `vgpu certs` as the administrator does."""
    program = [sys.executable, str(MANIFESTS.parent / "vgpu.py"), "certs", *arguments]
    command = [*program, f"--kubeconfig={site.plane.kubeconfig}"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_nothing_fails_while_everything_is_replaced(site: Installation) -> None:
    """Leaf, then authority, in a minute of 100 creates a second: no create fails.

    Whoever connects at any moment in between verifies both replicas with what is registered at
    that moment, and the new authority is trusted before anything of it is served.
    """
    where = site.namespace()

    def next_leaf(before: Seen) -> Seen:
        return awaited(site, lambda now: not now.leaves & before.leaves)

    def next_authority(before: Seen) -> Seen:
        return awaited(site, lambda now: now.authorities > before.authorities)

    def create(number: int) -> None:
        site.create(where, {**pod(), "metadata": {"name": f"p-{number}"}})

    first = seen(site)
    with Load(create, rate=RATE) as load:
        certs(site, "rotate", "leaf")
        renewed = next_leaf(first)
        certs(site, "rotate", "ca")
        published = next_authority(renewed)
        replaced = next_leaf(published)
        load.wait_until(RATE * SECONDS, within=200)

    assert load.failures == []
    assert renewed.authorities == first.authorities
    assert published.leaves == renewed.leaves
    assert replaced.authorities == published.authorities
    assert len(replaced.leaves) == 1
    reviews = [
        [record for record in replica.records() if record.get("namespace") == where]
        for replica in site.replicas
    ]
    assert {record["outcome"] for records in reviews for record in records} == {"rewritten"}
    assert all(reviews)


def test_status_tells_how_far_it_is(site: Installation) -> None:
    """After a rotation the old authority stays trusted, and a person can read until when."""
    (bundle,) = site.bundles()

    told = certs(site, "status")

    assert "phase       overlap: old CAs are trusted until" in told
    assert told.count("carries the bundle") == 2
    for authority in certificates(base64.b64decode(bundle)):
        assert fingerprint(authority)[:16] in told


def test_a_lost_secret_is_replaced_at_once_while_nobody_serves(
    site: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All replicas are gone, and the Secret with them: the first one back waits for no one."""
    own = "vgpu-webhook-0"
    site.stop()
    labels = {"app.kubernetes.io/component": "webhook"}
    site.create(SYSTEM, {"metadata": {"name": own, "labels": labels}, "spec": RESTRICTED})
    site.api.delete(f"/api/v1/namespaces/{SYSTEM}/secrets/{SECRET}")
    before = len(site.first.lines())

    monkeypatch.setenv("POD_NAME", own)  # as the Deployment does
    site.first.start()

    told = {line.get("event"): line["at"] for line in site.first.lines()[before:]}
    steps = [line.get("step") for line in site.first.lines()[before:]]
    assert "SwitchLeaf" in steps
    began, loaded = (
        datetime.fromisoformat(told[event])
        for event in ("serving", "new serving certificate loaded")
    )
    assert loaded - began < DEFAULT.settle  # which is what it would have waited
    wait_for(lambda: not site.refusal(site.namespace(), pod()), within=SOON)
