"""MetaX's GPUs from the installed image: docs/metax.md on a node without any.

The node gives its simulated GPUs out in shares, then whole, and is left. The tests are one story
with tests/install/test_install.py, whose installation is removed first; it may never have been.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from agent.metax.plugin_server import VISIBLE
from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.catalog.keys import SIMULATED_LABEL
from allocator.metax.names import ALLOCATED_KEY, CARDS_KEY, GPU, SGPU, VCORE, VMEMORY
from tests.cluster.api import Json, wait_for
from tests.install.conftest import INSTALL
from tests.install.one_node import NODE, CommandError, scheduler_with
from tests.install.person import TEAM, WITHIN, Person, blocks, person
from tests.install.test_install import KUSTOMIZATION, entries, running, variables
from tests.install.test_uninstall import (
    CLEAN,
    PLAIN,
    agents,
    delete,
    first_nothing,
    traces,
    with_agents_running,
)

SHARE, WHOLE, UNMARK = blocks("docs/metax.md", "## Without MetaX's hardware")
EXTENDER = blocks("docs/extender.md", "## Switch it on")[0]  # the files for the scheduler
OFFERED_WITHIN = 180.0  # seconds; a new mode waits until kubelet has forgotten the old one
SOCKETS = "var/lib/kubelet/device-plugins"


@pytest.fixture(scope="module")
def newcomer(someone: Person) -> Person:
    """Return someone whose cluster is as before the README, but for the namespace of the team."""
    if (someone.checkout / KUSTOMIZATION).exists():
        someone.cluster.kubectl("delete", "pods", "-n", TEAM, "--all")
        first_nothing(someone)
        delete(someone)
    else:
        someone.cluster.kubectl("create", "namespace", TEAM)
    someone.cluster.kubectl(
        "label", "namespace", TEAM, "vgpu-admission.io/inject=enabled", "--overwrite"
    )
    return someone


@pytest.fixture(scope="module")
def owner(newcomer: Person, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Yield someone whose node simulates shared GPUs, under a scheduler that asks the extender."""
    found = person(newcomer.cluster, tmp_path_factory.mktemp("metax"))
    found.paste("\n".join(INSTALL[1:3]))
    file = found.checkout / KUSTOMIZATION
    file.write_text(file.read_text() + "components:\n- ../components/extender\n")
    found.paste(SHARE)
    for namespace, workload in (
        ("vgpu-admission-system", "deployment/vgpu-webhook"),
        ("vgpu-admission-agents", "daemonset/vgpu-agent"),
    ):
        rollout = ("rollout", "status", workload, "--timeout=180s")
        found.cluster.kubectl("-n", namespace, *rollout)
    wait_for(lambda: secret_is_there(found), within=WITHIN)
    found.paste(EXTENDER)
    with scheduler_with(found.cluster, asked(found)):
        yield found


def secret_is_there(someone: Person) -> bool:
    """Say whether schedulers have their certificate yet."""
    try:
        someone.cluster.get("secret", "-n", "vgpu-admission-system", "vgpu-extender-client")
    except CommandError:
        return False
    return True


def asked(someone: Person) -> Json:
    """Return what docs/extender.md has a scheduler ask, with the resources of MetaX's too.

    Nobody serves names in this cluster, so the address of the Service stands for its name.
    """
    page = (someone.checkout / "docs/extender.md").read_text()
    written = page.partition("```yaml\n")[2].partition("```")[0]
    (found,) = yaml.safe_load(written)["extenders"]
    service = someone.cluster.get("service", "-n", "vgpu-admission-system", "vgpu-webhook")
    address = service["spec"]["clusterIP"]
    url = found["urlPrefix"].replace("vgpu-webhook.vgpu-admission-system.svc", address)
    overlay = someone.checkout / "manifests/overlays/kube-scheduler/configuration.yaml"
    (every,) = yaml.safe_load(overlay.read_text())["extenders"]
    return {**found, "urlPrefix": url, "managedResources": every["managedResources"]}


def offered(someone: Person) -> tuple[str, str]:
    """Return what kubelet offers of whole GPUs and of shares."""
    allocatable = someone.cluster.get("node", NODE)["status"]["allocatable"]
    return allocatable.get(GPU, "0"), allocatable.get(SGPU, "0")


def started(someone: Person, name: str, limits: Json) -> Json:
    """Create a pod, and return it once it runs."""
    manifest = someone.pod(name)
    manifest["spec"]["containers"][0]["resources"] = {"limits": limits}
    someone.cluster.kubectl("-n", TEAM, "create", "-f", "-", stdin=json.dumps(manifest))
    try:
        wait_for(lambda: someone.phase(name) == "Running", within=WITHIN)
    except TimeoutError:
        raise AssertionError(someone.cluster.kubectl("describe", "pod", "-n", TEAM, name)) from None
    return someone.cluster.get("pod", "-n", TEAM, name)


def promised(someone: Person, name: str) -> list[str]:
    """Return the GPUs that the ledger has for a pod."""
    (entry,) = [each for each in entries(someone.cluster) if each["pod"]["name"] == name]
    return [device["gpu"] for device in entry["containers"][0]["devices"]]


def test_shares_start_from_the_installed_image(owner: Person) -> None:
    """On the GPU that the ledger names; two that fit share one, and a third one would not."""
    wait_for(lambda: offered(owner) == ("0", "128"), within=OFFERED_WITHIN)
    first = started(owner, "share", {SGPU: 1, VCORE: 60, VMEMORY: 4})
    second = started(owner, "small", {SGPU: 1, VCORE: 40, VMEMORY: 2})
    third = started(owner, "third", {SGPU: 1, VCORE: 10, VMEMORY: 2})

    gpus = {}
    for pod in (first, second, third):
        name = pod["metadata"]["name"]
        ((given,),) = json.loads(pod["metadata"]["annotations"][ALLOCATED_KEY])
        seen = variables(owner, name)
        assert [seen[VISIBLE]] == [given["uuid"]] == promised(owner, name)
        assert seen["NVIDIA_VISIBLE_DEVICES"] == "void"
        gpus[name] = given["uuid"]
    assert gpus["share"] == gpus["small"] != gpus["third"]
    assert LOCK_ANNOTATION not in owner.cluster.get("node", NODE)["metadata"]["annotations"]


def test_whole_gpus_start_on_the_node_in_its_other_mode(owner: Person) -> None:
    """With the names in the fleet file exchanged, and the pods with shares gone."""
    owner.cluster.kubectl("delete", "pods", "-n", TEAM, "--all")
    wait_for(lambda: not entries(owner.cluster), within=WITHIN)

    owner.paste(WHOLE)
    wait_for(lambda: offered(owner) == ("8", "0"), within=OFFERED_WITHIN)

    started(owner, "whole", {GPU: 2})
    seen = variables(owner, "whole")
    devices = seen[VISIBLE].split(",")
    assert len(set(devices)) == 2
    assert seen["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert len(promised(owner, "whole")) == 2
    assert CARDS_KEY not in owner.cluster.get("node", NODE)["metadata"]["annotations"]


def sockets(someone: Person) -> list[str]:
    """Return the sockets of device plugins on the node, which are ours alone there."""
    folder: Path = someone.cluster.host.folder / SOCKETS
    return sorted(path.name for path in folder.iterdir() if path.is_socket())


@pytest.mark.parametrize("begin", [first_nothing, with_agents_running])
def test_it_leaves_a_node_of_metax(owner: Person, begin: Callable[[Person], None]) -> None:
    """The deletion ends, the pod runs on, no mark and no socket stays, and kubelet offers none."""
    cluster = owner.cluster
    if not agents(owner):  # the one before this has left
        owner.paste("\n".join(line for line in SHARE.splitlines() if line.startswith("kubectl")))
        wait_for(lambda: offered(owner) == ("8", "0"), within=OFFERED_WITHIN)
    before = running(owner, "whole")

    begin(owner)
    delete(owner)
    if begin is with_agents_running:
        assert SIMULATED_LABEL in cluster.get("node", NODE)["metadata"]["labels"]
        owner.paste(UNMARK)
    owner.paste(CLEAN)

    wait_for(lambda: offered(owner) == ("0", "0"), within=WITHIN)
    wait_for(lambda: not traces(owner), within=WITHIN)
    wait_for(lambda: sockets(owner) == ["kubelet.sock"], within=WITHIN)
    assert running(owner, "whole") == before
    cluster.kubectl("apply", "-n", TEAM, "-f", "-", stdin=PLAIN)
    wait_for(lambda: owner.phase("plain") == "Running", within=WITHIN)
    cluster.kubectl("delete", "-n", TEAM, "pod", "plain")
