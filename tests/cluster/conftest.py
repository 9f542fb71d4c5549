"""Fixtures that hand tests a real control plane, which is built before the first of them runs."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from allocator.model.request import Mode
from tests.builders.model import A100_40, T4, nodes_of
from tests.cluster import tenant_program
from tests.cluster.api import Api, wait_for
from tests.cluster.control_plane import ControlPlane, Settings
from tests.cluster.controlplane import build
from tests.cluster.controlplane.binaries import DEFAULT
from tests.cluster.controlplane.toolchain import BuildError
from tests.cluster.gate import missing
from tests.cluster.installation import Installation, installation
from tests.cluster.kubelet import Node
from tests.cluster.node_agent import GpuNode, served
from tests.cluster.node_pods import device_of, hard, running, soft, team_of
from tests.cluster.node_site import IMAGES, node_site
from tests.cluster.volcano_site import Rig, volcano_site

_PROGRAMS = pytest.StashKey[Mapping[str, Path] | BuildError]()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test below this folder, the only ones this hook is called for."""
    item.add_marker("cluster")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Build before the first test, whose time limit and captured output are not for that."""
    needed = any("programs" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not needed:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            session.config.stash[_PROGRAMS] = build.build(DEFAULT, build.to_stderr)
    except BuildError as error:
        session.config.stash[_PROGRAMS] = error


# Two nodes as Volcano's plugin registers them, until its v1.9.4 and since.
_FIVE_FIELDS = "".join(f"GPU-{n},10,32768,NVIDIA-Tesla V100-SXM2-32GB,true:" for n in range(2))
_SIX_FIELDS = "GPU-0,7,24576,NVIDIA-NVIDIA A30,true,mig:"
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "resources": [{"group": "", "resources": ["pods"]}]}],
}


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Mapping[str, Path]:
    """Return the programs of the control plane by name."""
    found = pytestconfig.stash[_PROGRAMS]
    if isinstance(found, BuildError):
        missing(f"no control plane: {found}")
    return found


@pytest.fixture(scope="session")
def control_plane(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Yield one control plane for all tests, each of which keeps to a namespace of its own."""
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(folder, programs, Settings(controllers=True)) as plane:
        yield plane


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Iterator[Api]:
    """Yield a client of the shared control plane as its administrator."""
    with control_plane.api() as client:
        yield client


@pytest.fixture
def new_namespace(
    api: Api, request: pytest.FixtureRequest
) -> Iterator[Callable[[Mapping[str, str]], str]]:
    """Yield a function that makes a namespace with labels; they go when the test ends."""
    made: list[str] = []

    def make(labels: Mapping[str, str]) -> str:
        stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
        metadata = {"generateName": f"{stem}-", "labels": dict(labels)}
        created = api.create("/api/v1/namespaces", {"metadata": metadata})
        name: str = created.body["metadata"]["name"]
        made.append(name)
        # No pod is admitted before the controllers have given the namespace its account.
        wait_for(lambda: api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
        return name

    yield make
    for name in made:
        api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def namespace(
    new_namespace: Callable[[Mapping[str, str]], str], request: pytest.FixtureRequest
) -> str:
    """Return a namespace of the test's own, labelled with its indirect parameter if it has one."""
    return new_namespace(getattr(request, "param", {}))


@pytest.fixture(scope="session")
def gpu_site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation with GPUs of every kind, for tests that keep to their own namespaces.

    No controllers run there, so a pod needs no account and a namespace can be used at once.
    """
    folder = tmp_path_factory.mktemp("gpu-site")
    with installation(programs, folder, settings=Settings(audit_policy=_AUDIT)) as site:
        site.add_node(nodes_of(8, A100_40, mode=Mode.MIG, name="a100"))
        site.add_node(nodes_of(4, T4, name="t4"))
        site.add_upstream_node("old", _FIVE_FIELDS)
        site.add_upstream_node("new", _SIX_FIELDS)
        site.wait_for_models("A100", "T4", "V100", "A30")
        yield site


@pytest.fixture(scope="session")
def rig(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Yield an installation with Volcano, for tests that keep to their own nodes."""
    with volcano_site(programs, tmp_path_factory.mktemp("volcano")) as found:
        yield found


@pytest.fixture(scope="session")
def node(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Yield a real node, for tests that keep to their own namespaces."""
    folder = tmp_path_factory.mktemp("node")
    with node_site(programs, folder, images=IMAGES, more=tenant_program.files()) as found:
        yield found


@pytest.fixture(scope="session")
def gpu_node(node: Node) -> Iterator[GpuNode]:
    """Yield that node with GPUs and our agent."""
    with served(node) as found:
        yield found


@pytest.fixture
def team(gpu_node: GpuNode) -> Iterator[str]:
    """Yield a namespace whose pods are gone when the test is over."""
    with team_of(gpu_node) as name:
        yield name


@pytest.fixture
def tenants(gpu_node: GpuNode, team: str) -> dict[str, str]:
    """Return the device of a running pod in each mode, by the pod's name."""
    gpu_node.site.create(team, soft(name="soft"))
    gpu_node.site.create(team, hard(name="hard"))
    return {
        name: device_of(gpu_node, running(gpu_node.site, team, name)) for name in ("soft", "hard")
    }


@pytest.fixture
def opted_in(gpu_site: Installation) -> str:
    """Return a namespace of that installation whose pods come to our webhook."""
    return gpu_site.namespace()


@pytest.fixture(scope="session")
def kubectl(programs: Mapping[str, Path], control_plane: ControlPlane) -> Callable[..., str]:
    """Return a function that runs kubectl as administrator and returns what it prints."""

    def run(*arguments: str, stdin: str = "") -> str:
        answer = subprocess.run(
            [programs["kubectl"], f"--kubeconfig={control_plane.kubeconfig}", *arguments],
            capture_output=True,
            check=False,
            env=os.environ | {"HOME": str(control_plane.folder)},  # its preferences and cache
            input=stdin,
            text=True,
        )
        assert answer.returncode == 0, f"kubectl {' '.join(arguments)}: {answer.stderr}"
        return answer.stdout

    return run
