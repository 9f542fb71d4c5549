"""Our webhook down or slow: what goes on without it, and what waits for it."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.builders.pods import MEMORY, NUMBER, container, pod, variables
from tests.cluster.api import STRATEGIC, ApiError, Json
from tests.cluster.installation import OPTED_IN, PODS, SYSTEM, Installation, installation

VGPU = {NUMBER: 1, MEMORY: 3000}
STRICT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
FAILED = 'failed calling webhook "pods.vgpu-admission.io"'


def named(name: str, *, asks: bool) -> Json:
    return pod(container(limits=VGPU if asks else {})) | {"metadata": {"name": name}}


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation in which every namespace is labelled, even those that must not be."""
    with installation(programs, tmp_path_factory.mktemp("outage")) as found:
        for name in ("kube-system", SYSTEM):
            found.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": OPTED_IN}})
        yield found


@pytest.fixture
def team(site: Installation) -> str:
    """Return a namespace that opted in, with two pods that were admitted: `vgpu` and `plain`."""
    name = site.namespace()
    for asks, pod_name in ((True, "vgpu"), (False, "plain")):
        site.create(name, named(pod_name, asks=asks))
    return name


@pytest.fixture
def bereft(site: Installation, team: str) -> Iterator[str]:
    """Return that namespace after the only replica has crashed."""
    site.first.process.kill()
    yield team
    site.first.start()


@pytest.fixture
def stalled(site: Installation, team: str) -> Iterator[str]:
    """Return that namespace while the only replica stands still, with its connections open."""
    site.first.process.pause()
    yield team
    site.first.process.resume()


@pytest.mark.usefixtures("bereft")
def test_what_we_depend_on_starts_without_us(site: Installation) -> None:
    """Not even the label brings us between the cluster and the pods that we need to come up."""
    refusals = [
        site.refusal(where, pod(container(limits=limits, securityContext=STRICT)))
        for where in ("kube-system", SYSTEM)
        for limits in (VGPU, {})
    ]

    assert refusals == [""] * 4


def test_only_who_asks_waits_for_us(site: Installation, bereft: str) -> None:
    """A pod that would run without limits is not created; its neighbours are."""
    with pytest.raises(ApiError, match=FAILED) as refused:
        site.create(bereft, named("more", asks=True))
    plain = site.create(bereft, named("other", asks=False)).body
    elsewhere = site.create(site.namespace({}), named("else", asks=True)).body

    assert refused.value.status == 500
    assert "env" not in plain["spec"]["containers"][0]
    assert "env" not in elsewhere["spec"]["containers"][0]


def test_workloads_are_created_without_us(site: Installation, bereft: str) -> None:
    """Whoever applies one would have read a warning at most, so nobody waits for it."""
    labels = {"app": "w"}
    template = {"metadata": {"labels": labels}, "spec": named("w", asks=True)["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{bereft}/deployments"

    found = site.api.create(path, {"metadata": {"name": "w"}, "spec": spec})

    assert found.body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert found.warnings == ()


def test_the_life_of_admitted_pods_goes_on(site: Installation, bereft: str) -> None:
    """They are labelled, finalized and deleted as if we were there."""
    path = f"{PODS.format(bereft)}/vgpu"
    release = {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/held"]}}

    site.api.patch(path, release)
    site.api.delete(path, {"gracePeriodSeconds": 0})
    site.api.patch(path, {"metadata": {"finalizers": None}})

    assert [p["metadata"]["name"] for p in site.api.get(PODS.format(bereft))["items"]] == ["plain"]


def test_debugging_a_slice_waits_for_us(site: Installation, bereft: str) -> None:
    """A debug container could see all GPUs of the node, unless its pod asked for none."""
    change = {"spec": {"ephemeralContainers": [container("d")]}}

    with pytest.raises(ApiError, match="failed calling webhook"):
        site.api.patch(f"{PODS.format(bereft)}/vgpu/ephemeralcontainers", change, kind=STRATEGIC)
    site.api.patch(f"{PODS.format(bereft)}/plain/ephemeralcontainers", change, kind=STRATEGIC)


def test_a_replica_that_comes_back_serves_at_once(site: Installation, team: str) -> None:
    """What the API server remembers of the crash costs no further pod."""
    site.first.process.kill()
    site.first.start()

    found = site.create(team, named("after", asks=True)).body

    assert "NVIDIA_VISIBLE_DEVICES" in variables(found)


def test_nobody_waits_longer_than_promised(site: Installation, stalled: str) -> None:
    """A pod that asks fails after its hook's 5 seconds, any other is created after 2.

    Reviews that were given up meanwhile are no burden: the replica goes on and serves at once.
    """
    began = time.monotonic()
    with pytest.raises(ApiError, match=FAILED):
        site.create(stalled, named("more", asks=True))
    failed = time.monotonic()
    site.create(stalled, named("other", asks=False))
    passed = time.monotonic()
    site.first.process.resume()
    found = site.create(stalled, named("after", asks=True)).body

    assert 4.5 < failed - began < 8
    assert 1.5 < passed - failed < 5
    assert "NVIDIA_VISIBLE_DEVICES" in variables(found)
