"""What runs without an entry is told as far as anybody knows, and nothing is told twice."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.node.pods import NodePod, parse_pod
from agent.node.status import RealisedInstance
from agent.node.unaccounted import find_unaccounted, uses_gpus
from allocator.catalog.vocabularies import GPUSHARE, VOLCANO, configure_vocabulary
from allocator.ledger.decode import decode
from allocator.ledger.schema import spec_of
from allocator.model.allocation import Entry
from allocator.model.request import Mode, Stage
from tests.builders.gpunodes import entry, gpu_node, held, ledger, several
from tests.builders.model import A100_40, T4, nodes_of, placed, soft_grant

NODE = nodes_of(2, T4, name="n")
VOLCANOS = {"volcano.sh/vgpu-node": "n"}
IDS = "volcano.sh/vgpu-ids-new"
HAMIS = {"hami.io/vgpu-node": "n"}
HAMI_IDS = "hami.io/vgpu-devices-allocated"
SLOT, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
ONE = {SLOT: "1", MEMORY: "3000"}
RUNNING: dict[str, object] = {"state": {"running": {}}}


def pod(
    uid: str,
    annotations: dict[str, str],
    *limits: dict[str, str],
    started: bool = True,
    init: tuple[dict[str, str], ...] = (),
) -> NodePod:
    """Return a pod on the node, with a container for each of *limits*."""
    names = [f"c{i}" for i in range(len(limits))]
    spec = {
        "nodeName": "n",
        "containers": [
            {"name": name, "resources": {"limits": wanted}}
            for name, wanted in zip(names, limits, strict=True)
        ],
        "initContainers": [
            {"name": f"i{i}", "resources": {"limits": wanted}} for i, wanted in enumerate(init)
        ],
    }
    statuses = [{"name": name} | (RUNNING if started else {}) for name in names]
    metadata = {"uid": uid, "name": uid, "namespace": "team-a", "annotations": annotations}
    written = {"metadata": metadata, "spec": spec, "status": {"containerStatuses": statuses}}
    return parse_pod(json.dumps(written).encode())


def unaccounted(
    *pods: NodePod,
    promised: tuple[Entry, ...] = (),
    factor: int = 1,
    instances: tuple[RealisedInstance, ...] = (),
) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """Return containers by the uid of each entry, and the uids of pods whose use is unknown."""
    entries, unknown = find_unaccounted(
        gpu_node(NODE, promised),
        ledger(NODE, promised),
        pods=pods,
        instances=instances,
        vocabularies=(configure_vocabulary(VOLCANO, memory_factor=factor), GPUSHARE),
    )
    return {e.uid: e.containers for e in entries}, [pod.uid for pod in unknown]


def grants(containers: tuple[Any, ...]) -> list[tuple[str, str, int, int]]:
    return [(c.name, g.gpu, g.memory, g.cores) for c in containers for g in c.grants]


def test_it_is_told_as_our_own_assignment_tells_it() -> None:
    """After the ledger was lost, the pod's own annotations say what to keep free."""
    lost = entry("lost", soft_grant(3000, gpu="GPU-n-0"))
    told = json.dumps(gpu_node(NODE, [lost])["spec"]["entries"][0]["containers"])
    known = entry("known", soft_grant(1000, gpu="GPU-n-0"))
    key = "vgpu-admission.io/assignment"

    entries, unknown = unaccounted(
        pod("known", {}, ONE),
        pod("lost", {key: told}, ONE),
        pod("odd", {key: "{"}, ONE),
        promised=(known,),
    )

    assert (entries, unknown) == ({"lost": lost.containers}, ["odd"])


@pytest.mark.parametrize("told", list(Stage))
def test_who_takes_turns_the_spec_says(told: Stage) -> None:
    """Neither a tenant's word nor an older version's silence decides what counts once."""
    shares = [held(told, soft_grant(3000, gpu="GPU-n-0"), name=name) for name in ("i0", "c0", "c1")]
    lost = several("lost", *shares)
    text = json.dumps(gpu_node(NODE, [lost])["spec"]["entries"][0]["containers"])

    entries, _ = unaccounted(
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

    entries, unknown = unaccounted(pod("p", VOLCANOS | {IDS: text}, {}, ONE, {}, ONE), factor=10)

    assert unknown == []
    assert grants(entries["p"]) == [
        ("c1", "GPU-n-0", 3000, 50),
        ("c1", "GPU-n-1", 3000, 50),
        ("c3", "GPU-n-1", 200, 0),
    ]


def test_a_part_for_each_container_says_the_same() -> None:
    """Writers differ in whether who asks for nothing has an empty part."""
    dense, sparse = "GPU-n-0,NVIDIA,3000,0:", ";GPU-n-0,NVIDIA,3000,0:;"

    told = [
        unaccounted(pod("p", VOLCANOS | {IDS: text}, {}, ONE))[0]["p"] for text in (dense, sparse)
    ]

    assert told[0] == told[1]


def test_hamis_list_is_read_too() -> None:
    """Its pods ask for names of NVIDIA's, its memory is in MiB, init containers have parts."""
    asking = {"nvidia.com/gpu": "1"}
    text = "GPU-n-0,NVIDIA,50,0:;;GPU-n-1,NVIDIA,6000,25:;"

    entries, unknown = unaccounted(
        pod("p", HAMIS | {HAMI_IDS: text}, {}, asking, init=(asking,)), factor=10
    )

    assert unknown == []
    assert grants(entries["p"]) == [("i0", "GPU-n-0", 50, 0), ("c1", "GPU-n-1", 6000, 25)]


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="none"),
        pytest.param(VOLCANOS | {IDS: "GPU-n-0"}, id="no-list"),
        pytest.param({IDS: "GPU-n-0,NVIDIA,3000,0:"}, id="of-no-node"),
        pytest.param(
            {"volcano.sh/vgpu-node": "m", IDS: "GPU-n-0,NVIDIA,3000,0:"}, id="of-another-node"
        ),
        pytest.param(VOLCANOS | {IDS: "GPU-n-0,NVIDIA,1,0:;GPU-n-0,NVIDIA,1,0:"}, id="too-many"),
        pytest.param(VOLCANOS | {IDS: "GPU-n-0,NVIDIA,1,101:"}, id="no-percentage"),
        pytest.param(VOLCANOS | {IDS: "GPU-n-0,NVIDIA,9999999999,1:"}, id="no-memory"),
    ],
)
def test_what_nobody_knows_is_said_to_be_unknown(annotations: dict[str, str]) -> None:
    """A list with any defect, of another node, or that does not fit the pod tells nothing."""
    assert unaccounted(pod("p", annotations, ONE)) == ({}, ["p"])


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

    entries, unknown = unaccounted(*tenants, instances=made)

    assert (set(entries), unknown) == ({"MIG-4", "MIG-5"}, ["c"])


@pytest.mark.parametrize(
    "told",
    [
        pytest.param("[" * 2000, id="never-ends"),
        pytest.param("[" * 900 + "]" * 900, id="deep"),
        pytest.param('[{"devices":' * 300 + "[]" + "}]" * 300, id="deep-devices"),
        pytest.param("9" * 5000, id="a-long-number"),
        pytest.param('"\\ud800"', id="half-a-character"),
    ],
)
def test_an_annotation_written_to_harm_says_nothing(told: str) -> None:
    """The node tells of all other pods, and of this one that nobody knows what it uses."""
    lost = entry("lost", soft_grant(3000, gpu="GPU-n-0"))
    good = json.dumps(gpu_node(NODE, [lost])["spec"]["entries"][0]["containers"])
    key = "vgpu-admission.io/assignment"

    entries, unknown = unaccounted(pod("harm", {key: told}, ONE), pod("lost", {key: good}, ONE))

    assert (entries, unknown) == ({"lost": lost.containers}, ["harm"])


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

    entries, again = (
        find_unaccounted(
            gpu_node(node), ledger(node), pods=[], instances=[theirs], vocabularies=(VOLCANO,)
        )[0]
        for _ in range(2)
    )

    assert entries == again
    stands = gpu_node(node, unpromised=spec_of(entries)["entries"])
    decoded = decode(stands)
    assert decoded.problems == ()
    assert decoded.node.gpus[0].taken_slots == theirs.placed.mask
