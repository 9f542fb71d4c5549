"""The agent's manifests: what it may do is what it needs, and what is played says that it is."""

import re

import jsonpatch
import pytest
import yaml

import vgpu
from agent.driver.simulated_fleet import simulated_node
from agent.metax.machine import metax_machine
from agent.serve.node_events import REPORTER
from agent.serve.options import DriverKind
from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.catalog.keys import CAPACITY_KEY, NOT_READY_TAINT, SIMULATED_LABEL
from allocator.metax.names import NODE_ANNOTATIONS, NODE_LABELS
from allocator.model.problem import Loaded
from manifests.generator.names import AGENT, AGENTS, Json
from tests.unit.manifests.test_written import BASE, MANIFESTS, objects

SIMULATED = MANIFESTS / "components" / "simulated"


def daemon_set() -> Json:
    (found,) = objects("DaemonSet")
    return found


def simulated() -> Json:
    """Return the DaemonSet as the component leaves it."""
    component = yaml.safe_load((SIMULATED / "kustomization.yaml").read_text())
    (patch,) = component["patches"]
    changed: Json = jsonpatch.apply_patch(daemon_set(), yaml.safe_load(patch["patch"]))
    return changed


def container(found: Json, name: str = "agent") -> Json:
    (named,) = [
        each for each in found["spec"]["template"]["spec"]["containers"] if each["name"] == name
    ]
    return dict(named)


def test_it_runs_as_the_account_that_policies_trust() -> None:
    """In a namespace of its own: the other one keeps to Pod Security restricted."""
    found = daemon_set()

    account = found["spec"]["template"]["spec"]["serviceAccountName"]
    assert f"system:serviceaccount:{found['metadata']['namespace']}:{account}" == AGENT
    assert found["metadata"]["namespace"] == AGENTS


@pytest.mark.parametrize(
    ("make", "kind"), [(daemon_set, DriverKind.NVML), (simulated, DriverKind.SIMULATED)]
)
def test_the_program_takes_its_arguments(make: object, kind: DriverKind) -> None:
    """A flag that the command line does not know would stop every agent from starting."""
    found = container(make())  # type: ignore[operator]
    program, *arguments = found["args"]

    command = vgpu.program(program)
    context = command.make_context(program, [*arguments, "--node-name=n"])

    assert context.params["driver"] == kind
    assert context.params["metrics"].port == found["ports"][0]["containerPort"]


@pytest.mark.parametrize("make", [daemon_set, simulated])
def test_the_relay_takes_its_arguments(make: object) -> None:
    """Agent and relay meet in a folder that both have, and that no other pod has."""
    agent, relay = container(make()), container(make(), "relay")  # type: ignore[operator]
    program, *arguments = relay["args"]

    context = vgpu.program(program).make_context(program, [*arguments, "--node-name=n"])

    folder = f"--relay-dir={context.params['folder']}"
    assert folder in agent["args"]
    assert folder in relay["args"]
    mounts = [
        {mount["name"]: mount["mountPath"] for mount in each["volumeMounts"]}
        for each in (agent, relay)
    ]
    assert mounts[0]["relay"] == mounts[1]["relay"] == str(context.params["folder"])
    assert mounts[1].items() <= mounts[0].items()
    volumes = make()["spec"]["template"]["spec"]["volumes"]  # type: ignore[operator]
    assert [set(volume) - {"name"} for volume in volumes if volume["name"] == "relay"] == [
        {"emptyDir"}
    ]


def test_the_relay_has_no_privilege() -> None:
    """It speaks to sockets and writes the files of slots, all of which belong to root."""
    relay = container(daemon_set(), "relay")

    assert relay["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert relay["securityContext"]["readOnlyRootFilesystem"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in relay["env"]


def test_two_agents_never_serve_one_node() -> None:
    """Kubelet disconnects the new plugin when the old one's stream ends."""
    assert daemon_set()["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def test_it_runs_where_somebody_asked_for_it() -> None:
    """Installing takes no node away from the plugin that serves it."""
    assert daemon_set()["spec"]["template"]["spec"]["nodeSelector"] == {
        "vgpu-admission.io/node": "enabled"
    }


def test_simulated_gpus_are_where_somebody_asked_for_them() -> None:
    """As real ones: also on the one node of kind or minikube, which is its control plane."""
    simulated_spec = simulated()["spec"]["template"]["spec"]
    spec = daemon_set()["spec"]["template"]["spec"]

    assert "affinity" not in simulated_spec
    for field in ("nodeSelector", "tolerations"):
        assert simulated_spec[field] == spec[field]


def test_every_privilege_has_its_reason_beside_it() -> None:
    """It is not privileged; each capability stands on a line with why."""
    security = container(daemon_set())["securityContext"]
    text = (BASE / "agent.yaml").read_text()
    lines = dict(re.findall(r"(?m)^ +- ([A-Z_]+) +# (.+)$", text))

    assert "privileged" not in security
    assert security["capabilities"]["drop"] == ["ALL"]
    assert security["readOnlyRootFilesystem"]
    assert lines.keys() == set(security["capabilities"]["add"])


def test_nothing_is_mounted_that_is_not_its_own_business() -> None:
    """No container runtime's socket, no root of the node, nothing of other pods."""
    volumes = daemon_set()["spec"]["template"]["spec"]["volumes"]

    assert {volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume} == {
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/pod-resources",
        "/var/lib/vgpu-admission",
        "/usr/local/vgpu",
        "/var/run/cdi",
        "/dev/nvidia-caps",
        "/etc/containerd",
    }


def test_what_it_only_reads_it_cannot_write() -> None:
    """A socket can be spoken to through a folder in which nothing can be put in its place."""
    mounts = container(daemon_set())["volumeMounts"]

    read = {mount["name"] for mount in mounts if mount.get("readOnly")}
    assert read == {"pod-resources", "containerd"}


def test_the_played_agent_needs_no_rights_over_hardware() -> None:
    """It cuts nothing and makes no device files."""
    added = set(container(simulated())["securityContext"]["capabilities"]["add"])
    real = set(container(daemon_set())["securityContext"]["capabilities"]["add"])

    assert real - added == {"SYS_ADMIN", "MKNOD"}
    assert "/dev/nvidia-caps" not in str(simulated())


def test_the_fleet_that_is_shipped_can_be_played() -> None:
    """By nodes of any name; two names are those of MetaX's nodes, one in each mode."""
    text = (SIMULATED / "fleet.yaml").read_text()
    machines = [metax_machine(text, node=name) for name in ("metax-shared", "metax-whole", "n")]

    assert isinstance(simulated_node(text, node="n", boot="b"), Loaded)
    assert [getattr(machine, "mode", None) for machine in machines] == ["sgpu", "native", None]


def test_simulated_agents_may_write_what_metaxs_components_write() -> None:
    """The base refuses them: on a MetaX node the control plane believes these keys."""
    component = yaml.safe_load((SIMULATED / "kustomization.yaml").read_text())
    (folder, *others) = component["components"]
    assert not others
    (patch,) = yaml.safe_load((SIMULATED / folder / "kustomization.yaml").read_text())["patches"]
    (base,) = [
        each
        for each in objects("ValidatingAdmissionPolicy")
        if each["metadata"]["name"] == patch["target"]["name"]
    ]

    changed = jsonpatch.apply_patch(base, yaml.safe_load(patch["patch"]))

    before, after = (each["spec"].pop("validations") for each in (base, changed))
    assert base == changed
    (index,) = [n for n, rule in enumerate(before) if rule != after[n]]
    keys = {*NODE_ANNOTATIONS, *NODE_LABELS, LOCK_ANNOTATION, SIMULATED_LABEL}
    told = [
        {key for key in keys if key in rule["expression"]} for rule in (before[index], after[index])
    ]
    assert told == [set(), keys]


def test_all_that_is_played_says_so() -> None:
    """Every object carries the label and the annotation, the pods of the DaemonSet too."""
    component = yaml.safe_load((SIMULATED / "kustomization.yaml").read_text())

    assert component["labels"] == [{"pairs": {"vgpu-admission.io/simulated": "true"}}]
    assert "simulated" in component["commonAnnotations"]["vgpu-admission.io/simulated"]
    labels = simulated()["spec"]["template"]["metadata"]["labels"]
    assert labels["vgpu-admission.io/simulated"] == "true"


def test_evictions_are_a_right_of_their_own() -> None:
    """No policy can hold one to the agent's node, so a site decides."""
    rules = [rule for role in objects("ClusterRole") for rule in role["rules"]]
    agents = [role for role in objects("ClusterRole") if role["metadata"]["name"] == "vgpu-agent"]
    more = yaml.safe_load_all((MANIFESTS / "components/evict/rbac.yaml").read_text())

    assert rules
    assert not [r for role in agents for r in role["rules"] if "pods/eviction" in r["resources"]]
    assert next(iter(more))["rules"][0]["resources"] == ["pods/eviction"]


def test_the_policy_knows_the_names_that_the_agent_writes() -> None:
    """Another key would be refused at its first write."""
    text = (BASE / "policies.yaml").read_text()

    assert f"'{CAPACITY_KEY}'" in text
    assert f"'{NOT_READY_TAINT}'" in text
    assert f"'{REPORTER}'" in text
