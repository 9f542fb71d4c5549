"""Properties of the control plane itself, on which every other cluster test relies."""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.api import APPLY, JSON_PATCH, Api, ApiError, Json, wait_for
from tests.cluster.control_plane import API_SERVER, ETCD, ControlPlane, Settings
from tests.cluster.controlplane.binaries import KUBERNETES
from tests.cluster.process import ComponentError

POD_SPEC = {"containers": [{"name": "main", "image": "example.invalid/none"}]}


def pod(name: str, **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": POD_SPEC | spec}


@pytest.mark.skipif("KUBEBUILDER_ASSETS" in os.environ, reason="envtest chose the release")
def test_it_is_the_pinned_kubernetes(api: Api) -> None:
    """The server says it is the release in go.mod, because clients adapt to what it says."""
    version = api.get("/version")

    assert version["gitVersion"] == f"v{KUBERNETES.version}"
    assert f"{version['major']}.{version['minor']}" == KUBERNETES.version.rpartition(".")[0]


def test_a_dry_run_leaves_nothing(api: Api, namespace: str) -> None:
    """A pod created with dryRun is defaulted and answered, yet not stored."""
    pods = f"/api/v1/namespaces/{namespace}/pods"

    reply = api.create(pods, pod("tried"), dryRun="All")

    assert reply.status == 201
    assert reply.body["spec"]["serviceAccountName"] == "default"
    assert api.get(pods)["items"] == []


def test_controllers_turn_a_deployment_into_a_pod(api: Api, namespace: str) -> None:
    """Deployment and ReplicaSet controllers work, and the pod's owner is the ReplicaSet."""
    labels = {"app": "demo"}
    template = {"metadata": {"labels": labels}, "spec": POD_SPEC}
    deployment = {
        "metadata": {"name": "demo"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }

    api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)

    (created,) = wait_for(lambda: api.get(f"/api/v1/namespaces/{namespace}/pods")["items"])
    assert created["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"


def test_a_streaming_list_ends_its_beginning_with_a_bookmark(api: Api, namespace: str) -> None:
    """WatchList works, which an etcd that is too old would refuse."""
    for name in ("first", "second"):
        api.create(f"/api/v1/namespaces/{namespace}/pods", pod(name))

    seen = []
    for event in api.watch(
        f"/api/v1/namespaces/{namespace}/pods",
        within=10,
        sendInitialEvents="true",
        allowWatchBookmarks="true",
        resourceVersionMatch="NotOlderThan",
    ):
        if event["type"] == "BOOKMARK":
            break
        seen.append((event["type"], event["object"]["metadata"]["name"]))

    assert seen == [("ADDED", "first"), ("ADDED", "second")]
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_service_account_token_is_believed(
    control_plane: ControlPlane, api: Api, namespace: str
) -> None:
    """The API server accepts a token it signed, as a pod of ours would present it."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    token = api.create(f"{account}/token", {"spec": {}}).body["status"]["token"]

    with control_plane.api(token) as own:
        review = own.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).body

    assert review["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


def test_the_scheduler_token_is_the_schedulers(control_plane: ControlPlane) -> None:
    """The second token belongs to the user whom the bootstrap roles let bind pods."""
    question = {
        "resourceAttributes": {"verb": "create", "resource": "pods", "subresource": "binding"}
    }

    with control_plane.api(control_plane.scheduler_token) as scheduler:
        answer = scheduler.create(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": question}
        )

    assert answer.body["status"]["allowed"]


@pytest.mark.parametrize(
    "namespace", [{"pod-security.kubernetes.io/warn": "baseline"}], indirect=True
)
def test_warnings_reach_the_client(api: Api, namespace: str) -> None:
    """A namespace has the labels a test asks for, and warnings are told apart from the answer."""
    reply = api.create(f"/api/v1/namespaces/{namespace}/pods", pod("bold", hostNetwork=True))

    (warning,) = reply.warnings
    assert warning.startswith('would violate PodSecurity "baseline:latest": host namespaces')


def test_a_refusal_carries_its_status(api: Api, namespace: str) -> None:
    """An ApiError tells the code, the reason and the server's words."""
    with pytest.raises(ApiError, match="not found") as refusal:
        api.get(f"/api/v1/namespaces/{namespace}/pods/absent")

    assert (refusal.value.status, refusal.value.reason) == (404, "NotFound")


def test_patches_of_every_kind(api: Api, namespace: str) -> None:
    """Merge patch, JSON patch and server-side apply each change an object."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/demo"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"by": "apply"}}

    api.patch(path, applied | {"metadata": {"name": "demo"}}, kind=APPLY)
    api.patch(path, {"data": {"merge": "too"}})
    patch = [{"op": "add", "path": "/data/json", "value": "as well"}]
    reply = api.patch(path, patch, kind=JSON_PATCH)

    assert reply.body["data"] == {"by": "apply", "merge": "too", "json": "as well"}


def test_one_client_serves_many_threads(api: Api, namespace: str) -> None:
    """Requests in flight at once do not mix up their answers."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    names = [f"n{number}" for number in range(200)]

    def create(name: str) -> str:
        created: str = api.create(path, {"metadata": {"name": name}}).body["metadata"]["name"]
        return created

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(create, names)) == names


def test_kubectl_reads_the_kubeconfig(kubectl: Callable[..., str], namespace: str) -> None:
    """The kubeconfig verifies the server and logs in the administrator."""
    manifest = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo"}}'

    printed = kubectl("--namespace", namespace, "apply", "--filename=-", stdin=manifest)

    assert printed == "configmap/demo created\n"


def test_settings_reach_the_api_server(programs: Mapping[str, Path], tmp_path: Path) -> None:
    """Audit policy, feature gates and flags take effect, and pods need no account by default."""
    settings = Settings(
        audit_policy={
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "rules": [{"level": "Metadata", "resources": [{"resources": ["pods"]}]}],
            "omitStages": ["RequestReceived"],
        },
        feature_gates={"APIServingWithRoutine": True},  # an alpha feature, so off by default
        api_server_flags=["--runtime-config=autoscaling/v1=false"],
    )

    with ControlPlane(tmp_path / "plane", programs, settings) as plane, plane.api() as api:
        api.create("/api/v1/namespaces/default/pods", pod("audited"))

        (event,) = (event for event in plane.audit_events() if event["verb"] == "create")
        assert event["objectRef"]["name"] == "audited"
        gate = 'kubernetes_feature_enabled{name="APIServingWithRoutine",stage="ALPHA"} 1'
        assert gate in api.get("/metrics")["message"]
        groups = api.get("/apis")["groups"]
        (autoscaling,) = (group for group in groups if group["name"] == "autoscaling")
        assert [version["version"] for version in autoscaling["versions"]] == ["v2"]


def test_an_api_server_comes_back_with_its_objects(
    programs: Mapping[str, Path], tmp_path: Path
) -> None:
    """A restart keeps address, certificate and data, and the client's dead connections heal."""
    with ControlPlane(tmp_path / "plane", programs) as plane, plane.api() as api:
        api.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})

        plane.kill(API_SERVER)
        plane.start(API_SERVER)

        assert api.get("/api/v1/namespaces/kept")["metadata"]["name"] == "kept"


def test_stopping_is_quick_even_without_etcd(programs: Mapping[str, Path], tmp_path: Path) -> None:
    """An API server that lost its etcd hangs in its shutdown, which must not hold up the tests."""
    with ControlPlane(tmp_path / "plane", programs) as plane:
        plane.kill(ETCD)
        started = time.monotonic()

        plane.stop()

        assert time.monotonic() - started < 10
        assert not plane.running(API_SERVER)


def test_a_component_that_cannot_start_says_why(
    programs: Mapping[str, Path], tmp_path: Path
) -> None:
    """The error holds the end of the component's log, and nothing is left running."""
    plane = ControlPlane(
        tmp_path / "plane", programs, Settings(api_server_flags=["--no-such-flag"])
    )

    with pytest.raises(ComponentError, match=r"(?s)kube-apiserver ended .* --no-such-flag"), plane:
        pass

    assert not plane.running(ETCD)
