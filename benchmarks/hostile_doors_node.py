"""C: what a broken node, a stranger on it, or an account beyond its rights takes from others."""

import copy
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, Final

from agent.driver.driver import Process
from agent.monitor.violation import (
    LocalPod,
    LocatedProcess,
    ObservedUse,
    ViolationKind,
    foreign_memory,
    violations,
)
from agent.node.cgroup import PodCgroup
from agent.node.pods import NodePod
from agent.node.status import Hardware, served_gpus
from agent.node.unaccounted import NodeUse, find_unaccounted
from allocator.catalog.keys import SOLE_KEY
from allocator.catalog.vocabularies import GPUSHARE, VOLCANO
from allocator.config.device_config import DeviceConfig
from allocator.ledger.assign import PodClaim, assign
from allocator.ledger.decode import decode, decode_text
from allocator.ledger.ledger import parse_ledger
from allocator.ledger.lifecycle import status_is_current
from allocator.ledger.schema import spec_of
from allocator.model.allocation import Assignment, Entry
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.choose import PlacementPolicy
from benchmarks.hostile_door import door
from benchmarks.hostile_status import BEYOND
from benchmarks.hostile_status import gpu_node as gpu_node_text
from manifests.generator.documents import FILES
from manifests.generator.names import REGISTRATION
from tests.authorization.answers import answer
from tests.authorization.policies import Policies, Review
from tests.authorization.rows import RBAC
from tests.authorization.table import TABLE
from tests.builders.gpunodes import entry, gpu_node, ledger
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.builders.model import A100_40, T4, ask, device, nodes_of, pod, soft_grant
from tests.builders.node_pods import pod as node_pod
from tests.builders.pods import GPU_MEM, container
from tests.builders.pods import pod as written_pod

Json = dict[str, Any]
NODE: Final = nodes_of(4, T4, name="n")
CUT: Final = nodes_of(1, A100_40, mode=Mode.MIG, name="c")
WHOLE: Final = NODE.gpus[0].memory
STRANGER: Final = LocalPod(uid="p", namespace="team-a", name="p", containers={"a" * 64: "c0"})


@door
def control_characters_of_nodes() -> Iterator[str]:
    """C.1: strings of a node's status carry no control characters."""
    if not decode(gpu_node(CUT)).node.gpus:
        yield "nothing is read of a sound node, so this tries nothing"
    for text, key in product(HOSTILE_TEXTS.values(), ("model", "uuid", "switch")):
        document = gpu_node(CUT)
        document["status"]["gpus"][0][key] = text
        for gpu in decode(document).node.gpus:
            if not all(map(str.isprintable, (gpu.model, gpu.uuid, gpu.switch or ""))):
                yield f"{key} {text!r}"
    for text, key in product(HOSTILE_TEXTS.values(), ("name", "profiles")):
        document = copy.deepcopy(gpu_node(CUT))
        changed = document["status"]["boards"][0]
        (changed if key == "name" else changed["profiles"][0])["name"] = text
        read = [gpu.board for gpu in decode(document).node.gpus if gpu.board is not None]
        names = [b.name for b in read] + [p.name for b in read for p in b.profiles]
        if not all(map(str.isprintable, names)):
            yield f"{key} of a board {text!r}"
    for text in HOSTILE_TEXTS.values():
        if not parse_ledger(gpu_node(NODE, closed=text)).stated.isprintable():
            yield f"why it is closed {text!r}"


@door
def boards_beyond_hardware() -> Iterator[str]:
    """C.1: a status that no hardware has closes its node, and nobody computes with it."""
    for name, status in BEYOND.items():
        decoded = decode_text(gpu_node_text(status(Random(15))))
        if decoded.node.gpus or not decoded.problems:
            yield name


def _charged(pods: Sequence[NodePod], node: Node = NODE, *, promised: Sequence[Entry] = ()) -> Json:
    """Return the GPUNode in which the agent reports what *pods* use without an entry."""
    use = NodeUse(
        pods=pods,
        gpus=node.gpus,
        hardware=Hardware(devices=()),
        vocabularies=(VOLCANO, GPUSHARE),
    )
    found = find_unaccounted(gpu_node(node, promised), ledger(node, promised), use)
    return gpu_node(node, promised, unpromised=spec_of(found)["entries"])


def _gets(document: Json, memory: int, count: int) -> bool:
    """Say whether a pod gets *memory* MiB of each of *count* GPUs of a node."""
    request = pod(ask(memory, count=count), mode=Mode.HAMI_CORE)
    claim = PodClaim(uid="asks", request=request)
    found = assign(parse_ledger(document), claim, policy=PlacementPolicy())
    return isinstance(found, Assignment)


@door
def strangers_without_an_entry() -> Iterator[str]:
    """C.3: who came past admission is charged for what it asked, named, and closes no more."""
    asked: tuple[tuple[dict[str, str], int], ...] = (
        ({GPU_MEM: "1"}, 1),
        ({GPU_MEM: "9223372036854775807"}, 1),
        ({"aliyun.com/gpu-count": "2"}, 2),
        ({"volcano.sh/vgpu-memory": "3000"}, 1),
        ({"volcano.sh/vgpu-number": "1"}, 1),
        ({"nvidia.com/gpu": "1"}, 1),
        ({"nvidia.com/gpu.shared": "3"}, 1),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "4000"}, 2),
        ({"volcano.sh/gpu-memory": "8000"}, 1),
    )
    for limits, gpus in asked:
        for stranger in (node_pod("p", {}, limits), node_pod("p", {}, {}, init=(limits,))):
            document = _charged([stranger])
            if _gets(document, WHOLE, len(NODE.gpus) - gpus + 1):
                yield f"{limits} is promised to others too"
            if not _gets(document, WHOLE, len(NODE.gpus) - gpus):
                yield f"{limits} closes more than {gpus} GPUs"
            if [one.pod for one in parse_ledger(document).unpromised] != ["p"]:
                yield f"{limits} names nobody"
    alone, left = nodes_of(1, T4, name="n"), WHOLE - 10 * 1024
    document = _charged([node_pod("p", {}, {GPU_MEM: "10"})], alone)
    if _gets(document, left + 1, 1) or not _gets(document, left, 1):
        yield "10 GiB are charged as another amount"
    full = [entry(f"e{n}", soft_grant(WHOLE, gpu=gpu.uuid)) for n, gpu in enumerate(NODE.gpus)]
    crowded = _charged([node_pod("p", {}, {GPU_MEM: "1"})], promised=full)
    if _gets(crowded, 1, 1) or not all(gpu.healthy for gpu in decode(crowded).node.gpus):
        yield "on a full node it is charged nowhere, or closes the node"


@door
def lists_of_devices_that_nobody_gave() -> Iterator[str]:
    """C.3: annotations of a stranger charge it for no more and no fewer GPUs than it asked."""
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}
    for text in (
        "GPU-n-0,NVIDIA,1,0:",
        "GPU-n-9,NVIDIA,3000,0:",
        "".join(f"GPU-n-{n},NVIDIA,15000,100:" for n in range(4)),
        "GPU-n-0,NVIDIA,-3000,0:",
        ";",
        "",
    ):
        annotations = {"volcano.sh/vgpu-node": "n", "volcano.sh/vgpu-ids-new": text}
        document = _charged([node_pod("p", annotations, limits)])
        if not _gets(document, WHOLE, 3):
            yield f"{text!r} closes more than one GPU"
        if not parse_ledger(document).unpromised:
            yield f"{text!r} is charged nothing"


@door
def memory_of_nobody() -> Iterator[str]:
    """C.3: what processes without an entry hold is there for nobody, and is told."""
    devices = tuple(device(T4, index=n) for n in range(2))
    uuids = [each.uuid for each in devices]
    for owner in (None, PodCgroup("unknown", "a" * 64), PodCgroup("p", "a" * 64)):
        process = Process(pid=7, gpu=uuids[0], memory=MiB(8000))
        seen = ObservedUse(
            processes=[LocatedProcess(process, owner)], shares=(), pods={"p": STRANGER}
        )
        hardware = Hardware(devices=devices, foreign_memory=foreign_memory(seen, uuids))
        served = served_gpus(hardware, DeviceConfig(), None, before=None)
        document = gpu_node(Node(name="n", gpus=tuple(each.gpu for each in served)))
        if _gets(document, 10_000, 2):
            yield f"what {owner} holds is promised"
        if not _gets(document, 10_000, 1):
            yield f"what {owner} holds closes another GPU"
        told = {each.kind for each in violations(seen)}
        if owner is not None and owner.uid == "p" and told != {ViolationKind.UNPROMISED}:
            yield f"a pod without an entry is told as {told}"


@door
def capacity_that_is_ours_alone() -> Iterator[str]:
    """C.3: the API server refuses who asks for it where we limit nothing, in every namespace."""
    noted = {"metadata": {"annotations": {SOLE_KEY: f"{GPU_MEM},example.com/mem"}}}
    policies = Policies(FILES["base/policies.yaml"])
    asking = container("asks", limits={GPU_MEM: "1"})
    pods: dict[str, Json] = {
        "a container": written_pod(asking),
        "the second": written_pod(container(), asking),
        "an init container": written_pod(container(), init=[asking]),
        "a renamed resource": written_pod(container(limits={"example.com/mem": "5"})),
        "beside others": written_pod(container(limits={"cpu": "1", GPU_MEM: "1"})),
        "too many names": written_pod(
            container(limits={f"example.com/r{n}": "1" for n in range(1001)})
        ),
        "after many": written_pod(*[container(f"c{n}") for n in range(200)], asking),
        "labelled itself": written_pod(asking)
        | {"metadata": {"name": "p", "labels": {"vgpu-admission.io/inject": "enabled"}}},
        "a false mirror": written_pod(asking, annotations={"kubernetes.io/config.mirror": "x"}),
    }
    for how, made in pods.items():
        for namespace, labels in (
            ("plain", {}),
            ("default", {"vgpu-admission.io/inject": "Enabled"}),
            ("kube-system", {"vgpu-admission.io/inject": "enabled"}),
        ):
            request = {
                "operation": "CREATE",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": namespace,
                "userInfo": {"username": "tenant", "groups": ["system:authenticated"]},
            }
            review = Review(
                request=request,
                object=made,
                old=None,
                namespace=labels,
                params={REGISTRATION: noted},
            )
            if not any("Deny" in finding.actions for finding in policies.findings(review)):
                yield f"{how} in {namespace}"


@door
def accounts_beyond_their_rights() -> Iterator[str]:
    """C.4: agents, tenants and schedulers write what is theirs, by our roles and policies."""
    for row in TABLE:
        found = answer(row)
        if RBAC in row.by:
            if found.allowed:
                yield row.id
            continue
        refusing = {each.policy for each in found.findings if "Deny" in each.actions}
        if row.by and not refusing & {rule.policy for rule in row.by}:
            yield row.id


@door
def amounts_below_zero() -> Iterator[str]:
    """C.4: a negative amount would be room that no GPU has."""
    held = entry("e", soft_grant(3000, 10, gpu=NODE.gpus[0].uuid))
    for key in ("memoryMiB", "slots", "foreignMiB", "index", "numa"):
        document = gpu_node(NODE, [held])
        document["status"]["gpus"][1][key] = -1
        if NODE.gpus[1].uuid in {gpu.uuid for gpu in decode(document).node.gpus}:
            yield f"{key} of a GPU"
    for key in ("memoryMiB", "cores"):
        document = gpu_node(NODE, [held])
        document["spec"]["entries"][0]["containers"][0]["devices"][0][key] = -3000
        if _gets(document, WHOLE, 1):
            yield f"{key} of an entry"


@door
def nodes_of_another_life() -> Iterator[str]:
    """C.4: a status of another boot, or of a Node of before, takes no commits."""
    stored = ledger(NODE, nodeUID="u")
    for uid, boot in (("u", "boot-2"), ("v", "boot-1"), ("v", "boot-2")):
        if status_is_current(stored, node_uid=uid, boot=boot, upstream=False):
            yield f"uid {uid}, {boot}"
    registered = ledger(NODE, nodeUID="u", driver="upstream")
    if status_is_current(registered, node_uid="u", boot="boot-1", upstream=False):
        yield "a status from a register of another plugin"
