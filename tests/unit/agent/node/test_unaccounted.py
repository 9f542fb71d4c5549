"""What runs without an entry is told as far as anybody knows, and nothing is told twice."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.node.pods import NodePod
from agent.node.status import Hardware, RealisedInstance
from agent.node.unaccounted import NodeUse, find_unaccounted, uses_gpus
from allocator.catalog.vocabularies import GPUSHARE, VOLCANO, configure_vocabulary
from allocator.ledger.decode import decode
from allocator.ledger.schema import spec_of
from allocator.model.allocation import Entry
from allocator.model.request import Mode, Stage
from tests.builders.gpunodes import entry, gpu_node, held, ledger, several
from tests.builders.model import A100_40, T4, nodes_of, placed, soft_grant
from tests.builders.node_pods import pod

NODE = nodes_of(2, T4, name="n")
VOLCANOS = {"volcano.sh/vgpu-node": "n"}
IDS = "volcano.sh/vgpu-ids-new"
HAMIS = {"hami.io/vgpu-node": "n"}
HAMI_IDS = "hami.io/vgpu-devices-allocated"
SLOT, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
ONE = {SLOT: "1", MEMORY: "3000"}


def unaccounted(
    *pods: NodePod,
    promised: tuple[Entry, ...] = (),
    factor: int = 1,
    instances: tuple[RealisedInstance, ...] = (),
) -> dict[str, tuple[Any, ...]]:
    """Return the containers of each entry by its uid."""
    use = NodeUse(
        pods=pods,
        gpus=NODE.gpus,
        hardware=Hardware(devices=(), instances=instances),
        vocabularies=(configure_vocabulary(VOLCANO, memory_factor=factor), GPUSHARE),
    )
    entries = find_unaccounted(gpu_node(NODE, promised), ledger(NODE, promised), use)
    return {e.uid: e.containers for e in entries}


def grants(containers: tuple[Any, ...]) -> list[tuple[str, str, int, int]]:
    return [(c.name, g.gpu, g.memory, g.cores) for c in containers for g in c.grants]


def test_it_is_told_as_our_own_assignment_tells_it() -> None:
    """After the ledger was lost, the pod's own annotations say what to keep free."""
    lost = entry("lost", soft_grant(3000, gpu="GPU-n-0"), container="c0")
    told = json.dumps(gpu_node(NODE, [lost])["spec"]["entries"][0]["containers"])
    known = entry("known", soft_grant(1000, gpu="GPU-n-0"))
    key = "vgpu-admission.io/assignment"

    entries = unaccounted(pod("known", {}, ONE), pod("lost", {key: told}, ONE), promised=(known,))

    assert entries == {"lost": lost.containers}


@pytest.mark.parametrize("told", list(Stage))
def test_who_takes_turns_the_spec_says(told: Stage) -> None:
    """Neither a tenant's word nor an older version's silence decides what counts once."""
    shares = [held(told, soft_grant(3000, gpu="GPU-n-0"), name=name) for name in ("i0", "c0", "c1")]
    lost = several("lost", *shares)
    text = json.dumps(gpu_node(NODE, [lost])["spec"]["entries"][0]["containers"])

    entries = unaccounted(
        pod("lost", {"vgpu-admission.io/assignment": text}, ONE, ONE, init=(ONE,))
    )

    assert [one.stage for one in entries["lost"]] == [Stage.INIT, Stage.APP, Stage.APP]
    stands = gpu_node(
        NODE, unpromised=spec_of([replace(lost, containers=entries["lost"])])["entries"]
    )
    assert [gpu.memory_promised for gpu in decode(stands).node.gpus] == [6000, 0]


def test_it_is_told_as_another_scheduler_listed_it() -> None:
    """Part by part for the containers that ask, in units of the site's gpuMemoryFactor."""
    text = "GPU-n-0,NVIDIA,300,50:GPU-n-1,NVIDIA,300,50:;GPU-n-1,NVIDIA,20,0:"

    two = {SLOT: "2", MEMORY: "300", "volcano.sh/vgpu-cores": "50"}

    entries = unaccounted(pod("p", VOLCANOS | {IDS: text}, {}, two, {}, ONE), factor=10)

    assert grants(entries["p"]) == [
        ("c1", "GPU-n-0", 3000, 50),
        ("c1", "GPU-n-1", 3000, 50),
        ("c3", "GPU-n-1", 200, 0),
    ]


def test_a_part_for_each_container_says_the_same() -> None:
    """Writers differ in whether who asks for nothing has an empty part."""
    dense, sparse = "GPU-n-0,NVIDIA,3000,0:", ";GPU-n-0,NVIDIA,3000,0:;"

    told = [unaccounted(pod("p", VOLCANOS | {IDS: text}, {}, ONE))["p"] for text in (dense, sparse)]

    assert told[0] == told[1]


def test_hamis_list_is_read_too() -> None:
    """Its pods ask for names of NVIDIA's, its memory is in MiB, init containers have parts."""
    asking = {"nvidia.com/gpu": "1"}
    text = "GPU-n-0,NVIDIA,50,0:;;GPU-n-1,NVIDIA,6000,25:;"

    entries = unaccounted(pod("p", HAMIS | {HAMI_IDS: text}, {}, asking, init=(asking,)), factor=10)

    assert grants(entries["p"]) == [("i0", "GPU-n-0", 50, 0), ("c1", "GPU-n-1", 6000, 25)]


def test_instances_of_others_stand_for_their_tenants() -> None:
    """As many as exist on that GPU; a tenant beyond those is on something that nobody knows."""
    node = nodes_of(1, A100_40, mode=Mode.MIG, name="n")
    gpu = node.gpus[0].uuid
    made = tuple(
        RealisedInstance(gpu=gpu, placed=placed("1g.5gb", start), uuid=f"MIG-{start}", foreign=True)
        for start in (4, 5)
    )
    tenants = [
        pod(uid, VOLCANOS | {IDS: f"{gpu}[group1-{n}],NVIDIA,3000,0:"}, ONE)
        for n, uid in enumerate("abc")
    ]

    entries = unaccounted(*tenants, instances=made)

    assert set(entries) == {"MIG-4", "MIG-5", "c"}


@pytest.mark.parametrize(
    ("limits", "started", "uses"),
    [
        pytest.param(ONE, True, True, id="ours"),
        pytest.param({"nvidia.com/gpu": "1"}, True, True, id="another-plugins"),
        pytest.param({"nvidia.com/mig-1g.5gb": "1"}, True, True, id="another-plugins-instance"),
        pytest.param(ONE, False, False, id="not-started"),
        pytest.param({"cpu": "1", "example.com/nic": "1"}, True, False, id="no-gpu"),
    ],
)
def test_who_may_use_a_gpu(limits: dict[str, str], *, started: bool, uses: bool) -> None:
    """A container that has started, of a pod for which kubelet counts GPUs of any name."""
    assert uses_gpus(pod("p", {}, limits, started=started), (VOLCANO, GPUSHARE)) is uses


def test_a_vocabulary_left_out_uses_gpus_too() -> None:
    """Its pods run on, and those of its own plugin never were ours."""
    left_out = pod("p", {}, {"aliyun.com/gpu-mem": "2"})

    assert uses_gpus(left_out, (VOLCANO,))


@pytest.mark.parametrize("uuid", ["MIG-5c1e2d3f-0000-4000-8000-000000000001", None])
def test_an_instance_of_somebody_else_keeps_its_slots(uuid: str | None) -> None:
    """The ledger sees them taken, by a name that is no pod's; twice the same words."""
    node = nodes_of(1, A100_40, mode=Mode.MIG, name="n")
    (gpu,) = node.gpus
    theirs = RealisedInstance(gpu=gpu.uuid, placed=placed("3g.20gb", 4), uuid=uuid, foreign=True)

    hardware = Hardware(devices=(), instances=(theirs,))
    use = NodeUse(pods=(), gpus=node.gpus, hardware=hardware, vocabularies=(VOLCANO,))

    entries, again = (find_unaccounted(gpu_node(node), ledger(node), use) for _ in range(2))

    assert entries == again
    stands = gpu_node(node, unpromised=spec_of(entries)["entries"])
    decoded = decode(stands)
    assert decoded.problems == ()
    assert decoded.node.gpus[0].taken_slots == theirs.placed.mask
