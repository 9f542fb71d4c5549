"""The kubectl plugin, called by kubectl, on a real API server with pods bound through our hook."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from allocator.model.request import Mode
from tests.builders.model import A30, T4, nodes_of
from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.binds import bind, make
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import Installation, installation

RBAC = "rbac.authorization.k8s.io"
ROOT = Path(__file__).parents[2]
# What an installer makes of the entry point of the same name in pyproject.toml.
SCRIPT = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
from console.cli.{{}} import main
main()
"""

Vgpu = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with one GPU to cut and one to share."""
    with installation(programs, tmp_path_factory.mktemp("kubectl")) as found:
        found.add_node(nodes_of(1, A30, mode=Mode.MIG, name="cut"))
        found.add_node(nodes_of(1, T4, name="soft"))
        found.wait_for_models("A30", "T4")
        yield found


def account(site: Installation, name: str, *roles: str) -> Path:
    """Make an account with these roles everywhere and return a kubeconfig of it."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    site.api.create(accounts, {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    for role in roles:
        binding = {
            "metadata": {"name": f"{name}-{role}"},
            "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": RBAC},
            "subjects": [subject],
        }
        site.api.create(f"/apis/{RBAC}/v1/clusterrolebindings", binding)
    spec = {"spec": {"expirationSeconds": 7200}}
    token = site.api.create(f"{accounts}/{name}/token", spec).body["status"]["token"]
    config = json.loads(site.plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    path = site.plane.folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def install(folder: Path) -> None:
    """Put the plugin, and the program that completes its commands, in *folder*."""
    for name, module in (("kubectl-vgpu", "kubectl_vgpu"), ("kubectl_complete-vgpu", "completion")):
        plugin = folder / name
        plugin.write_text(SCRIPT.format(module))
        plugin.chmod(0o755)


@pytest.fixture(scope="module")
def vgpu(
    site: Installation, programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Vgpu:
    """Return a function that runs `kubectl vgpu` with kubectl finding our plugin on its path.

    Its user may read and do nothing else, so whatever tried to write would be refused.
    """
    folder = tmp_path_factory.mktemp("plugin")
    install(folder)
    # What `view` grants, which a controller would have to add up first.
    reading = [
        {"apiGroups": [group], "resources": resources, "verbs": ["get", "list"]}
        for group, resources in (
            ("", ["pods", "events"]),
            ("apps", ["deployments", "replicasets"]),
        )
    ]
    roles = f"/apis/{RBAC}/v1/clusterroles"
    site.api.create(roles, {"metadata": {"name": "pod-reader"}, "rules": reading})
    environment = os.environ | {
        "HOME": str(folder),
        "KUBECONFIG": str(account(site, "reader", "pod-reader", "vgpu-reader")),
        "PATH": f"{folder}:{os.environ['PATH']}",
    }

    def run(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(programs["kubectl"]), "vgpu", *arguments],
            capture_output=True,
            check=False,
            env=environment | more,
            input=stdin,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture(scope="module")
def team(site: Installation) -> str:
    """Return a namespace with a pod on each node, bound through our hook, and one that waits."""
    name = site.namespace()
    make(site, name, "sliced", memory=5000, mode="mig")
    bind(site, name, "sliced", node="cut")
    make(site, name, "shared", memory=10000, mode="hami-core")
    bind(site, name, "shared", node="soft")
    late = make(site, name, "late", memory=9000, mode="hami-core")
    said = {
        "metadata": {"name": "late.1"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": "0/2 nodes are available",
        "regarding": {"kind": "Pod", "namespace": name} | ident(late),
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-0",
        "eventTime": datetime.now(UTC).isoformat(),
    }
    site.api.create(f"/apis/events.k8s.io/v1/namespaces/{name}/events", said)
    site.create(name, pod(container()) | {"metadata": {"name": "plain"}})
    return name


def ident(stored: Json) -> Json:
    return {key: stored["metadata"][key] for key in ("name", "uid")}


def rows(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """Return the cells of a table without its header."""
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.splitlines()]


def test_gpus_are_listed_as_a_plugin_of_kubectl(vgpu: Vgpu, team: str) -> None:
    """Every GPU of the inventory is a row, with what is promised and what it still takes."""
    assert team
    assert rows(vgpu("get", "gpus", "--no-headers")) == [
        ["cut/0", "A30", "mig", "1x1g.6gb", "5836/24258Mi", "11672Mi", "ok"],
        ["soft/0", "Tesla-T4", "hami-core", "1-of-10", "10000/15360Mi", "5360Mi", "ok"],
    ]


def test_nodes_are_listed(vgpu: Vgpu, team: str) -> None:
    """Their sums are those of their GPUs."""
    assert team
    found = rows(vgpu("get", "nodes", "--no-headers"))

    assert [row[:6] for row in found] == [
        ["cut", "A30", "mig", "1", "24%", "11672Mi"],
        ["soft", "Tesla-T4", "hami-core", "1", "65%", "5360Mi"],
    ]


def test_pods_are_listed_with_what_each_was_given(vgpu: Vgpu, team: str) -> None:
    """Bound and waiting ones, and none that asks for nothing."""
    found = rows(vgpu("get", "pods", "-n", team, "--no-headers"))

    assert [row[:-1] for row in found] == [
        ["late", "Waiting", "9000Mi", "<none>", "<none>"],
        ["shared", "Bound", "10000Mi", "10000Mi", "soft/0"],
        ["sliced", "Bound", "5000Mi", "1g.6gb", "cut/0"],
    ]


def test_layouts_are_drawn(vgpu: Vgpu, team: str) -> None:
    """Each holder is named beside its place."""
    done = vgpu("layout", "cut")

    assert (done.returncode, done.stderr) == (0, "")
    assert f"a  {team}/sliced, main: 1g.6gb at slot" in done.stdout


def test_a_bound_pod_is_explained(vgpu: Vgpu, team: str) -> None:
    """What it asked, what was decided, and which slots it has."""
    done = vgpu("why", "pod/sliced", "-n", team)

    assert (done.returncode, done.stderr) == (0, "")
    assert "BOUND" in done.stdout.splitlines()[0]
    assert "mode mig, named by the pod [" in done.stdout
    assert "holds     main: mig, 1g.6gb at slot" in done.stdout


def test_a_pod_that_waits_is_told_what_each_node_lacks(vgpu: Vgpu, team: str) -> None:
    """With amounts, what to ask for instead, and whose end would help."""
    done = vgpu("why", "late", "-n", team)

    assert (done.returncode, done.stderr) == (0, "")
    first, second, *_ = done.stdout.splitlines()
    assert first == "WAITING   asks for 9000 MiB on one GPU; the closest has 5360 free"
    assert second == "try       ask for at most 5360 MiB now, or wait"
    assert 'soft: container "main": asks for 9000 MiB on one GPU' in done.stdout
    assert 'cut: mode "hami-core" is not available here' in done.stdout
    assert f"or after  {team}/shared on soft ends" in done.stdout
    assert "default-scheduler: FailedScheduling: 0/2 nodes are available" in done.stdout


def making(name: str, owner: Json | None = None) -> Json:
    """Write a workload of two pods that ask for 9000 MiB; *owner* is what made it."""
    labels = {"app": "web"}
    spec = pod(container(limits={NUMBER: 1, MEMORY: 9000}))["spec"]
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": owners(owner)},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def owners(owner: Json | None) -> list[Json]:
    if owner is None:
        return []
    kind = {key: owner[key] for key in ("apiVersion", "kind")}
    return [kind | ident(owner) | {"controller": True}]


def test_the_pods_of_a_deployment_are_explained(site: Installation, vgpu: Vgpu, team: str) -> None:
    """Those that its ReplicaSets made, with rights that `view` grants; others with its labels not.

    Without a pod, what it would make is held against what is free.
    """
    apps, pods = f"/apis/apps/v1/namespaces/{team}", f"/api/v1/namespaces/{team}/pods"
    web = site.api.create(f"{apps}/deployments", making("web")).body
    between = site.api.create(f"{apps}/replicasets", making("web-1", web)).body
    labels = {"labels": {"app": "web"}}
    site.api.patch(f"{pods}/shared", {"metadata": labels})

    before = vgpu("why", "deploy/web", "-n", team)
    site.api.patch(f"{pods}/late", {"metadata": labels | {"ownerReferences": owners(between)}})
    done = vgpu("why", "deploy/web", "-n", team)
    missing = vgpu("why", "rs/nothing", "-n", team)

    assert (before.returncode, before.stderr) == (0, "")
    assert before.stdout.startswith("NO PODS   none was created yet\n")
    assert f"workload  Deployment {team}/web\n" in before.stdout
    assert "from      the stored Deployment, spec.template\n" in before.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("WAITING   asks for 9000 MiB on one GPU; ")
    assert "pods      1 Waiting; 2 wanted\n" in done.stdout
    assert "ask for at most 5360 MiB now" in done.stdout
    assert f"{team}/shared on soft ends" in done.stdout
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == (
        'Error from server (NotFound): replicasets.apps "nothing" not found\n'
    )


MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: w}}
spec: {{template: {{spec: {{containers: [{{name: main, image: "example.com/a:1",
  resources: {{limits: {{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: {memory}}}}}}}]}}}}}}
"""


@pytest.mark.parametrize(
    ("memory", "code", "word"),
    [(3000, 0, "FITS NOW"), (14000, 4, "NOT NOW"), (90000, 5, "NEVER FITS")],
)
def test_a_manifest_is_held_against_what_is_free(
    vgpu: Vgpu, team: str, *, memory: int, code: int, word: str
) -> None:
    """The exit code tells now from later from never, and nothing is created."""
    done = vgpu("fit", "-n", team, "-f", "-", stdin=MANIFEST.format(memory=memory))

    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.splitlines()[0].endswith(word)
    assert f"Deployment {team}/w" in done.stdout


@pytest.mark.parametrize(
    ("amounts", "code", "word"),
    [
        (("--memory=3000",), 0, "FITS NOW"),
        (("--memory=14000Mi", "--mode=hami-core"), 4, "NOT NOW"),
        (("--memory=3000", "--count=2"), 5, "NEVER FITS"),
        (("--memory=20000", "--model=T4"), 5, "NEVER FITS"),
    ],
)
def test_amounts_are_held_against_what_is_free(
    vgpu: Vgpu, team: str, *, amounts: tuple[str, ...], code: int, word: str
) -> None:
    """Without a manifest, by the same rules."""
    done = vgpu("fit", "-n", team, *amounts)

    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.splitlines()[0].endswith(word)
    assert done.stdout.startswith(f"a pod in {team} ")


def test_documents_are_what_scripts_read(vgpu: Vgpu, team: str) -> None:
    """Both forms, of lists and of answers."""
    found = yaml.safe_load(vgpu("get", "pods", "-A", "-o", "yaml").stdout)

    assert {item["name"]: item["state"] for item in found["items"]} == {
        "late": "Waiting",
        "shared": "Bound",
        "sliced": "Bound",
    }
    why = json.loads(vgpu("why", "late", "-n", team, "-o", "json").stdout)
    assert (why["verdict"], why["endings"][0]["pod"]) == ("not-now", "shared")


def test_a_right_that_is_missing_is_named(site: Installation, vgpu: Vgpu) -> None:
    """By verb and resource, so that whoever reads it knows what to ask for."""
    done = vgpu("get", "gpus", KUBECONFIG=str(account(site, "stranger")))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error from server (Forbidden): gpunodes.vgpu-admission.io is")
    assert 'cannot list resource "gpunodes" in API group "vgpu-admission.io"' in done.stderr


def test_a_tenant_is_told_by_the_pod_itself(site: Installation, vgpu: Vgpu, team: str) -> None:
    """Who may read no more than pods learns what they hold, and what is not told."""
    tenant = str(account(site, "tenant", "pod-reader"))

    done = vgpu("why", "sliced", "-n", team, KUBECONFIG=tenant)

    assert done.returncode == 0
    assert "holds     main: mig, 1g.6gb at slot" in done.stdout
    assert done.stderr.startswith("Warning: you may not read the Namespace, GPUNodes, Nodes, ")
    assert done.stderr.endswith("ask an administrator for the ClusterRole vgpu-reader\n")
    assert done.stderr.count("\n") == 1


def test_a_pod_that_does_not_exist_is_told(vgpu: Vgpu, team: str) -> None:
    """In the words of kubectl itself."""
    done = vgpu("why", "nobody", "-n", team)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'Error from server (NotFound): pods "nobody" not found\n'


def test_a_cluster_without_us_is_told(vgpu: Vgpu, control_plane: ControlPlane) -> None:
    """The kind that is missing is named, and what is not installed."""
    done = vgpu("get", "nodes", KUBECONFIG=str(control_plane.kubeconfig))

    assert (done.returncode, done.stdout) == (1, "")
    assert "vgpu-admission is not installed in this cluster" in done.stderr


def test_kubectl_completes_our_commands(programs: Mapping[str, Path], tmp_path: Path) -> None:
    """It finds the program that completes by its name, and passes on what that says."""
    install(tmp_path)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def completed(*words: str) -> list[str]:
        done = subprocess.run(
            [str(programs["kubectl"]), "__complete", "vgpu", *words],
            capture_output=True,
            check=True,
            env=environment,
            text=True,
            timeout=60,
        )
        return [line.partition("\t")[0] for line in done.stdout.splitlines()]

    asked = ["get", "layout", "why", "fit", "decisions", "records", "who", "top", "export"]
    assert completed("") == [*asked, ":4"]
    assert completed("get", "p") == ["pods", ":4"]
    assert completed("fit", "-f", "") == [":0"]


def test_the_lease_holder_measures_what_fits_and_who_waits(site: Installation, team: str) -> None:
    """The same figures as those of the lists, for whoever is paged by them."""
    figures = (
        'vgpu_cluster_largest_fit_bytes{mode="mig"',
        'vgpu_cluster_largest_fit_bytes{mode="hami-core"',
        "vgpu_cluster_stranded_memory_bytes ",
        f'vgpu_waiting_pods{{namespace="{team}",reason=',
        f'vgpu_waiting_oldest_seconds{{namespace="{team}",reason=',
    )

    def exported() -> bool:
        text = site.first.get("/metrics")[1]
        return all(figure in text for figure in figures)

    wait_for(exported, within=90)
