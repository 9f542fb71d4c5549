"""What only our agents offer is refused by a real API server, with our webhook down."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from allocator.catalog.keys import SOLE_KEY
from manifests.generator.names import REGISTRATION
from tests.cluster.api import Json, wait_for
from tests.cluster.installation import HOOKS, OPTED_IN, PODS
from tests.cluster.site import Site, Who, installed, refusal

CONFIGURATION = f"{HOOKS}/validatingwebhookconfigurations/{REGISTRATION}"
WORDS = "which only nodes of vgpu-admission have, in a namespace where it limits none"
TENANT = Who("tenant")
GIB = {"aliyun.com/gpu-mem": "1"}
# Seed 004's Deployment; its pod asks for one GiB in the namespace default.
SEED = """
containers:
- name: gpu-1
  image: bvlc/caffe:gpu
  command: ["/bin/sh"]
  args: ["-c", "while true;do echo hello;sleep 1;done"]
  resources:
    limits:
      # GiB
      aliyun.com/gpu-mem: 1
"""


@pytest.fixture(scope="module")
def site(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installed(programs, tmp_path_factory.mktemp("sole")) as site:
        for name, labels in (("plain", {}), ("team", OPTED_IN)):
            made = {"metadata": {"name": name, "labels": labels}}
            site.api.create("/api/v1/namespaces", made)
        site.kubectl("label", "ns", "kube-system", "vgpu-admission.io/inject=enabled")
        for name in ("plain", "team", "default", "kube-system"):
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            wait_for(lambda account=account: site.api.get(account))  # type: ignore[misc]
        assert words(site, pod(GIB)) == ""  # nobody has noted anything yet
        note(site, "aliyun.com/gpu-mem,example.com/mem")
        wait_for(lambda: words(site, pod(GIB)))
        yield site


def note(site: Site, names: str | None) -> None:
    """Note what only our agents offer, as the control plane does."""
    site.api.patch(CONFIGURATION, {"metadata": {"annotations": {SOLE_KEY: names}}})


def pod(limits: Json, *, where: str = "containers", **metadata: object) -> Json:
    asking = {"name": "asking", "image": "none", "resources": {"limits": limits}}
    spec: Json = {"containers": [{"name": "main", "image": "none"}]}
    spec[where] = [*spec.get(where, ()), asking]
    return {"metadata": {"name": "probe", **metadata}, "spec": spec}


def mirror() -> Json:
    made = pod(GIB, annotations={"kubernetes.io/config.mirror": "x"})
    made["spec"]["nodeName"] = "n"
    return made


def words(site: Site, made: Json, namespace: str = "plain") -> str:
    """Return why the pod is refused, empty if it is not; nothing is stored."""
    return refusal(lambda: site.create(TENANT, PODS.format(namespace), made))


@pytest.mark.parametrize("namespace", ["default", "plain", "kube-system"])
def test_seed_004_is_refused_in_every_namespace_that_nobody_reviews(
    site: Site, namespace: str
) -> None:
    """The label of kube-system has no effect on hooks, so it has none here."""
    made = {"metadata": {"name": "gpu-1"}, "spec": yaml.safe_load(SEED)}

    said = words(site, made, namespace)

    assert f"container gpu-1 asks for aliyun.com/gpu-mem, {WORDS}" in said


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod(GIB, where="initContainers"), id="init-container"),
        pytest.param(pod({"example.com/mem": "1"}), id="renamed"),
        pytest.param(pod({"aliyun.com/gpu-mem": "1e3"}), id="another-notation"),
        pytest.param(pod({"aliyun.com/gpu-mem": 9223372036854775807}), id="largest"),
        pytest.param(mirror(), id="mirror"),
        pytest.param(pod(GIB, labels=OPTED_IN), id="label-on-the-pod"),
        pytest.param(
            pod({f"example.com/r{n}": "1" for n in range(4000)} | GIB), id="hidden-among-thousands"
        ),
    ],
)
def test_however_it_is_asked_for(site: Site, made: Json) -> None:
    """No kind of container and no way of writing it passes."""
    assert "sole-capacity.vgpu-admission.io" in words(site, made)


@pytest.mark.parametrize("amount", [0, "0", "0m", "0Ki", "0e3", "-0"])
def test_nothing_is_asked_for_by_zero(site: Site, amount: object) -> None:
    """However it is written, the API server makes the same of it."""
    assert words(site, pod({"aliyun.com/gpu-mem": amount})) == ""


def test_a_negative_amount_is_no_way_past(site: Site) -> None:
    """The API server itself refuses it."""
    assert "must be greater than or equal to 0" in words(site, pod({"aliyun.com/gpu-mem": "-1"}))


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"volcano.sh/vgpu-number": "1"}, id="what-others-offer-too"),
        pytest.param({"aliyun.com/gpu-memory": "1"}, id="a-longer-name"),
    ],
)
def test_others_are_left_alone(site: Site, limits: Json) -> None:
    """What may be meant for other nodes is warned of at most."""
    assert words(site, pod(limits)) == ""


def test_a_labelled_namespace_is_left_to_the_hooks(site: Site) -> None:
    """Which are down here, so the API server says so."""
    said = words(site, pod(GIB), "team")

    assert "sole-capacity" not in said
    assert "failed calling webhook" in said


def test_the_mirror_of_a_static_pod_is_made(site: Site) -> None:
    """By kubelet alone, which runs the pod whether its mirror is there or not."""
    nodes = Who("system:node:n").headers | {"Impersonate-Group": "system:nodes"}
    site.kubectl("create", "clusterrole", "mirrors", "--verb=create", "--resource=pods")
    site.kubectl(
        "create", "clusterrolebinding", "mirrors", "--clusterrole=mirrors", "--group=system:nodes"
    )
    node = site.api.create("/api/v1/nodes", {"metadata": {"name": "n"}}).body["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node["uid"]}
    made = mirror()
    made["metadata"]["ownerReferences"] = [owner | {"controller": True}]

    def said() -> str:
        path, query = PODS.format("plain"), {"dryRun": "All"}
        return refusal(lambda: site.api.request("POST", path, made, query=query, headers=nodes))

    wait_for(lambda: "cannot create resource" not in said())  # the authorizer knows the role
    assert said() == ""


def test_a_deployment_says_why_it_has_no_pods(site: Site) -> None:
    """Its controller writes the refusal where kubectl describe shows it."""
    labels = {"app": "gpu-1"}
    template = {"metadata": {"labels": labels}, "spec": yaml.safe_load(SEED)}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    path = "/apis/apps/v1/namespaces/plain/deployments"
    site.api.create(path, {"metadata": {"name": "gpu-1"}, "spec": spec})

    def failure() -> str:
        conditions = site.api.get(f"{path}/gpu-1").get("status", {}).get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "ReplicaFailure"), "")

    wait_for(failure)
    assert WORDS in failure()


def test_without_the_note_or_its_place_everybody_passes(site: Site) -> None:
    """As after an uninstallation that was cut short: no cluster is left without new pods."""
    stored = site.api.get(CONFIGURATION)
    note(site, None)
    wait_for(lambda: not words(site, pod(GIB)))
    note(site, "aliyun.com/gpu-mem")
    wait_for(lambda: words(site, pod(GIB)))

    site.api.request("DELETE", CONFIGURATION)
    wait_for(lambda: not words(site, pod(GIB)))

    kept = {key: stored["metadata"][key] for key in ("name", "annotations")}
    site.api.create(HOOKS + "/validatingwebhookconfigurations", {**stored, "metadata": kept})
    wait_for(lambda: words(site, pod(GIB)))
