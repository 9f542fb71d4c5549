"""GPUNodes on a real API server: what their schema accepts, and who may write what."""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from allocator.catalog.boards import board_named
from allocator.ledger.decode import decode
from allocator.ledger.schema import spec_of, status_of
from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.board import Placement
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from manifests.generator.gpunode import LISTS
from manifests.generator.names import AGENT, CONTROL_PLANE
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.cluster.api import MERGE, ApiError, Json, Reply
from tests.cluster.site import Site, Who, installed, refusal

GPU_NODES = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
ENTRY = yaml.safe_load("""
pod: {namespace: team-a, name: train-0, uid: 6a7d1c52-0000-4000-8000-000000000001}
since: "2026-11-21T17:00:00Z"
containers:
- name: main
  devices:
  - {gpu: GPU-6b1f, mode: mig, memoryMiB: 4864, cores: 14, profile: 1g.5gb, start: 6}
  - {gpu: GPU-7c20, mode: hami-core, memoryMiB: 3000, cores: 0}
""")
STATUS = yaml.safe_load(f"""
nodeUID: 3f2e9a3e-0000-4000-8000-000000000003
bootID: 0d1c9a3e-0000-4000-8000-000000000002
observedGeneration: 7
closed: the driver hangs
inventory: sha256:{"93af" * 16}
boards:
- name: NVIDIA A100-SXM4-40GB
  slots: 8
  profiles:
  - {{name: 1g.5gb, id: 19, memoryMiB: 4864, sms: 14, size: 1, starts: [0, 1, 2, 3, 4, 5, 6]}}
  - {{name: 1g.5gb+me, id: 20, memoryMiB: 4864, sms: 14, size: 1, starts: [0], limit: 1}}
gpus:
- {{uuid: GPU-6b1f, index: 0, pci: "0000:3b:00.0", model: NVIDIA A100-SXM4-40GB, board: 0,
   memoryMiB: 40536, mode: mig, healthy: true, slots: 7, numa: 0, foreignMiB: 0}}
- {{uuid: GPU-7c20, index: 1, model: Tesla T4, memoryMiB: 15360, mode: hami-core,
   healthy: true, slots: 10}}
instances: [{{gpu: GPU-6b1f, profile: 1g.5gb, start: 6, uuid: MIG-5c1e}}]
held: [6a7d1c52-0000-4000-8000-000000000001]
unpromised:
- pod: {{namespace: team-b, name: old-0, uid: 6a7d1c52-0000-4000-8000-000000000004}}
  since: "2026-11-21T16:00:00Z"
  containers:
  - {{name: main, devices: [{{gpu: GPU-7c20, mode: hami-core, memoryMiB: 100, cores: 0}}]}}
""")
Steps = tuple[str | int, ...]


@pytest.fixture(scope="module")
def site(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installed(programs, tmp_path_factory.mktemp("gpunodes")) as site:
        yield site


@pytest.fixture(scope="module")
def node(site: Site) -> str:
    """Store a GPUNode with all that one can hold, and return its path."""
    headers = Who(CONTROL_PLANE).headers
    body = gpu_node("gpu-1", entries=[ENTRY])
    site.api.request("POST", GPU_NODES, body, headers=headers)
    path = f"{GPU_NODES}/gpu-1"
    status = {"status": STATUS}
    merge = {**headers, "Content-Type": MERGE}
    site.api.request("PATCH", f"{path}/status", status, headers=merge)
    return path


def gpu_node(name: str, *, entries: list[Json] | None = None) -> Json:
    kind = {"apiVersion": "vgpu-admission.io/v1alpha1", "kind": "GPUNode"}
    return {**kind, "metadata": {"name": name}, "spec": {"entries": entries or []}}


def changed(document: Json, path: Steps, value: object) -> Json:
    """Return *document* with another value at *path*, or without it if that is None."""
    document = copy.deepcopy(document)
    place = document
    for step in path[:-1]:
        place = place[step]  # type: ignore[index]  # a list, where the step is a number
    if value is None:
        del place[path[-1]]  # type: ignore[arg-type]  # as above
    else:
        place[path[-1]] = value  # type: ignore[index]  # as above
    return document


def test_a_gpu_node_keeps_all_it_is_given(site: Site, node: str) -> None:
    """Nothing of a full spec and status is refused or pruned."""
    stored = site.api.get(node)

    assert (stored["spec"], stored["status"]) == ({"entries": [ENTRY]}, STATUS)


def test_what_our_code_writes_is_accepted(site: Site) -> None:
    """The schema and the writer of GPUNodes agree, and the reader finds it all again."""
    board = board_named("NVIDIA A100-SXM4-40GB")
    assert board is not None
    placed = Placement(board.profiles[0], 6)
    grant = Grant(
        gpu="GPU-6b1f", mode=Mode.MIG, memory=MiB(4864), cores=CorePercent(14), placed=placed
    )
    entry = Entry(
        namespace="team-a",
        pod="train-0",
        uid="6a7d",
        since=datetime(2026, 11, 21, 17, tzinfo=UTC),
        containers=(ContainerGrants(name="main", grants=(grant,)),),
    )
    gpu = Gpu(
        uuid="GPU-6b1f",
        index=0,
        model=board.name,
        memory=MiB(40536),
        mode=Mode.MIG,
        slots=7,
        board=board,
        grants=(grant,),
        instances=(placed,),
    )
    card = replace(gpu, uuid="GPU-7c20", index=1, model="Tesla T4", board=None)
    card = replace(card, mode=Mode.HAMI_CORE, grants=(), instances=())
    node = Node(name="gpu-4", gpus=(gpu, card))
    headers = Who(CONTROL_PLANE).headers

    body = gpu_node("gpu-4") | {"spec": spec_of([entry])}
    site.api.request("POST", GPU_NODES, body, headers=headers)
    site.api.request(
        "PATCH",
        f"{GPU_NODES}/gpu-4/status",
        {"status": status_of(node)},
        headers={**headers, "Content-Type": MERGE},
    )

    stored = decode(site.api.get(f"{GPU_NODES}/gpu-4"))
    assert (stored.node, stored.entries, stored.problems) == (node, (entry,), ())


DEVICE: Steps = ("containers", 0, "devices", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("pod", "uid"), None, id="pod-without-uid"),
        pytest.param(("pod", "uid"), "6a7d\n", id="uid-with-newline"),
        pytest.param(("since",), "yesterday", id="since-no-date"),
        pytest.param((*DEVICE, "mode"), "mps", id="unknown-mode"),
        pytest.param((*DEVICE, "memoryMiB"), -1, id="negative-memory"),
        pytest.param((*DEVICE, "cores"), 101, id="more-than-a-gpu"),
        pytest.param((*DEVICE, "gpu"), "GPU-a,NVIDIA:", id="separator-in-id"),
        pytest.param((*DEVICE, "start"), None, id="mig-without-place"),
        pytest.param((*DEVICE, "mode"), "hami-core", id="place-without-mig"),
        pytest.param((*DEVICE, "profile"), "1g", id="no-profile"),
        pytest.param(("containers",), [{"name": "c", "devices": []}] * 65, id="too-many"),
    ],
)
def test_a_bad_entry_is_refused(site: Site, node: str, path: Steps, *, value: object) -> None:
    """An agent that reports it hears where; of promises, `gpunode` does."""
    change = {"status": STATUS | {"unpromised": [changed(ENTRY, path, value)]}}

    words = refusal(lambda: site.patch(Who(AGENT, "gpu-1"), f"{node}/status", change))

    assert re.search(r"status\.unpromised\[\]\S* is invalid; accepted:", words)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("inventory",), "md5:93af", id="other-digest"),
        pytest.param(("gpus", 1, "model"), None, id="gpu-without-a-name"),
        pytest.param(("gpus", 0, "mode"), "memory-only", id="no-mode-of-a-gpu"),
        pytest.param(("gpus", 0, "pci"), "3b:00", id="short-pci"),
        pytest.param(("boards", 0, "profiles", 0, "starts"), [64], id="slot-out-of-range"),
        pytest.param(("held",), ["x"] * 1025, id="too-many-held"),
        pytest.param(("closed",), "why \x1b[31m", id="closed-with-an-escape"),
        pytest.param(("closed",), "x" * 257, id="closed-at-length"),
        pytest.param(("unpromised", 0, "since"), None, id="in-use-since-when"),
        pytest.param(("gpus", 0, "memoryMiB"), "40536", id="memory-as-text"),
        pytest.param(("gpus", 0, "memoryMiB"), 1.5, id="memory-in-fractions"),
        pytest.param(("gpus", 0, "healthy"), "yes", id="healthy-as-text"),
        pytest.param(("gpus", 0, "links"), ["GPU-a;"], id="separator-in-a-link"),
        pytest.param(("gpus", 0, "linkCounts"), [65], id="more-links-than-a-gpu-has"),
        pytest.param(("gpus", 0, "linkCounts"), [-1], id="fewer-links-than-none"),
        pytest.param(("gpus", 0, "linkCounts"), [1] * 65, id="too-many-link-counts"),
        pytest.param(("instances", 0, "uuid"), "MIG-\n", id="uuid-with-newline"),
        pytest.param(("boards", 0, "profiles"), [], id="board-without-profiles"),
        pytest.param(("gpus",), [STATUS["gpus"][1]] * 65, id="too-many-gpus"),
        pytest.param(("boards",), STATUS["boards"] * 9, id="too-many-boards"),
        pytest.param(("boards", 0, "slots"), 17, id="too-many-slots"),
        pytest.param(
            ("boards", 0, "profiles"),
            STATUS["boards"][0]["profiles"][:1] * 25,
            id="too-many-profiles",
        ),
        pytest.param(("boards", 0, "profiles", 0, "starts"), [0] * 17, id="too-many-starts"),
        pytest.param(("instances",), STATUS["instances"] * 513, id="too-many-instances"),
        pytest.param(("unpromised",), STATUS["unpromised"] * 257, id="too-many-pods"),
    ],
)
def test_a_bad_status_is_refused(site: Site, node: str, path: Steps, *, value: object) -> None:
    """A compromised agent cannot write what others would stumble over."""
    change = {"status": changed(STATUS, path, value)}

    words = refusal(lambda: site.patch(Who(AGENT, "gpu-1"), f"{node}/status", change))

    # By the schema, or by the policy that stands in for it.
    assert re.search(r"is invalid: status\.|status\.\S+ is invalid; accepted:", words)


PLACES: tuple[Steps, ...] = (
    ("driver",),
    ("closed",),
    ("nodeUID",),
    ("held", 0),
    ("boards", 0, "name"),
    ("boards", 0, "profiles", 0, "name"),
    ("gpus", 0, "uuid"),
    ("gpus", 0, "model"),
    ("gpus", 0, "pci"),
    ("gpus", 0, "switch"),
    ("gpus", 0, "reason"),
    ("instances", 0, "uuid"),
    ("unpromised", 0, "pod", "namespace"),
    ("unpromised", 0, "pod", "name"),
    ("unpromised", 0, "pod", "uid"),
    ("unpromised", 0, "containers", 0, "name"),
)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: "-".join(map(str, path)))
def test_text_that_a_terminal_obeys_is_refused(site: Site, node: str, path: Steps) -> None:
    """Kubectl prints columns as they are, and so may a log or a dashboard."""

    def patch(text: str) -> str:
        change = {"status": changed({"driver": "550.1", **STATUS}, path, text)}
        return refusal(lambda: site.patch(Who(AGENT, "gpu-1"), f"{node}/status", change))

    for text in HOSTILE_TEXTS.values():
        assert "is invalid" in patch(text), text


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("value", [7, "x", {"a": 1}, [None], [[]], ["x"]])
def test_what_is_no_list_of_objects_is_refused(
    site: Site, node: str, name: str, *, value: object
) -> None:
    """Whatever the type, there is an answer, and it is no."""
    body = site.api.get(node)
    body["status"][name] = value

    def put() -> Reply:
        headers = Who(AGENT, "gpu-1").headers
        return site.api.request("PUT", f"{node}/status", body, headers=headers)

    words = refusal(put)

    assert "agents-gpunodes.vgpu-admission.io" in words


def test_nothing_is_no_list(site: Site, node: str) -> None:
    """A null is as if the field were not there."""
    body = site.api.get(node)
    body["status"] |= dict.fromkeys(LISTS)
    headers = Who(AGENT, "gpu-1").headers

    stored = site.api.request(
        "PUT", f"{node}/status", body, query={"dryRun": "All"}, headers=headers
    ).body

    assert LISTS.keys().isdisjoint(stored["status"]), stored["status"]


def test_columns_tell_what_a_node_has(site: Site, node: str) -> None:
    """`kubectl get gpunodes` shows model and mode, and more on demand."""
    name = node.rpartition("/")[2]

    short = site.kubectl("get", "gpunode", name)
    wide = site.kubectl("get", "gpunode", name, "--output=wide")

    assert short.splitlines()[0].split() == ["NAME", "MODEL", "MODE", "DRIVER", "AGE", "CLOSED"]
    assert "NVIDIA A100-SXM4-40GB   mig" in short.splitlines()[1]
    assert short.splitlines()[1].endswith("the driver hangs")
    assert STATUS["inventory"] in wide


@pytest.mark.parametrize(
    ("who", "subresource", "passes"),
    [
        pytest.param(Who(CONTROL_PLANE), "", True, id="control-plane-spec"),
        pytest.param(Who(CONTROL_PLANE), "/status", True, id="control-plane-status"),
        pytest.param(Who(AGENT, "gpu-1"), "/status", True, id="agent-status"),
        pytest.param(Who(AGENT, "gpu-1"), "", False, id="agent-spec"),
        pytest.param(Who(AGENT, "gpu-2"), "/status", False, id="another-nodes-agent"),
        pytest.param(Who(AGENT), "/status", False, id="agent-from-nowhere"),
        pytest.param(Who("tenant", "gpu-1"), "/status", False, id="tenant-on-the-node"),
        pytest.param(Who("admin"), "", False, id="administrator-spec"),
    ],
)
def test_who_writes_a_gpu_node(
    site: Site, node: str, who: Who, *, subresource: str, passes: bool
) -> None:
    """Promises are the control plane's; the status is its own agent's."""
    change: Json = {"status": {"bootID": "other"}} if subresource else {"spec": {"entries": []}}

    words = refusal(lambda: site.patch(who, node + subresource, change))

    assert (words == "") is passes


@pytest.mark.parametrize(
    ("who", "change", "passes"),
    [
        pytest.param(Who("admin"), {"labels": {"a": "b"}}, True, id="label"),
        pytest.param(Who("admin"), {"finalizers": ["example.com/x"]}, False, id="finalizer"),
        pytest.param(Who("admin"), {"finalizers": None}, True, id="no-finalizer"),
        pytest.param(
            Who(CONTROL_PLANE),
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
            False,
            id="owner",
        ),
    ],
)
def test_a_gpu_node_outlives_what_it_stands_for(
    site: Site, node: str, who: Who, *, change: Json, passes: bool
) -> None:
    """It has no owner to die with, and nobody else keeps it with a finalizer."""
    words = refusal(lambda: site.patch(who, node, {"metadata": change}))

    assert (words == "") is passes


def test_only_the_control_plane_makes_and_deletes(site: Site, node: str) -> None:
    """An administrator's mistake does not lose a ledger."""
    with pytest.raises(ApiError, match="only the control plane of vgpu-admission"):
        site.api.create(GPU_NODES, gpu_node("gpu-3"), dryRun="All")
    with pytest.raises(ApiError, match=r"remove its label.*kubectl delete -k"):
        site.api.delete(node, dryRun="All")

    headers = Who(CONTROL_PLANE).headers
    deleted = site.api.request("DELETE", node, query={"dryRun": "All"}, headers=headers)

    assert deleted.status == 200


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_a_ledger_that_changed_is_not_deleted(site: Site, node: str, field: str) -> None:
    """The preconditions of our delete hold on the server: an entry of the last moment stays."""
    metadata = site.api.get(node)["metadata"]
    same = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    headers = Who(CONTROL_PLANE).headers

    def delete(preconditions: Json) -> Reply:
        # The server reads no options from the query where a body brings some.
        body = {"preconditions": preconditions, "dryRun": ["All"]}
        return site.api.request("DELETE", node, body, headers=headers)

    said = refusal(lambda: delete(same | {field: "1"}))

    assert "precondition" in said.lower()
    assert delete(same).status == 200
