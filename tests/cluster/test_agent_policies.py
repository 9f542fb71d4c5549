"""An agent's account on a real API server: it can do its work, and nothing on another node."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.catalog.keys import CAPACITY_KEY, NOT_READY_TAINT
from manifests.generator.names import AGENT, AGENTS, NAMESPACE
from tests.cluster.api import MERGE, ApiError, Json, wait_for
from tests.cluster.site import Site, Who, installed, refusal

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
# No group but those that a service account has, so that only our own roles speak.
HEADERS = {"Impersonate-User": AGENT}
OWN, OTHER = Who(AGENT, "gpu-1"), Who(AGENT, "gpu-2")
TAINTS = [{"key": NOT_READY_TAINT, "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]


EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def event(name: str, **parts: str) -> Json:
    """Return an Event as the agent of gpu-1 signs it, but for *parts*."""
    return {
        "metadata": {"name": name},
        "eventTime": "2026-11-21T17:00:00.000000Z",
        "type": "Normal",
        "reason": "VgpuAllocated",
        "action": "Allocate",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "bound", "namespace": "default"},
        "reportingController": "vgpu-admission.io/agent",
        "reportingInstance": "gpu-1",
    } | parts


@pytest.fixture(scope="module")
def site(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installed(programs, tmp_path_factory.mktemp("agents")) as site:
        for name in ("gpu-1", "gpu-2"):
            site.api.create(NODES, {"metadata": {"name": name}, "spec": {"taints": TAINTS}})
        status = {"status": {"capacity": {"cpu": "2"}, "conditions": []}}
        site.api.request("PATCH", f"{NODES}/gpu-1/status", status, headers={"Content-Type": MERGE})
        wait_for(lambda: site.api.get("/api/v1/namespaces/default/serviceaccounts/default"))
        container = {"name": "main", "image": "none"}
        spec = {"nodeName": "gpu-1", "containers": [container]}
        site.api.create(PODS, {"metadata": {"name": "bound"}, "spec": spec})
        site.api.create(EVENTS, event("own"))
        site.api.create(EVENTS, event("kubelets", reportingController="kubelet"))
        probe = {"metadata": {"labels": {"x": "y"}}}
        wait_for(lambda: refusal(lambda: site.patch(OWN, f"{NODES}/gpu-1", probe)))
        yield site


def capacity(name: str, amount: str | None = "5") -> Json:
    return {"status": {"capacity": {name: amount}}}


def metadata(**parts: object) -> Json:
    return {"metadata": parts}


WORK = [
    pytest.param("", metadata(labels={"vgpu-admission.io/agent": "1"}), id="label"),
    pytest.param("", metadata(annotations={CAPACITY_KEY: "a/b"}), id="note"),
    pytest.param("/status", capacity("volcano.sh/vgpu-memory"), id="capacity"),
    pytest.param("/status", capacity("example.com/renamed"), id="renamed"),
    pytest.param("/status", {"status": {"allocatable": {"a.b/c": "5"}}}, id="allocatable"),
]


@pytest.mark.parametrize(("subresource", "change"), WORK)
def test_it_does_its_work_on_its_own_node(site: Site, subresource: str, change: Json) -> None:
    """Each write that it makes passes."""
    assert refusal(lambda: site.patch(OWN, f"{NODES}/gpu-1{subresource}", change)) == ""


@pytest.mark.parametrize(("subresource", "change"), WORK)
@pytest.mark.parametrize("who", [OTHER, Who(AGENT)], ids=["of-another-node", "from-nowhere"])
def test_no_agent_writes_another_node(
    site: Site, who: Who, *, subresource: str, change: Json
) -> None:
    """Who takes over one node can send nobody to another."""
    words = refusal(lambda: site.patch(who, f"{NODES}/gpu-1{subresource}", change))

    assert "may write only its own Node" in words


@pytest.mark.parametrize(
    ("subresource", "change"),
    [
        pytest.param("", metadata(labels={"team": "mine"}), id="label"),
        pytest.param("/status", metadata(labels={"team": "mine"}), id="label-by-status"),
        pytest.param("", metadata(annotations={"volcano.sh/node-vgpu-register": "x"}), id="note"),
        pytest.param("", metadata(finalizers=["example.com/x"]), id="finalizer"),
        pytest.param("", {"spec": {"unschedulable": True}}, id="cordon"),
        pytest.param("/status", capacity("cpu", "64"), id="cpu"),
        pytest.param("/status", capacity("cpu", None), id="no-cpu"),
        pytest.param("/status", {"status": {"nodeInfo": {"bootID": "x"}}}, id="boot"),
        pytest.param("/status", {"status": {"allocatable": {"cpu": "64"}}}, id="allocatable-cpu"),
        pytest.param(
            "/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, id="ready"
        ),
    ],
)
def test_it_writes_nothing_else_on_its_own_node(site: Site, subresource: str, change: Json) -> None:
    """The Node stays kubelet's and the operator's."""
    words = refusal(lambda: site.patch(OWN, f"{NODES}/gpu-1{subresource}", change))

    assert "an agent" in words


@pytest.mark.parametrize(
    ("gone", "more", "passes"),
    [
        pytest.param(NOT_READY_TAINT, [], True, id="ours-off"),
        pytest.param("a", [], False, id="another-off"),
        pytest.param("", [{"key": "x", "effect": "NoExecute"}], False, id="one-more"),
    ],
)
def test_it_takes_its_own_taint_off(
    site: Site, gone: str, more: list[Json], *, passes: bool
) -> None:
    """Pods may come then; who keeps others away is not its business."""
    standing = site.api.get(f"{NODES}/gpu-1")["spec"]["taints"]
    left = [taint for taint in standing if taint["key"] != gone]
    change = {"spec": {"taints": [*left, *more]}}

    assert (refusal(lambda: site.patch(OWN, f"{NODES}/gpu-1", change)) == "") is passes
    assert refusal(lambda: site.patch(OTHER, f"{NODES}/gpu-1", change))


def test_kubelet_is_not_concerned(site: Site) -> None:
    """The policy is about agents."""
    kubelet = Who("system:node:gpu-1")
    change = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    assert refusal(lambda: site.patch(kubelet, f"{NODES}/gpu-1/status", change)) == ""


VISIBLE = {"vgpu-admission.io/c0.visible": "MIG-1"}


@pytest.mark.parametrize(
    ("who", "change", "words"),
    [
        pytest.param(OWN, metadata(annotations=VISIBLE), "", id="instances"),
        pytest.param(OTHER, metadata(annotations=VISIBLE), "its own node", id="another-nodes-pod"),
        pytest.param(
            OWN,
            metadata(annotations={"vgpu-admission.io/assignment": "[]"}),
            "only which instances it was given",
            id="ledger",
        ),
        pytest.param(
            OWN,
            metadata(annotations={"a": "b"}),
            "only which instances it was given",
            id="other-key",
        ),
        pytest.param(
            OWN, metadata(labels={"a": "b"}), "only which instances it was given", id="label"
        ),
        pytest.param(
            OWN,
            metadata(finalizers=["example.com/x"]),
            "only which instances it was given",
            id="finalizer",
        ),
        pytest.param(
            OWN,
            {"spec": {"activeDeadlineSeconds": 1}},
            "only which instances it was given",
            id="deadline",
        ),
    ],
)
def test_what_it_writes_on_pods(site: Site, who: Who, change: Json, *, words: str) -> None:
    """Which instances one of its node was given, whatever namespace it is in."""
    found = refusal(lambda: site.patch(who, f"{PODS}/bound", change))

    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("who", "forged", "words"),
    [
        pytest.param(OWN, event("new"), "", id="its-own"),
        pytest.param(OTHER, event("new"), "its own node", id="from-another-node"),
        pytest.param(OWN, event("new", reportingInstance="gpu-2"), "its own node", id="as-another"),
        pytest.param(OWN, event("new", reportingController="x/y"), "its own node", id="as-kubelet"),
    ],
)
def test_it_signs_events_as_itself(site: Site, who: Who, forged: Json, *, words: str) -> None:
    """Nobody else's word can be put in another's mouth."""
    found = refusal(lambda: site.create(who, EVENTS, forged))

    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("who", "name", "words"),
    [
        pytest.param(OWN, "own", "", id="its-own"),
        pytest.param(OTHER, "own", "an agent", id="another-agents"),
        pytest.param(OWN, "kubelets", "an agent", id="kubelets"),
    ],
)
def test_it_counts_up_its_own_events(site: Site, who: Who, name: str, *, words: str) -> None:
    """What others said stays as they said it."""
    change = {"series": {"count": 2, "lastObservedTime": "2026-11-21T17:01:00.000000Z"}}

    found = refusal(lambda: site.patch(who, f"{EVENTS}/{name}", change))

    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        pytest.param(NODES, {"fieldSelector": "metadata.name=gpu-1"}, id="node"),
        pytest.param("/api/v1/pods", {"fieldSelector": "spec.nodeName=gpu-1"}, id="pods"),
        pytest.param("/apis/vgpu-admission.io/v1alpha1/gpunodes", {}, id="gpunodes"),
        pytest.param(
            f"/api/v1/namespaces/{NAMESPACE}/configmaps",
            {"fieldSelector": "metadata.name=vgpu-admission-settings"},
            id="settings",
        ),
        pytest.param(
            "/api/v1/namespaces/kube-system/configmaps",
            {"fieldSelector": "metadata.name=volcano-vgpu-node-config"},
            id="node-config",
        ),
    ],
)
def test_it_can_follow_what_it_goes_by(site: Site, path: str, query: dict[str, str]) -> None:
    """Listing is what a watch starts with."""
    assert site.api.request("GET", path, query=query, headers=HEADERS).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/api/v1/secrets", id="secrets"),
        pytest.param("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps", id="all-configmaps"),
        pytest.param("DELETE", f"{PODS}/bound", id="a-pod"),
        pytest.param("POST", f"{PODS}/bound/eviction", id="an-eviction"),
        pytest.param("DELETE", f"{NODES}/gpu-1", id="its-node"),
        pytest.param("DELETE", "/apis/vgpu-admission.io/v1alpha1/gpunodes/gpu-1", id="a-ledger"),
    ],
)
def test_it_can_do_nothing_else(site: Site, method: str, path: str) -> None:
    """A stolen token opens no other door."""
    with pytest.raises(ApiError) as refused:
        site.api.request(method, path, headers=HEADERS)

    assert refused.value.status == 403


def test_its_pods_may_start(site: Site) -> None:
    """Their namespace admits what they need, and critical pods."""
    made = site.api.get(f"/apis/apps/v1/namespaces/{AGENTS}/daemonsets/vgpu-agent")
    pod = {"metadata": {"name": "probe"}, "spec": made["spec"]["template"]["spec"]}
    path = f"/api/v1/namespaces/{AGENTS}/pods"

    wait_for(lambda: site.api.get(f"/api/v1/namespaces/{AGENTS}/serviceaccounts/vgpu-agent"))
    assert refusal(lambda: site.api.create(path, pod, dryRun="All")) == ""
