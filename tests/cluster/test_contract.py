"""What a real API server does with a hook's answers, which is what ours are built to avoid."""

from collections.abc import Iterator

import pytest

from tests.builders.pods import CORES, container, pod
from tests.cluster.api import Api, ApiError, Json, wait_for
from tests.cluster.stub_hook import HOOKS, Stub, Way, encoded, patch, stub_hook

LIMIT = "/spec/containers/0/resources/limits/volcano.sh~1vgpu-cores"
GOOD = patch({"op": "add", "path": "/metadata/annotations", "value": {"seen": "yes"}})
ORPHAN = patch({"op": "add", "path": "/metadata/annotations/a", "value": "b"})
WAYS = {
    "good": Way(response=GOOD),
    "test-fails": Way(response=patch({"op": "test", "path": "/spec/hostname", "value": "x"})),
    "path-missing": Way(response=ORPHAN),
    "not-base64": Way(response={"patchType": "JSONPatch", "patch": "%%%"}),
    "not-json": Way(response={"patchType": "JSONPatch", "patch": encoded("[")}),
    "no-patch-type": Way(response={"patch": GOOD["patch"]}),
    "other-uid": Way(response={**GOOD, "uid": "other"}),
    "limit-alone": Way(response=patch({"op": "replace", "path": LIMIT, "value": "60"})),
    "denied-422": Way(response={"allowed": False, "status": {"code": 422, "message": "no"}}),
    "denied-200": Way(response={"allowed": False, "status": {"code": 200, "message": "no"}}),
    "status-500": Way(response={}, status=500),
    "slow": Way(response={}, seconds=1.5),  # the hook may take one
}


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    with stub_hook(tmp_path_factory.mktemp("stub"), WAYS) as found:
        yield found


@pytest.fixture(scope="module")
def registered(api: Api, stub: Stub) -> Iterator[str]:
    """Register every way under both failure policies for one namespace, and return that."""
    made = api.create("/api/v1/namespaces", {"metadata": {"generateName": "contract-"}})
    name: str = made.body["metadata"]["name"]
    wait_for(lambda: api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    hooks = [
        stub.entry(
            way,
            f"{way}.{policy.lower()}.example.com",
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": name}},
            objectSelector={"matchLabels": {"way": way, "policy": policy}},
            failurePolicy=policy,
            timeoutSeconds=1,
        )
        for way in WAYS
        for policy in ("Fail", "Ignore")
    ]
    api.create(HOOKS, {"metadata": {"name": "contract"}, "webhooks": hooks})
    wait_for(lambda: "annotations" in created(api, name, way="good", policy="Fail")["metadata"])
    yield name
    api.delete(f"{HOOKS}/contract")
    api.delete(f"/api/v1/namespaces/{name}")


def created(api: Api, namespace: str, **labels: str) -> Json:
    written = pod(container(limits={CORES: 50}))
    written["metadata"] = {"generateName": "p-", "labels": labels}
    body: Json = api.create(f"/api/v1/namespaces/{namespace}/pods", written, dryRun="All").body
    return body


@pytest.mark.parametrize(
    ("way", "fail", "ignore"),
    [
        pytest.param("good", 201, 201, id="good"),
        pytest.param("test-fails", 500, 500, id="failing-test"),
        pytest.param("path-missing", 500, 500, id="missing-parent"),
        pytest.param("not-base64", 500, 201, id="not-base64"),
        pytest.param("not-json", 500, 201, id="not-json"),
        pytest.param("no-patch-type", 500, 201, id="patch-without-type"),
        pytest.param("other-uid", 500, 201, id="other-uid"),
        pytest.param("limit-alone", 422, 422, id="limit-without-request"),
        pytest.param("denied-422", 422, 422, id="denied-422"),
        pytest.param("denied-200", 400, 400, id="denied-200"),
        pytest.param("status-500", 500, 201, id="server-error"),
        pytest.param("slow", 500, 201, id="timeout"),
    ],
)
def test_what_becomes_of_a_pod(
    api: Api, registered: str, *, way: str, fail: int, ignore: int
) -> None:
    """A patch that cannot be applied stops even a pod whose hook may be ignored."""
    outcomes = {}
    for policy in ("Fail", "Ignore"):
        try:
            created(api, registered, way=way, policy=policy)
        except ApiError as error:
            outcomes[policy] = error.status
        else:
            outcomes[policy] = 201

    assert outcomes == {"Fail": fail, "Ignore": ignore}
