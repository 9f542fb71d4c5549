"""From the README to a running pod and to an upgrade, as a person does it.

The tests are one story, and each begins where the one before it has ended.
"""

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Mapping

import pytest

from tests.cluster.api import Json, wait_for
from tests.install.conftest import INSTALL
from tests.install.one_node import NODE, CommandError, OneNode
from tests.install.person import TEAM, WITHIN, Person, blocks

CERTIFICATES = "vgpu-webhook-certificates"
WEBHOOK_PODS = "app.kubernetes.io/component=webhook"
KUSTOMIZATION = "manifests/mine/kustomization.yaml"


def entries(cluster: OneNode) -> list[Json]:
    """Return the entries in the ledger of the node."""
    found: list[Json] = cluster.get("gpunode", NODE).get("spec", {}).get("entries") or []
    return found


def images(cluster: OneNode) -> set[str]:
    """Return the images that our containers run."""
    pods = [
        *cluster.get("pods", "-n", "vgpu-admission-agents")["items"],
        *cluster.get("pods", "-n", "vgpu-admission-system")["items"],
    ]
    return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def variables(someone: Person, name: str) -> dict[str, str]:
    """Return the variables of a pod's container."""
    lines = someone.inside(name, "env").splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def metrics(cluster: OneNode, namespace: str, port: int) -> dict[str, float]:
    """Return the samples of a namespace's pods, added up, read through the API server."""
    total: dict[str, float] = defaultdict(float)
    for pod in cluster.get("pods", "-n", namespace)["items"]:
        name = pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"
        for line in cluster.kubectl("get", f"--raw={path}").splitlines():
            sample, _, value = line.rpartition(" ")
            if not line.startswith("#"):
                total[sample] += float(value)
    return total


def test_the_readme_installs_it(someone: Person) -> None:
    """Every command from the copy of the example to the pod succeeds, pasted in order."""
    build, *rest = INSTALL
    assert build.startswith("docker build"), "the image was built from the same Dockerfile"

    printed = [someone.paste(commands) for commands in rest]

    assert "RUNNING" in printed[-1]
    assert NODE in printed[-1]


def test_the_image_says_its_version(someone: Person) -> None:
    """It is the one of the project file, though nothing is installed in the image."""
    project = tomllib.loads((someone.checkout / "pyproject.toml").read_text())["project"]
    command = ("-n", "vgpu-admission-agents", "ds/vgpu-agent", "--", "python", "-m", "vgpu")

    printed = someone.cluster.kubectl("exec", *command, "--version")

    assert printed.strip() == f"vgpu, version {project['version']}"


def test_a_container_sees_its_instance(someone: Person) -> None:
    """Its variables name the MIG instance that the ledger gives it; the library is not loaded."""
    node = someone.cluster.get("gpunode", NODE)

    seen = variables(someone, "slice")

    assert seen["NVIDIA_VISIBLE_DEVICES"] in {i["uuid"] for i in node["status"]["instances"]}
    assert someone.inside("slice", "cat", "/etc/ld.so.preload") == ""


def test_a_container_sees_its_limit(someone: Person) -> None:
    """With hami-core it sees the whole GPU; the library is mounted, and its region is there.

    The simulated driver's library intercepts nothing, so no program is made to load it.
    """
    cluster = someone.cluster
    someone.run("soft", **{"volcano.sh/vgpu-mode": "hami-core"})
    (entry,) = [e for e in entries(cluster) if e["pod"]["name"] == "soft"]
    (device,) = entry["containers"][0]["devices"]

    seen = variables(someone, "soft")

    assert seen["NVIDIA_VISIBLE_DEVICES"] == device["gpu"]
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    mounts = someone.inside("soft", "cat", "/proc/self/mounts")
    for place in ("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so"):
        assert re.search(rf"(?m)^\S+ {place} \S+ ro,", mounts), mounts
    region = seen["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
    assert int(someone.inside("soft", "stat", "-c%s", region)) > 1 << 20


def test_metrics_say_so(someone: Person) -> None:
    """The webhook has counted the pods, and the agent exports their limits."""
    counted = metrics(someone.cluster, "vgpu-admission-system", 8080)
    exported = metrics(someone.cluster, "vgpu-admission-agents", 9394)

    rewritten = {
        name: value
        for name, value in counted.items()
        if 'decisions_total{decision="rewritten"' in name and TEAM in name
    }
    assert sum(rewritten.values()) >= 2, counted
    limits = {
        re.findall('podname="(.*?)"', name)[0]: value
        for name, value in exported.items()
        if name.startswith("vGPU_device_memory_limit_in_bytes{")
    }
    assert limits == {"slice": 4864 << 20, "soft": 3000 << 20}


def test_only_the_api_server_knows_where_the_hooks_are(someone: Person) -> None:
    """A review that somebody else sends is not read; at the registered path it is."""
    cluster = someone.cluster
    (hook, *_) = cluster.get("mutatingwebhookconfiguration", "vgpu-admission")["webhooks"]
    path = hook["clientConfig"]["service"]["path"]
    pods = cluster.get("pods", "-n", "vgpu-admission-system", "-l", WEBHOOK_PODS)["items"]

    for pod in pods:
        name = pod["metadata"]["name"]
        port = f"/api/v1/namespaces/vgpu-admission-system/pods/https:{name}:8443/proxy"
        for guess in ("/mutate/pods", "/mutate/bindings", f"/mutate/pods/{'0' * 64}"):
            with pytest.raises(CommandError, match="could not find the requested resource"):
                cluster.kubectl("create", f"--raw={port}{guess}", "-f", "-", stdin="{}")
        with pytest.raises(CommandError, match="rejected our request"):
            cluster.kubectl("create", f"--raw={port}{path}", "-f", "-", stdin="{}")


def test_its_end_frees_the_gpu(someone: Person) -> None:
    """The ledger forgets it."""
    cluster = someone.cluster
    assert {entry["pod"]["name"] for entry in entries(cluster)} == {"slice", "soft"}

    cluster.kubectl("delete", "pod", "-n", TEAM, "slice", "soft")

    wait_for(lambda: not entries(cluster), within=WITHIN)


def test_the_certificates_are_shown_in_a_pod_of_the_webhook(someone: Person) -> None:
    """The way for whoever logs in by a program, which the image does not start."""
    *_, command = blocks("docs/certificates.md", "### By hand")

    printed = someone.paste(command)

    assert re.search(r"(?m)^phase +steady$", printed), printed


def test_all_is_served_again_after_the_certificates_are_lost(someone: Person) -> None:
    """With the Secret and every webhook pod gone, a new authority signs at once."""
    system = ("-n", "vgpu-admission-system")
    pods = ("-l", WEBHOOK_PODS, "--grace-period=0", "--force")
    before, lost = signing_authority(someone), webhook_pods(someone).keys()
    someone.cluster.kubectl(*system, "delete", "secret", CERTIFICATES)
    someone.cluster.kubectl(*system, "delete", "pod", *pods)

    wait_for(lambda: signing_authority(someone) not in {"", before}, within=WITHIN)
    # Containers of a pod that was deleted by force answer a while longer.
    wait_for(lambda: are_replaced(webhook_pods(someone), lost), within=WITHIN)
    wait_for(lambda: admits(someone), within=WITHIN)

    someone.run("renewed")
    someone.cluster.kubectl("delete", "pod", "-n", TEAM, "renewed")


def webhook_pods(someone: Person) -> dict[str, bool]:
    """Return the names of the webhook's pods, and whether each is ready."""
    pods = someone.cluster.get("pods", "-n", "vgpu-admission-system", "-l", WEBHOOK_PODS)["items"]
    return {
        pod["metadata"]["name"]: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in pod["status"].get("conditions", ())
        )
        for pod in pods
    }


def are_replaced(pods: Mapping[str, bool], lost: Collection[str]) -> bool:
    """Say whether as many *pods* as were *lost* are ready, and none of those is left."""
    return len(pods) == len(lost) and all(pods.values()) and not pods.keys() & set(lost)


def signing_authority(someone: Person) -> str:
    """Return the bundle in the Secret of the certificates; empty where there is none."""
    found = someone.cluster.get(
        "secrets", "-n", "vgpu-admission-system", "--field-selector=metadata.name=" + CERTIFICATES
    )
    return "".join(str(secret["data"].get("ca.crt", "")) for secret in found["items"])


def admits(someone: Person) -> bool:
    """Say whether our hooks let a pod through just now."""
    manifest = json.dumps(someone.pod("probe"))
    try:
        someone.cluster.kubectl("-n", TEAM, "create", "--dry-run=server", "-f", "-", stdin=manifest)
    except CommandError:
        return False
    return True


def running(someone: Person, name: str) -> str:
    """Return the id of a pod's container."""
    status = someone.cluster.get("pod", "-n", TEAM, name)["status"]
    return str(status["containerStatuses"][0]["containerID"])


def upgrade(someone: Person, old: str, new: str) -> None:
    """Set another tag and paste all commands of the page about upgrading."""
    file = someone.checkout / KUSTOMIZATION
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    for commands in blocks("docs/upgrade.md", "# Upgrading"):
        someone.paste(commands, folder="manifests/mine")
    wait_for(
        lambda: {image.rpartition(":")[2] for image in images(someone.cluster)} == {new},
        within=WITHIN,
    )


def test_an_upgrade_keeps_what_runs(someone: Person) -> None:
    """The second release replaces every container of ours; a pod that runs goes on."""
    someone.run("before")
    before = running(someone, "before")

    upgrade(someone, "0.1.0", "0.1.1")

    someone.run("after")
    assert running(someone, "before") == before


def test_going_back_keeps_what_runs(someone: Person) -> None:
    """The former release reads what the second one wrote, and the next upgrade goes on."""
    before, after = running(someone, "before"), running(someone, "after")

    upgrade(someone, "0.1.1", "0.1.0")
    someone.run("back")
    upgrade(someone, "0.1.0", "0.1.1")

    assert (running(someone, "before"), running(someone, "after")) == (before, after)
    assert {entry["pod"]["name"] for entry in entries(someone.cluster)} == {
        "before",
        "after",
        "back",
    }


# Nobody serves names in this cluster, so senders are told the address of the console's Service.
COMPONENTS = """
components:
- ../components/console
- ../components/console-ephemeral
- ../components/records
patches:
- target: {kind: Service, name: vgpu-console}
  patch: |
    - op: add
      path: /spec/clusterIP
      value: 10.96.94.44
- target: {kind: "Deployment|DaemonSet", name: "vgpu-webhook|vgpu-agent"}
  patch: |
    - op: add
      path: /spec/template/spec/hostAliases
      value: [{ip: 10.96.94.44, hostnames: [vgpu-console.vgpu-admission-system.svc]}]
"""
RECEIVED_WITHIN = 300.0  # seconds; kubelet may take two minutes to show a pod its new certificate


def test_a_console_is_added(someone: Person) -> None:
    """By its components; no volume is provided here. Its certificate comes from the webhook."""
    file = someone.checkout / KUSTOMIZATION
    file.write_text(file.read_text() + COMPONENTS)

    someone.paste("kubectl apply -k manifests/mine")

    for workload in ("deployment/vgpu-webhook", "deployment/vgpu-console"):
        rollout = ("rollout", "status", workload, "--timeout=180s")
        someone.cluster.kubectl("-n", "vgpu-admission-system", *rollout)
    agents = ("rollout", "status", "daemonset/vgpu-agent", "--timeout=180s")
    someone.cluster.kubectl("-n", "vgpu-admission-agents", *agents)
    # A webhook that ends still answers reviews, and sends no records.
    wait_for(lambda: webhooks_of(someone) == {"Running"}, within=RECEIVED_WITHIN)
    # By what it publishes, kubectl vgpu knows the console.
    published = ("get", "configmap", "vgpu-console-ca", "--output=jsonpath={.data}")
    wait_for(lambda: "ca.crt" in someone.cluster.kubectl("-n", "vgpu-admission-system", *published))


def webhooks_of(someone: Person) -> set[str]:
    """Return the phases of the webhook's pods, and of one that ends that it does."""
    selector = "--selector=app.kubernetes.io/component=webhook"
    pods = someone.cluster.get("pods", "-n", "vgpu-admission-system", selector)["items"]
    ending = {"ending" for pod in pods if "deletionTimestamp" in pod["metadata"]}
    return {pod["status"]["phase"] for pod in pods} | ending


def test_the_console_shows_the_decision_about_a_pod(someone: Person) -> None:
    """Read with the person's own certificate through a port-forward: asked, bound, started."""
    someone.run("audited")

    # Webhook and agent send when each has its certificate, so either may come first. The state
    # depends on whether the agent has seen processes by now.
    wanted = {
        "namespace": {TEAM},
        "verdict": {"rewritten"},
        "node": {NODE},
        "state": {"bound", "running"},
    }

    def missing() -> str:
        """Say what has not come, or nothing."""
        row = decisions(someone).get("audited", {})
        kinds = recorded_kinds(someone, "audited")
        arrived = all(row.get(key) in texts for key, texts in wanted.items())
        return "" if arrived and kinds >= {"admission", "bind", "allocated"} else f"{row} {kinds}"

    try:
        wait_for(lambda: not missing(), within=RECEIVED_WITHIN)
    except TimeoutError as error:
        raise AssertionError(f"{missing()}\n{deliveries(someone)}") from error


def deliveries(someone: Person) -> str:
    """Return what webhook, agent and console log about records on their way."""
    logs = [
        someone.cluster.kubectl("-n", namespace, "logs", workload, "--all-pods", "--all-containers")
        for namespace, workload in (
            ("vgpu-admission-system", "deployment/vgpu-webhook"),
            ("vgpu-admission-system", "deployment/vgpu-console"),
            ("vgpu-admission-agents", "daemonset/vgpu-agent"),
        )
    ]
    telling = ("audit records", "certificate", "console", "error")
    lines = [line for text in logs for line in text.splitlines() if '"kind"' not in line]
    return "\n".join(line for line in lines if any(word in line for word in telling))[-8000:]


def decisions(someone: Person) -> dict[str, Json]:
    """Return the decisions of the team by the names of their pods."""
    printed = someone.paste(f"kubectl vgpu decisions -n {TEAM} -o json")
    return {row["pod"]: row for row in rows(printed)}


def recorded_kinds(someone: Person, pod: str) -> set[str]:
    """Return the kinds of the records about a pod of the team."""
    printed = someone.paste(f"kubectl vgpu records -n {TEAM} --pod {pod} -o json")
    return {each["kind"] for each in rows(printed)}


def rows(printed: str) -> list[Json]:
    """Return the rows of a list in JSON."""
    document = json.loads(printed)
    found: list[Json] = document["items"]
    return found


def test_an_agent_writes_for_its_node_only(someone: Person) -> None:
    """What it sent says so."""
    printed = someone.paste("kubectl vgpu records -A --kind allocated -o json")

    senders = {each["sender"] for each in rows(printed)}
    assert senders == {f"agent of node {NODE}, by certificate and token"}, printed
