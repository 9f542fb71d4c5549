"""The policies for pods, with our webhook down: what is warned about, frozen, left alone."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from manifests.generator.names import AGENT, CONTROL_PLANE
from manifests.generator.policies import PLUGINS, SCHEDULERS
from tests.cluster.api import Json, wait_for
from tests.cluster.site import MANIFESTS, Site, Who, installed, refusal

PODS = "/api/v1/namespaces/{}/pods"
VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}
IDS = "volcano.sh/vgpu-ids-new"
MODE = "volcano.sh/vgpu-mode"
OURS = "vgpu-admission.io/c0.visible"
SCHEDULER, PLUGIN = Who(SCHEDULERS[0]), Who(PLUGINS[0])
TENANT = Who("tenant")


@pytest.fixture(scope="module")
def site(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installed(programs, tmp_path_factory.mktemp("policies")) as site:
        wait_for(lambda: warnings_for(site, pod(limits=VGPU)))
        yield site


@pytest.fixture(scope="module")
def team(site: Site) -> str:
    """Opt a namespace in that has a waiting pod, a bound one and one on an upstream node.

    The label comes last: our webhook is down, so no pod that asks for vGPU starts after it.
    """
    site.api.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    site.api.create("/api/v1/nodes", {"metadata": {"name": "gpu-1"}})
    wait_for(lambda: site.api.get("/api/v1/namespaces/team/serviceaccounts/default"))
    path = PODS.format("team")
    upstream = {"vgpu-admission.io/served-by": "upstream"}
    for name, node, more in (
        ("waiting", "", {}),
        ("bound", "gpu-1", {}),
        ("upstream", "gpu-1", upstream),
    ):
        annotations = {"vgpu-admission.io/decision": "k7q2", MODE: "mig", **more}
        metadata = {"annotations": annotations, "finalizers": ["example.com/held"]}
        made = pod(name, limits=VGPU, metadata=metadata)
        made["spec"] |= {"nodeName": node} if node else {}
        site.api.create(path, made)
    site.kubectl("label", "ns", "team", "vgpu-admission.io/inject=enabled")
    wait_for(lambda: refusal(lambda: site.patch(TENANT, f"{path}/waiting", annotate(IDS))))
    return path


def pod(name: str = "probe", *, limits: Json | None = None, metadata: Json | None = None) -> Json:
    container = {"name": "main", "image": "none", "resources": {"limits": limits or {}}}
    return {"metadata": {"name": name, **(metadata or {})}, "spec": {"containers": [container]}}


def annotate(key: str, value: str | None = "x") -> Json:
    return {"metadata": {"annotations": {key: value}}}


def warnings_for(site: Site, body: Json) -> tuple[str, ...]:
    wait_for(lambda: site.api.get("/api/v1/namespaces/default/serviceaccounts/default"))
    return site.api.create(PODS.format("default"), body, dryRun="All").warnings


@pytest.mark.parametrize(
    ("body", "warned"),
    [
        pytest.param(pod(), "", id="plain"),
        pytest.param(pod(limits={"cpu": "1"}), "", id="cpu-only"),
        pytest.param(pod(limits=VGPU), "asks for vGPU", id="volcano"),
        pytest.param(pod(limits={"aliyun.com/gpu-mem": "4"}), "asks for vGPU", id="gpushare"),
        pytest.param(pod(metadata=annotate(IDS)["metadata"]), IDS, id="allocation"),
        pytest.param(pod(metadata=annotate(OURS)["metadata"]), OURS, id="our-key"),
        pytest.param(
            pod(metadata=annotate("vgpu-admission.io/isolate")["metadata"]), "", id="user-key"
        ),
        pytest.param(pod(metadata=annotate(MODE)["metadata"]), "", id="volcanos-user-key"),
    ],
)
def test_namespaces_without_the_label_warn(site: Site, body: Json, warned: str) -> None:
    """The pod is created all the same, and whoever made it reads why it should not be."""
    warnings = warnings_for(site, body)

    assert [warned in text for text in warnings] == ([True] if warned else [])


def test_an_init_container_asks_as_well(site: Site) -> None:
    """No kind of container that may ask is overlooked."""
    body = pod()
    (first,) = pod(limits=VGPU)["spec"]["containers"]
    body["spec"]["initContainers"] = [first | {"name": "first"}]

    (warning,) = warnings_for(site, body)

    assert "asks for vGPU" in warning


def test_volcano_goes_on_working_without_the_label(site: Site) -> None:
    """Its scheduler's own writes are not even warned about."""
    path = PODS.format("default")
    site.api.create(path, pod("theirs", limits=VGPU))

    by_tenant = site.patch(TENANT, f"{path}/theirs", annotate(IDS))
    by_scheduler = site.patch(SCHEDULER, f"{path}/theirs", annotate(IDS))

    assert len(by_tenant.warnings) == 1
    assert by_scheduler.warnings == ()


@pytest.mark.parametrize(
    ("who", "change", "passes"),
    [
        pytest.param(TENANT, ("waiting", "team.example/owner"), True, id="tenant-other-key"),
        pytest.param(TENANT, ("waiting", OURS), False, id="tenant-our-key"),
        pytest.param(TENANT, ("waiting", MODE), False, id="tenant-mode"),
        pytest.param(TENANT, ("waiting", "nvidia.com/use-gputype"), False, id="tenant-filter"),
        pytest.param(TENANT, ("waiting", "cdi.k8s.io/gpu"), False, id="tenant-cdi"),
        pytest.param(SCHEDULER, ("waiting", OURS), False, id="scheduler-our-key"),
        pytest.param(Who(CONTROL_PLANE), ("waiting", OURS), True, id="control-plane"),
        pytest.param(Who(AGENT, "gpu-1"), ("bound", OURS), True, id="agent-of-the-node"),
        pytest.param(Who(AGENT, "gpu-2"), ("bound", OURS), False, id="agent-of-another-node"),
        pytest.param(Who(AGENT), ("bound", OURS), False, id="agent-from-nowhere"),
        pytest.param(Who(AGENT, "gpu-1"), ("bound", MODE), False, id="agent-mode"),
    ],
)
def test_what_admission_decided_is_frozen(
    site: Site, team: str, who: Who, *, change: tuple[str, str], passes: bool
) -> None:
    """Only our own accounts change it, the agent's only on its node; others' keys are free."""
    name, key = change

    words = refusal(lambda: site.patch(who, f"{team}/{name}", annotate(key)))

    # Two policies are about agents; either may be the one that is told.
    told = [f"annotation {key} ", *(["an agent may write to"] if who.user == AGENT else [])]
    assert (words == "") is passes
    assert passes or any(text in words for text in told)


@pytest.mark.parametrize(
    ("who", "name", "passes"),
    [
        pytest.param(TENANT, "waiting", False, id="tenant"),
        pytest.param(
            Who("system:serviceaccount:team:volcano-scheduler"), "waiting", False, id="lookalike"
        ),
        pytest.param(SCHEDULER, "waiting", True, id="scheduler-waiting"),
        pytest.param(SCHEDULER, "bound", False, id="scheduler-bound"),
        pytest.param(SCHEDULER, "upstream", True, id="scheduler-upstream"),
        pytest.param(PLUGIN, "waiting", False, id="plugin-waiting"),
        pytest.param(PLUGIN, "bound", False, id="plugin-bound"),
        pytest.param(PLUGIN, "upstream", True, id="plugin-upstream"),
        pytest.param(Who(AGENT, "gpu-1"), "bound", False, id="agent"),
        pytest.param(Who(CONTROL_PLANE), "bound", True, id="control-plane"),
    ],
)
def test_an_allocation_is_its_schedulers(
    site: Site, team: str, who: Who, *, name: str, passes: bool
) -> None:
    """Volcano writes until the bind, and after it only where its own plugin serves."""
    words = refusal(lambda: site.patch(who, f"{team}/{name}", annotate(IDS)))

    assert (words == "") is passes


@pytest.mark.parametrize("value", ["other", None], ids=["changed", "removed"])
def test_a_status_patch_is_no_way_round(site: Site, team: str, value: str | None) -> None:
    """A patch of the status can carry annotations too, and removing one is a change."""
    change = annotate("vgpu-admission.io/decision", value)

    words = refusal(lambda: site.patch(TENANT, f"{team}/waiting/status", change))

    assert "vgpu-admission.io/decision" in words


@pytest.mark.parametrize(
    ("subresource", "change"),
    [
        pytest.param("", {"metadata": {"finalizers": None}}, id="finalizer"),
        pytest.param("", {"metadata": {"labels": {"a": "b"}}}, id="label"),
        pytest.param("/status", {"status": {"phase": "Running"}}, id="phase"),
    ],
)
def test_the_life_of_a_pod_goes_on(
    site: Site, team: str, *, subresource: str, change: Json
) -> None:
    """What is frozen stops nobody from finishing, labelling or releasing the pod."""
    words = refusal(lambda: site.patch(TENANT, f"{team}/waiting{subresource}", change))

    assert words == ""


def example(words: str) -> str:
    """Return the one example of the page that has *words*."""
    page = MANIFESTS.parent / "docs/policies.md"
    found = re.findall(r"```yaml\n(.+?)```", page.read_text(), re.DOTALL)
    (one,) = [text for text in found if words in text]
    return str(one)


def built(site: Site, folder: Path, kustomization: str) -> list[Json]:
    """Build a site's own kustomization, which lies beside a copy of the manifests."""
    shutil.copytree(MANIFESTS, folder / "manifests")
    (folder / "kustomization.yaml").write_text(kustomization)
    return list(yaml.safe_load_all(site.kubectl("kustomize", str(folder))))


def test_the_page_says_how_to_be_only_warned(site: Site, tmp_path: Path) -> None:
    """One example turns the refusal of what only our agents offer into a warning."""
    objects = built(site, tmp_path, example("sole-capacity"))

    bindings = {o["metadata"]["name"]: o for o in objects if o["kind"].endswith("PolicyBinding")}
    sole = bindings["sole-capacity.vgpu-admission.io"]
    assert sole["spec"]["validationActions"] == ["Warn", "Audit"]


def test_the_page_says_how_to_refuse(site: Site, tmp_path: Path) -> None:
    """One example turns the warning into a refusal."""
    objects = built(site, tmp_path, example("components/refuse"))

    bindings = {o["metadata"]["name"]: o for o in objects if o["kind"].endswith("PolicyBinding")}
    unlabelled = bindings["unlabelled.vgpu-admission.io"]
    assert unlabelled["spec"]["validationActions"] == ["Deny"]


def test_the_page_says_how_to_name_other_accounts(site: Site, tmp_path: Path) -> None:
    """One example replaces Volcano's accounts in both policies, and nothing else."""
    objects = built(site, tmp_path, example("system:serviceaccount:batch"))

    policies = [o["spec"] for o in objects if o["kind"] == "ValidatingAdmissionPolicy"]
    named = [p["variables"][:2] for p in policies if "batch" in str(p)]
    assert (
        named
        == [
            [
                {
                    "name": "schedulers",
                    "expression": "['system:serviceaccount:batch:my-scheduler']",
                },
                {
                    "name": "plugins",
                    "expression": "['system:serviceaccount:batch:my-device-plugin']",
                },
            ]
        ]
        * 2
    )
