"""docs/uninstall.md in every order that a person might choose, on what the README installed.

They follow tests/install/test_install.py, whose installation the first of them removes.
"""

import time
from collections.abc import Callable

import pytest

from tests.cluster.api import Json, wait_for
from tests.install.conftest import INSTALL
from tests.install.one_node import NODE, CommandError
from tests.install.person import TEAM, WITHIN, Person, blocks

PAGE = "docs/uninstall.md"
UNLABEL, DELETE = blocks(PAGE, "## The whole product")
UNBLOCK = blocks(PAGE, "### The cluster creates no pods")[0]
CLEAN, _ = blocks(PAGE, "## What is left on a node")
MINE = "manifests/mine"
ENDS_WITHIN = 90.0  # seconds; a deletion that waits for somebody who is gone never ends
# What a device plugin of ours has offered to kubelet.
SLOTS = {"volcano.sh/vgpu-number", "metax-tech.com/gpu", "metax-tech.com/sgpu"}
PLAIN = """
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: docker.io/library/debian:12, command: [sleep, infinity]}
"""


def install(someone: Person) -> None:
    """Apply what the person applied before, where it is not there, and start a pod with a slice."""
    for commands in INSTALL[3:5]:
        lines = [line for line in commands.splitlines() if "create namespace" not in line]
        someone.paste("\n".join(lines))
    someone.cluster.kubectl("delete", "pods", "-n", TEAM, "--all")
    someone.run("stays")


def container(someone: Person) -> str:
    """Return the id of the container that must outlive all that happens."""
    pod: Json = someone.cluster.get("pod", "-n", TEAM, "stays")
    return str(pod["status"]["containerStatuses"][0]["containerID"])


def delete(someone: Person) -> None:
    """Paste the deletion of the page; fail where it takes too long to be ending at all."""
    begun = time.monotonic()
    someone.paste(
        DELETE.replace("kubectl delete", f"timeout {ENDS_WITHIN} kubectl delete"), folder=MINE
    )
    assert time.monotonic() - begun < ENDS_WITHIN


def first_nothing(someone: Person) -> None:
    """Take the agents off their nodes, as the page begins."""
    someone.paste(UNLABEL)
    wait_for(lambda: "vgpu-agent" not in agents(someone), within=WITHIN)


def agents(someone: Person) -> str:
    return someone.cluster.kubectl("get", "pods", "-n", "vgpu-admission-agents", "-o", "name")


def with_agents_running(someone: Person) -> None:
    """Go on with the deletion at once."""
    assert "vgpu-agent" in agents(someone)


def agents_first(someone: Person) -> None:
    someone.paste("kubectl delete namespace vgpu-admission-agents")


def definition_first(someone: Person) -> None:
    someone.paste("kubectl delete crd gpunodes.vgpu-admission.io")


def registrations_first(someone: Person) -> None:
    someone.paste(UNBLOCK)


def control_plane_first(someone: Person) -> None:
    """See that nothing is created, as the page says, and do what it says then."""
    someone.paste("kubectl delete namespace vgpu-admission-system")
    with pytest.raises(CommandError, match="vgpu-admission"):
        someone.run("refused")
    someone.paste(UNBLOCK)


@pytest.mark.parametrize(
    "begin",
    [
        first_nothing,
        with_agents_running,
        agents_first,
        control_plane_first,
        definition_first,
        registrations_first,
    ],
)
def test_it_leaves(someone: Person, begin: Callable[[Person], None]) -> None:
    """The deletion ends, the pod goes on, others can be created, and it installs again."""
    cluster = someone.cluster
    install(someone)
    before = container(someone)

    begin(someone)
    delete(someone)
    someone.paste(CLEAN)

    assert container(someone) == before
    cluster.kubectl("apply", "-n", TEAM, "-f", "-", stdin=PLAIN)
    wait_for(lambda: someone.phase("plain") == "Running", within=WITHIN)
    wait_for(lambda: not traces(someone), within=WITHIN)  # of kubelet's allocatable


def traces(someone: Person) -> list[str]:
    """Return what is left of us in the API server, but for the label of the namespace.

    Kubelet's count of the slots is not ours: it is 0, and goes five minutes after the last agent.
    """
    node = someone.cluster.get("node", NODE)
    metadata = {**node["metadata"]["labels"], **node["metadata"]["annotations"]}
    capacity = {*node["status"]["capacity"], *node["status"]["allocatable"]}
    words = ("vgpu", "volcano", "metax")
    ours = [key for key in {*metadata, *capacity} if any(word in key for word in words)]
    kinds = "crd,clusterrole,clusterrolebinding,namespace,flowschema,prioritylevelconfiguration"
    policies = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    hooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    listed = someone.cluster.kubectl("get", f"{kinds},{policies},{hooks}", "-o", "name")
    objects = [name for name in listed.splitlines() if "vgpu" in name]
    return sorted(set(ours) - SLOTS) + objects
