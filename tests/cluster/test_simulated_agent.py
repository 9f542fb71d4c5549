"""The agent over simulated boards on a real API server: from an empty node to a promise held."""

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

import pytest

from agent.deviceplugin.entry_client import EntryClient
from agent.serve.agent import Agent, AgentParts
from agent.serve.options import AgentOptions, DriverKind
from agent.share import NotYetError, Owner
from allocator.cli.http_server import Listen
from allocator.cli.process import background
from allocator.ledger.ledger import Ledger, parse_ledger
from kube.client import Client
from kube.config import from_kubeconfig
from manifests.generator.capacity import sole_capacity
from manifests.generator.names import AGENT
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import MERGE, ApiError, Json, wait_for
from tests.cluster.installation import GPU_NODES, HOOKS, PODS, Installation, installation
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS
from tests.cluster.volcano import http_get
from tests.fakes.kubelet import Kubelet

NODE = "/api/v1/nodes/sim-1"
WITHIN = 60.0
FAREWELL = 0.3  # seconds in which TLS connections that were closed end; the loop must still run


class Node:
    """A node that nobody is but its agent; of kubelet there is only the device manager."""

    def __init__(self, site: Installation, folder: Path) -> None:
        self.site = site
        self.root = folder / "root"
        boot = self.root / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text(Path("/proc/sys/kernel/random/boot_id").read_text())
        self.port = free_port()
        self.kubeconfig = self._kubeconfig(folder)
        self.options = AgentOptions(
            access=from_kubeconfig((self.kubeconfig,)),
            node="sim-1",
            namespace="vgpu-admission-system",
            listen=Listen("127.0.0.1", self.port),
            driver=DriverKind.SIMULATED,
            fleet=MANIFESTS / "components/simulated/fleet.yaml",
            root=self.root,
            kubelet=folder / "kubelet",
        )
        command: list[str | Path] = [
            *(sys.executable, MANIFESTS.parent / "vgpu.py", "agent", "--driver=simulated"),
            f"--node-name={self.options.node}",
            f"--fleet={self.options.fleet}",
            f"--root={self.root}",
            f"--kubelet-dir={self.options.kubelet}",
            f"--metrics=127.0.0.1:{self.port}",
            f"--kubeconfig={self.kubeconfig}",
        ]
        self.agent = Process("agent", command, folder / "agent.log")
        self.leaving = Process("leaving", [*command, "--withdraw"], folder / "leaving.log")

    def _kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig of the agent's account, with a token for this node only."""
        api = self.site.api
        *_, team, account = AGENT.split(":")
        uid = api.get(NODE)["metadata"]["uid"]
        bound = {"kind": "Node", "apiVersion": "v1", "name": "sim-1", "uid": uid}
        spec = {"spec": {"expirationSeconds": 7200, "boundObjectRef": bound}}
        path = f"/api/v1/namespaces/{team}/serviceaccounts/{account}/token"
        config: Json = json.loads(self.site.plane.kubeconfig.read_text())
        token = api.create(path, spec).body["status"]["token"]
        config["users"] = [{"name": "admin", "user": {"token": token}}]
        written = folder / "agent.kubeconfig"
        written.write_text(json.dumps(config))
        return written

    def start(self, process: Process) -> None:
        process.start(lambda: bool(http_get(self.port, "/healthz")), within=WITHIN)

    @property
    def object(self) -> Json:
        return self.site.api.get(NODE)

    @property
    def capacity(self) -> Mapping[str, str]:
        return dict(self.object["status"]["capacity"])

    @property
    def ledger(self) -> Ledger:
        return parse_ledger(self.site.api.get(f"{GPU_NODES}/sim-1"))

    @property
    def accounted(self) -> bool:
        found = self.site.api.get(GPU_NODES)["items"]
        return any(
            parse_ledger(item).inventory for item in found if item["metadata"]["name"] == "sim-1"
        )

    def takes(self, binding: str, body: Json) -> bool:
        """Bind; say whether the node took the pod, or was closed while its agent started."""
        try:
            self.site.api.create(binding, body)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT or "its agent is starting" not in str(error):
                raise
            return False
        return True

    @contextlib.asynccontextmanager
    async def promises(self) -> AsyncIterator[EntryClient]:
        """Run the agent in this process, but for what speaks to kubelet."""
        async with Client(self.options.access) as client, background() as start:
            parts = AgentParts(self.options, client)
            try:
                Agent(self.options, client, parts).begin(start)
                async with asyncio.timeout(WITHIN):
                    changed = parts.node_informer.subscribe()
                    while (
                        not parts.node_informer.synced or parts.hardware_informer.hardware is None
                    ):
                        await changed.wait()
                        changed.clear()
                yield EntryClient(
                    client, parts.node_informer, parts.status_controller, devices=parts.devices
                )
            finally:
                await parts.close()
        await asyncio.sleep(FAREWELL)


@contextlib.contextmanager
def served_by_kubelet(folder: Path) -> Iterator[None]:
    """Let plugins register below *folder*; an agent opens its node only once it has."""
    loop = asyncio.new_event_loop()
    kubelet = Kubelet(folder)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(kubelet.start(), loop).result(WITHIN)
        yield
        asyncio.run_coroutine_threadsafe(kubelet.stop(), loop).result(WITHIN)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WITHIN)
        loop.close()


@contextlib.contextmanager
def simulated_node(site: Installation, folder: Path) -> Iterator[Node]:
    """Run an agent over simulated boards on a node of *site*, once it is accounted for."""
    with served_by_kubelet(folder / "kubelet"):
        site.api.create("/api/v1/nodes", {"metadata": {"name": "sim-1"}})
        runtime = {"nodeInfo": {"containerRuntimeVersion": "containerd://2.2.1"}}
        status = {"status": {"capacity": {"cpu": "2"}, **runtime}}
        site.api.request("PATCH", f"{NODE}/status", status, headers={"Content-Type": MERGE})
        found = Node(site, folder)
        found.start(found.agent)
        wait_for(lambda: found.accounted, within=WITHIN)
        yield found
        found.agent.stop()
        found.leaving.stop()


@pytest.fixture(scope="module")
def node(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "plane").mkdir()
    with (
        installation(programs, folder / "plane") as site,
        simulated_node(site, folder) as found,
    ):
        yield found


@pytest.fixture
def team(node: Node) -> str:
    return node.site.namespace()


def bound(node: Node, team: str, name: str, *, mode: str, **limits: object) -> Owner:
    """Create a pod and bind it as a scheduler does; return its container."""
    asking = container(limits={NUMBER: 1, **limits})
    written = pod(asking, annotations={MODE: mode})
    written["metadata"]["name"] = name
    made = node.site.stored(team, written)
    target = {"apiVersion": "v1", "kind": "Node", "name": "sim-1"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    wait_for(lambda: node.accounted, within=WITHIN)  # the test before may have started its agent
    binding = f"{PODS.format(team)}/{name}/binding"
    wait_for(lambda: node.takes(binding, body), within=WITHIN)
    uid = made["metadata"]["uid"]
    return Owner(uid=uid, namespace=team, pod=name, containers=("main",))


def test_an_empty_node_becomes_one_with_gpus(node: Node) -> None:
    """By its agent's account alone: label, ledger, inventory, capacity; all say what they are."""
    wait_for(lambda: MEMORY in node.capacity, within=WITHIN)

    assert node.object["metadata"]["labels"]["vgpu-admission.io/agent"].endswith("-simulated")
    assert node.site.api.get(f"{GPU_NODES}/sim-1")["status"]["driver"] == "simulated"
    assert [gpu.mode for gpu in node.ledger.node.gpus] == ["mig"] * 4 + ["hami-core"] * 4
    assert node.capacity[CORES] == "800"
    assert node.ledger.closed == ""
    assert NUMBER not in node.capacity  # for kubelet to write, which this one does not


@pytest.mark.parametrize("mode", ["mig", "hami-core"])
def test_a_bound_pod_has_its_share_and_holds_it(node: Node, team: str, mode: str) -> None:
    """On the version of the ledger that has the entry; the agent starts anew in between."""
    owner = bound(node, team, f"p-{mode}", mode=mode, **{MEMORY: 4000})
    node.agent.stop()

    async def act() -> None:
        async with node.promises() as promises:
            share = await promises.share(owner)
            assert (share.key, share.grants[0].mode) == ("c0", mode)
            assert share.grants[0].memory >= 4000
            await promises.hold(owner.uid)
            await promises.annotate(owner, {"vgpu-admission.io/c0.visible": "MIG-1"})

    asyncio.run(act())
    assert owner.uid in node.ledger.held
    assert node.ledger.observed_generation == node.ledger.generation
    node.start(node.agent)
    stored = node.site.api.get(f"{PODS.format(team)}/{owner.pod}")
    assert stored["metadata"]["annotations"]["vgpu-admission.io/c0.visible"] == "MIG-1"


def test_a_pod_that_nobody_promised_anything_does_not_start(node: Node, team: str) -> None:
    """The refusal is for its user to read."""
    stranger = Owner(uid="none", namespace=team, pod="none", containers=("main",))
    node.agent.stop()

    async def act() -> None:
        async with node.promises() as promises:
            with pytest.raises(NotYetError, match="not bound to this node"):
                await promises.share(stranger)
            with pytest.raises(NotYetError, match="no longer has an entry"):
                await promises.hold(stranger.uid)

    asyncio.run(act())
    node.start(node.agent)


def test_an_instance_is_there_soon_after_its_promise(node: Node, team: str) -> None:
    """It is cut when the entry appears, before kubelet asks; and told in the status."""
    owner = bound(node, team, "cut", mode="mig", **{MEMORY: 9000})
    entry = node.ledger.entry(owner.uid)
    assert entry is not None
    (grant,) = entry.containers[0].grants

    def there() -> bool:
        found = node.site.api.get(f"{GPU_NODES}/sim-1")["status"]["instances"]
        places = {(i["gpu"], i["profile"], i["start"]) for i in found if i.get("uuid")}
        assert grant.placed is not None
        return (grant.gpu, grant.placed.profile.name, grant.placed.start) in places

    wait_for(there, within=WITHIN)


def test_the_node_tells_how_its_gpus_were_cut(node: Node, team: str) -> None:
    """In an Event that its agent signs with a token of this node."""
    bound(node, team, "cut", mode="mig", **{MEMORY: 4000})

    def told() -> list[Json]:
        events = node.site.api.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [event for event in events if event["reason"] == "MigReconfigured"]

    wait_for(told, within=WITHIN)
    (event, *_) = told()
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Node", "sim-1")
    assert event["reportingInstance"] == "sim-1"
    assert " → " in event["note"]


def test_metrics_tell_of_promises(node: Node, team: str) -> None:
    """From the Binding on."""
    owner = bound(node, team, "measured", mode="hami-core", **{MEMORY: 2000})

    def told() -> bool:
        text = http_get(node.port, "/metrics") or ""
        return any(owner.pod in line and team in line for line in text.splitlines())

    wait_for(told, within=WITHIN)


def test_a_node_whose_boot_ids_differ_says_so_and_is_left_alone(node: Node) -> None:
    """As on LXC: one write, an Event after half a minute, and it opens when they agree."""
    path, merge = f"{GPU_NODES}/sim-1", {"Content-Type": MERGE}

    def report(boot: str | None) -> None:
        status = {"status": {"nodeInfo": {"bootID": boot}}}
        node.site.api.request("PATCH", f"{NODE}/status", status, headers=merge)

    def closed() -> str:
        found: str = node.site.api.get(path)["status"].get("closed", "")
        return found

    def reasons() -> set[str]:
        events = node.site.api.get("/apis/events.k8s.io/v1/events")["items"]
        # Some components write Events about objects without a name.
        return {e["reason"] for e in events if e["regarding"].get("name") == "sim-1"}

    report("boot-of-the-host")
    wait_for(lambda: closed().startswith("its agent reads boot id"), within=WITHIN)
    assert '"boot-of-the-host"' in closed()
    version = node.site.api.get(path)["metadata"]["resourceVersion"]

    wait_for(lambda: "VgpuNodeClosed" in reasons(), within=90)
    assert node.site.api.get(path)["metadata"]["resourceVersion"] == version

    report("")
    wait_for(lambda: node.accounted and not closed(), within=WITHIN)


SEED: Json = {"aliyun.com/gpu-mem": "1"}  # seed 004: one GiB, in a namespace without the label


def _seed(name: str, node_name: str) -> Json:
    made = container(limits=SEED)
    return {
        "metadata": {"name": name},
        "spec": {"containers": [made], "nodeName": node_name, "restartPolicy": "Never"},
    }


@pytest.fixture
def unpoliced(node: Node) -> Iterator[None]:
    """Wait until the policy refuses seed 004's pod, and take the policy out for a while."""
    site, plain = node.site, node.site.namespace({})
    allocatable = {"status": {"allocatable": node.capacity}}  # kubelet copies it
    site.api.request("PATCH", f"{NODE}/status", allocatable, headers={"Content-Type": MERGE})
    wait_for(lambda: "sole-capacity" in site.refusal(plain, _seed("seed", "")), within=90)
    _, binding = sole_capacity()
    place = f"{HOOKS}/validatingadmissionpolicybindings"
    site.api.request("DELETE", f"{place}/{binding['metadata']['name']}")
    wait_for(lambda: not site.refusal(plain, _seed("seed", "")), within=WITHIN)
    yield
    site.api.create(place, binding)


@pytest.mark.usefixtures("unpoliced")
def test_a_pod_past_admission_takes_what_it_asks_for_and_closes_nothing(
    node: Node, team: str
) -> None:
    """It is charged on one GPU and told so; the node goes on to serve everybody else."""
    site, plain = node.site, node.site.namespace({})
    path = f"{PODS.format(plain)}/stranger"
    site.api.create(PODS.format(plain), _seed("stranger", "sim-1"))
    running: Json = {"name": "main", "state": {"running": {"startedAt": "2026-11-24T12:00:00Z"}}}
    running |= {"image": "none", "imageID": "", "ready": True, "restartCount": 0}
    status = {"status": {"phase": "Running", "containerStatuses": [running]}}
    site.api.request("PATCH", f"{path}/status", status, headers={"Content-Type": MERGE})

    def charged() -> list[tuple[str, int]]:
        return [
            (one.pod, grant.memory)
            for one in node.ledger.unpromised
            for held in one.containers
            for grant in held.grants
        ]

    wait_for(charged, within=WITHIN)
    assert charged() == [("stranger", 1024)]
    assert all(gpu.healthy for gpu in node.ledger.node.gpus)
    assert "closed" not in site.api.get(f"{GPU_NODES}/sim-1")["status"]
    bound(node, team, "honest", mode="hami-core", **{MEMORY: 4000})

    def notes() -> list[str]:
        events = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{plain}/events")["items"]
        return [event["note"] for event in events if event["reason"] == "VgpuUnpromised"]

    wait_for(lambda: any("is charged on" in note for note in notes()), within=WITHIN)
    site.api.request("DELETE", path, query={"gracePeriodSeconds": "0"})
    wait_for(lambda: not charged(), within=WITHIN)


def test_a_withdrawing_agent_takes_everything_back(node: Node) -> None:
    """Capacity and label go, nothing more is promised; the promises of pods stay."""
    promised = {entry.uid for entry in node.ledger.entries}
    node.agent.stop()
    node.start(node.leaving)

    wait_for(lambda: set(node.capacity) == {"cpu"}, within=WITHIN)
    wait_for(lambda: bool(node.ledger.closed), within=WITHIN)
    wait_for(lambda: not node.object["metadata"].get("labels"), within=WITHIN)
    assert {entry.uid for entry in node.ledger.entries} == promised
    wait_for(lambda: http_get(node.port, "/readyz"))  # the DaemonSet goes on to the next node
