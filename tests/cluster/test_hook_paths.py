"""The secret in the paths of our hooks, on a real API server."""

import base64
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from manifests.generator.registrations import registrations
from tests.builders.bindings import binding, review
from tests.builders.pods import pod
from tests.cluster.api import wait_for
from tests.cluster.installation import HOOKS, SYSTEM, Installation, installation
from tests.cluster.site import MANIFESTS
from webhook.caller.hook_paths import HOOK_PATHS, MADE
from webhook.serve.certificates import PATHS_SECRET

SECRET = f"/api/v1/namespaces/{SYSTEM}/secrets/{PATHS_SECRET}"
OWN = "of-this-site-alone-0123456789-0123456789"
SOON = 60  # seconds: a sweep of each replica, 15 s for it to be read, and a busy machine


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield two replicas whose registrations name their Service, as manifests do."""
    with installation(programs, tmp_path_factory.mktemp("paths"), replicas=2) as found:
        register(found)
        for replica in found.replicas:  # a new one never saw the paths that tests use elsewhere
            replica.process.stop()
            replica.start()
        wait_for(lambda: token(found), within=SOON)
        yield found


def register(site: Installation, own: str = "", *, url: str | None = None) -> None:
    """Write the registrations anew, with the bundles that they have.

    A URL of theirs ends in *own*.
    """
    for document in registrations(url=url):
        for hook in document["webhooks"] if own else ():
            hook["clientConfig"]["url"] += own
        wait_for(lambda document=document: site.register(document))  # type: ignore[misc]


def paths(site: Installation) -> dict[str, str]:
    """Return the path of each webhook."""
    return {
        hook["name"]: hook["clientConfig"]["service"].get("path", "")
        for kind in ("mutating", "validating")
        for hook in site.api.get(f"{HOOKS}/{kind}webhookconfigurations/vgpu-admission")["webhooks"]
    }


def token(site: Installation) -> str:
    """Return what ends the path of every webhook; empty while they differ."""
    ends = {path.removeprefix(HOOK_PATHS[name]) for name, path in paths(site).items()}
    return ends.pop().removeprefix("/") if len(ends) == 1 else ""


def statuses(site: Installation, path: str) -> list[int]:
    """Return what each replica answers to a bind's review that no API server sent."""
    forged = review(binding(node="gpu-1"), dryRun=True)
    return [replica.review(path, forged)[0] for replica in site.replicas]


def test_the_paths_are_those_of_the_secret(site: Installation) -> None:
    """Every webhook of both registrations is called at its own hook."""
    stored = site.api.get(SECRET)

    found = token(site)

    assert base64.b64decode(stored["data"]["token"]).decode() == found
    assert paths(site) == {name: f"{path}/{found}" for name, path in HOOK_PATHS.items()}


@pytest.mark.parametrize("hook", sorted(set(HOOK_PATHS.values())))
def test_a_forged_review_is_not_read(site: Installation, hook: str) -> None:
    """Whoever reaches the port, and does not know the path."""
    guesses = (hook, f"{hook}/", f"{hook}/{'a' * 43}", f"{hook}/{token(site)[:-1]}")

    refused = [statuses(site, path) for path in guesses]
    known = statuses(site, f"{hook}/{token(site)}")

    assert refused == [[404, 404]] * len(guesses)
    assert 404 not in known


def test_applying_the_manifests_again_leaves_the_paths_alone(
    site: Installation, programs: Mapping[str, Path]
) -> None:
    """Neither kubectl's way nor the server's takes them away, whoever applied first."""
    before = paths(site)
    base = str(MANIFESTS / "base" / "registrations.yaml")

    for way in ((), (), ("--server-side", "--force-conflicts")):
        kubectl = [str(programs["kubectl"]), f"--kubeconfig={site.plane.kubeconfig}", "apply"]
        subprocess.run([*kubectl, *way, "-f", base], check=True, capture_output=True)

    assert paths(site) == before


def test_an_old_secret_is_replaced(site: Installation) -> None:
    """All replicas answer at both paths for now."""
    before = token(site)
    made = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    site.api.patch(SECRET, {"metadata": {"annotations": {MADE: made}}})

    wait_for(lambda: token(site) not in {"", before}, within=SOON)

    for known in (before, token(site)):
        path = f"/mutate/bindings/{known}"
        assert 404 not in statuses(site, path)


def test_a_lost_secret_is_made_anew(site: Installation) -> None:
    """The paths are answered all the while, by a replica too that starts now."""
    before = token(site)
    site.api.delete(SECRET)
    site.replicas[1].process.stop()
    site.replicas[1].start()

    at_first = statuses(site, f"/mutate/bindings/{before}")
    wait_for(lambda: token(site) not in {"", before}, within=SOON)

    assert 404 not in at_first
    path = f"/mutate/bindings/{token(site)}"
    assert 404 not in statuses(site, path)


def test_records_say_how_the_caller_was_known(site: Installation) -> None:
    """A real API server calls at a secret path, which the site wrote into its own URL."""
    register(site, f"/{OWN}", url=f"https://127.0.0.1:{site.first.port}")
    namespace = site.namespace()

    wait_for(lambda: not site.refusal(namespace, pod()), within=SOON)
    site.create(namespace, pod())

    recorded = wait_for(
        lambda: [each for each in site.first.records() if each.get("namespace") == namespace]
    )
    assert {tuple(each["caller"]) for each in recorded} == {("path",)}
