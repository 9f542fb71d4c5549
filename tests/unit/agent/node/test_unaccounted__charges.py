"""A pod of which nobody knows what it uses is charged for what it asks, and closes nothing more."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.node.pods import NodePod
from agent.node.status import Hardware, RealisedInstance
from agent.node.unaccounted import NodeUse, find_unaccounted
from allocator.catalog.vocabularies import GPUSHARE, VOLCANO
from allocator.ledger.decode import decode
from allocator.ledger.schema import MOST_UNPROMISED, MOST_UNPROMISED_BYTES, spec_of
from allocator.model.allocation import Entry, Grant
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from tests.builders.gpunodes import entry, gpu_node, ledger
from tests.builders.model import A100_40, T4, mig_grant, nodes_of, placed, soft_grant
from tests.builders.node_pods import pod

NODE = nodes_of(4, T4, name="n")
GPUS = [gpu.uuid for gpu in NODE.gpus]
WHOLE = NODE.gpus[0].memory
SEED = {"aliyun.com/gpu-mem": "1"}  # seed 004: one GiB
SLOT, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
ASSIGNMENT = "vgpu-admission.io/assignment"


def charged(
    *pods: NodePod,
    node: Node = NODE,
    promised: Iterable[Entry] = (),
    before: Iterable[Entry] = (),
    reached: Mapping[str, frozenset[str]] | None = None,
    instances: tuple[RealisedInstance, ...] = (),
) -> dict[str, Entry]:
    """Return the entries by uid, of which all must be readable by whoever promises GPUs."""
    promised, unpromised = tuple(promised), spec_of(before)["entries"]
    hardware = Hardware(devices=(), instances=instances, reached=reached or {})
    use = NodeUse(pods=pods, gpus=node.gpus, hardware=hardware, vocabularies=(VOLCANO, GPUSHARE))
    document = gpu_node(node, promised, unpromised=unpromised)
    entries = find_unaccounted(document, ledger(node, promised, unpromised=unpromised), use)
    decoded = decode(gpu_node(node, promised, unpromised=spec_of(entries)["entries"]))
    assert decoded.problems == ()
    assert all(gpu.healthy for gpu in decoded.node.gpus)
    return {e.uid: e for e in entries}


def grants(found: Entry) -> list[tuple[str, int, int]]:
    """Return GPU, MiB and cores of each grant."""
    return [(g.gpu, g.memory, g.cores) for c in found.containers for g in c.grants]


def on(*gpus: str, memory: int = 1024) -> list[tuple[str, int, int]]:
    return [(gpu, memory, 0) for gpu in gpus]


def test_what_was_asked_is_charged_on_one_gpu() -> None:
    """Seed 004 asks for 1 GiB: the other GPUs, and the rest of that one, stay for everybody."""
    found = charged(pod("p", {}, SEED))["p"]

    assert (found.namespace, found.pod) == ("team-a", "p")
    assert grants(found) == on(GPUS[0])
    assert [g.mode for c in found.containers for g in c.grants] == [Mode.MEMORY_ONLY]


def test_a_gpu_on_which_it_has_processes_is_charged() -> None:
    """Whatever is free there, because it was seen there."""
    full = entry("full", soft_grant(WHOLE, gpu=GPUS[2]))
    reached = {"p": frozenset({GPUS[2]})}

    assert grants(charged(pod("p", {}, SEED), promised=[full], reached=reached)["p"]) == on(GPUS[2])


def test_of_several_that_it_has_reached_no_more_are_charged_than_it_asked_for() -> None:
    """A framework opens a context on every GPU it sees; those count by their memory."""
    reached = {"p": frozenset(GPUS)}

    assert len(grants(charged(pod("p", {}, SEED), reached=reached)["p"])) == 1


def test_a_charge_stays_until_the_pod_is_seen_elsewhere() -> None:
    """The status would change with every commit, and every commit would be tried again."""
    before = [entry("p", soft_grant(1024, gpu=GPUS[3]))]
    busy = entry("busy", soft_grant(9000, gpu=GPUS[1]))

    stays = charged(pod("p", {}, SEED), promised=[busy], before=before)
    moves = charged(pod("p", {}, SEED), before=before, reached={"p": frozenset({GPUS[0]})})
    both = charged(pod("p", {}, SEED), before=before, reached={"p": frozenset(GPUS)})

    assert [grants(found["p"]) for found in (stays, moves, both)] == [
        on(GPUS[3]),
        on(GPUS[0]),
        on(GPUS[3]),
    ]


def test_the_fullest_gpu_with_room_is_charged() -> None:
    """What others may still be promised stays in one piece."""
    entries = [
        entry("full", soft_grant(WHOLE - 1000, gpu=GPUS[0])),
        entry("half", soft_grant(8000, gpu=GPUS[1])),
    ]

    assert grants(charged(pod("p", {}, SEED), promised=entries)["p"]) == on(GPUS[1])


def test_a_full_node_is_charged_all_the_same() -> None:
    """More than there is on one GPU, so that nothing is promised beside it."""
    entries = [entry(f"full-{gpu}", soft_grant(WHOLE, gpu=gpu)) for gpu in GPUS]

    (found,) = grants(charged(pod("p", {}, SEED), promised=entries)["p"])

    assert found[1:] == (1024, 0)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({"aliyun.com/gpu-mem": "0"}, None, id="zero"),
        pytest.param({"aliyun.com/gpu-mem": "-1"}, None, id="negative"),
        pytest.param({"aliyun.com/gpu-mem": "none"}, None, id="no-number"),
        pytest.param({"aliyun.com/gpu-mem": "9223372036854775807"}, [(WHOLE, 0)], id="largest"),
        pytest.param({"aliyun.com/gpu-mem": "1e30"}, None, id="more-than-there-can-be"),
        pytest.param({"aliyun.com/gpu-mem": "500m"}, [(1024, 0)], id="a-part-of-a-unit"),
        pytest.param({"aliyun.com/gpu-count": "2"}, [(WHOLE, 100)] * 2, id="whole-gpus"),
        pytest.param({"aliyun.com/gpu-count": "99999"}, [(WHOLE, 100)] * 4, id="more-gpus"),
        pytest.param({CORES: "500"}, [(WHOLE, 100)], id="cores-beyond-one-gpu"),
        pytest.param({MEMORY: "3000"}, [(3000, 0)], id="memory-without-a-slot"),
        pytest.param({"volcano.sh/vgpu-memory-percentage": "400"}, [(WHOLE, 0)], id="percent"),
        pytest.param({SLOT: "1"}, [(WHOLE, 0)], id="a-slot-alone"),
        pytest.param({SLOT: "1"} | SEED, [(1024, 0)], id="with-the-slot-that-admission-adds"),
        pytest.param({MEMORY: "1"} | SEED, [(1024, 0)], id="two-vocabularies"),
        pytest.param({"aliyun.com/gpu-strange": "1"}, None, id="no-resource-of-ours"),
        pytest.param({"nvidia.com/gpu": "1"}, [(WHOLE, 0)], id="nvidias"),
        pytest.param({"nvidia.com/gpu.shared": "3"}, [(WHOLE, 0)], id="an-unknown-name"),
        pytest.param(
            {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "4000"}, [(4000, 0)] * 2, id="hamis"
        ),
        pytest.param({"volcano.sh/gpu-memory": "8000"}, [(8000, 0)], id="volcanos-first"),
        pytest.param({"nvidia.com/mig-1g.5gb": "1"}, None, id="an-instance-of-nvidias-plugin"),
    ],
)
def test_any_amount_is_charged_within_one_node(
    limits: dict[str, str], expected: list[tuple[int, int]] | None
) -> None:
    """Of odd requests, too, at most what they name; a GPU has no more than all of it."""
    found = charged(pod("p", {}, limits)).get("p")

    assert (found and [(memory, cores) for _, memory, cores in grants(found)]) == expected


def test_an_init_container_alone_is_charged() -> None:
    """kube-scheduler keeps its share for as long as the pod lives, and so do we."""
    found = charged(pod("p", {}, {}, init=(SEED,)))["p"]

    assert [(c.name, c.stage) for c in found.containers] == [("i0", "init")]
    assert grants(found) == on(GPUS[0])


def test_containers_share_a_gpu_where_they_fit() -> None:
    """And do not where they cannot have: more than one GPU has is on two."""
    large = {"aliyun.com/gpu-mem": "10"}

    together = charged(pod("p", {}, SEED, SEED, SEED))["p"]
    apart = charged(pod("p", {}, large, large))["p"]

    assert grants(together) == on(*[GPUS[0]] * 3)
    assert grants(apart) == on(*GPUS[:2], memory=10240)


def test_a_charge_that_stands_is_counted_before_new_ones() -> None:
    """Whoever comes next, by whatever uid, finds the room that is left."""
    half = entry("half", soft_grant(WHOLE - 8000, gpu=GPUS[2]))
    before = [entry("z", soft_grant(7168, gpu=GPUS[2]))]
    asking = {"aliyun.com/gpu-mem": "7"}

    found = charged(pod("a", {}, asking), pod("z", {}, asking), promised=[half], before=before)

    assert grants(found["z"]) == on(GPUS[2], memory=7168)
    assert grants(found["a"]) == on(GPUS[0], memory=7168)


def test_containers_that_take_turns_share_a_gpu() -> None:
    """An init container has ended when the others start; what both use counts once."""
    large = {"aliyun.com/gpu-mem": "10"}

    found = charged(pod("p", {}, large, init=(large,)))["p"]

    assert grants(found) == on(GPUS[0], GPUS[0], memory=10240)


def test_many_pods_fill_one_gpu_after_the_other() -> None:
    """Two share a GPU, and the last comes where there is most room."""
    pods = [pod(f"p{n}", {}, {"aliyun.com/gpu-mem": "7"}) for n in range(9)]

    found = charged(*pods)

    used = [gpu for one in found.values() for gpu, _, _ in grants(one)]
    assert sorted(used.count(gpu) for gpu in GPUS) == [2, 2, 2, 3]


def size(found: Mapping[str, Entry]) -> int:
    """Return the bytes of entries in a status."""
    return len(msgspec.json.encode(spec_of(found.values())["entries"]))


def test_more_pods_than_a_status_can_hold() -> None:
    """One more than the API server takes would leave the node without any status."""
    pods = [pod(f"p{n}", {}, SEED) for n in range(MOST_UNPROMISED + 1)]

    found = charged(*pods)

    assert 0.9 * MOST_UNPROMISED < len(found) <= MOST_UNPROMISED
    assert size(found) <= MOST_UNPROMISED_BYTES


def test_pods_that_are_longer_than_a_status_can_be() -> None:
    """A node whose status is too long is closed: each pod is charged in as few words as will do."""
    one_core = {SLOT: "1", MEMORY: "16", CORES: "2"}
    pods = [pod(f"p{n}", {}, *[one_core] * 60) for n in range(100)]

    found = charged(*pods)

    assert len(found) == 100
    assert {len(one.containers) for one in found.values()} == {1}
    assert sum(memory for _, memory, _ in grants(found["p7"])) == 60 * 16
    assert max(cores for _, _, cores in grants(found["p7"])) == 100
    assert size(found) <= MOST_UNPROMISED_BYTES


def test_more_containers_than_an_entry_can_hold() -> None:
    """An entry that nobody can read would close the node."""
    found = charged(pod("p", {}, *[SEED] * 80))["p"]

    assert len(found.containers) == 64


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param([(GPUS[3], 1024, 0)], on(GPUS[3]), id="as-asked"),
        pytest.param([(GPUS[3], WHOLE, 100)], on(GPUS[3]), id="all-of-it"),
        pytest.param([(gpu, WHOLE, 100) for gpu in GPUS], on(GPUS[0]), id="every-gpu"),
        pytest.param([(GPUS[3], 1024, 0)] * 2, on(GPUS[0]), id="one-gpu-twice"),
    ],
)
def test_an_annotation_claims_no_more_than_was_asked_for(
    claims: list[tuple[str, int, int]], expected: list[tuple[str, int, int]]
) -> None:
    """Anybody may write it where the namespace has no label."""
    held = [
        Grant(gpu=gpu, mode=Mode.MEMORY_ONLY, memory=MiB(memory), cores=CorePercent(cores))
        for gpu, memory, cores in claims
    ]
    told = gpu_node(NODE, [entry("p", *held, container="c0")])["spec"]["entries"][0]["containers"]

    found = charged(pod("p", {ASSIGNMENT: json.dumps(told)}, SEED))["p"]

    assert grants(found) == expected


LISTED = {"volcano.sh/vgpu-node": "n"}
IDS = "volcano.sh/vgpu-ids-new"


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="none"),
        pytest.param(LISTED | {IDS: GPUS[3]}, id="no-list"),
        pytest.param({IDS: f"{GPUS[3]},NVIDIA,1000,0:"}, id="of-no-node"),
        pytest.param(
            {"volcano.sh/vgpu-node": "m", IDS: f"{GPUS[3]},NVIDIA,1000,0:"}, id="of-another-node"
        ),
        pytest.param(LISTED | {IDS: f"{GPUS[3]},NVIDIA,1,0:;" * 2}, id="too-many-containers"),
        pytest.param(LISTED | {IDS: f"{GPUS[3]},NVIDIA,1,0:" * 2}, id="too-many-gpus"),
        pytest.param(LISTED | {IDS: f"{GPUS[3]},NVIDIA,1,101:"}, id="no-percentage"),
        pytest.param(LISTED | {IDS: f"{GPUS[3]},NVIDIA,9999999999,1:"}, id="no-memory"),
        pytest.param({ASSIGNMENT: "{"}, id="no-json"),
        pytest.param({ASSIGNMENT: "[" * 2000}, id="never-ends"),
        pytest.param({ASSIGNMENT: "[" * 900 + "]" * 900}, id="deep"),
        pytest.param({ASSIGNMENT: '[{"devices":' * 300 + "[]" + "}]" * 300}, id="deep-devices"),
        pytest.param({ASSIGNMENT: "9" * 5000}, id="a-long-number"),
        pytest.param({ASSIGNMENT: '"\\ud800"'}, id="half-a-character"),
    ],
)
def test_who_tells_nothing_credible_is_charged_by_the_request(annotations: dict[str, str]) -> None:
    """A list with any defect, of another node, or that does not fit the pod says nothing."""
    found = charged(pod("p", annotations, {MEMORY: "1000"}), pod("q", {}, SEED))

    assert grants(found["p"]) == on(GPUS[0], memory=1000)
    assert grants(found["q"]) == on(GPUS[0])


def test_an_annotation_about_a_container_that_asks_for_nothing_says_nothing() -> None:
    """It would take a GPU from others for nothing."""
    told = gpu_node(NODE, [entry("p", soft_grant(WHOLE, gpu=GPUS[3]), container="c0")])
    claims = told["spec"]["entries"][0]["containers"]

    found = charged(pod("p", {ASSIGNMENT: json.dumps(claims)}, {}, SEED))["p"]

    assert grants(found) == on(GPUS[0])


class TestMig:
    """Of GPUs in MIG mode a process reaches an instance, or nothing."""

    node = nodes_of(1, A100_40, mode=Mode.MIG, name="n")
    gpu = node.gpus[0].uuid

    def made(self, start: int, *, foreign: bool = False) -> RealisedInstance:
        where = placed("1g.5gb", start)
        return RealisedInstance(gpu=self.gpu, placed=where, uuid=f"MIG-{start}", foreign=foreign)

    def test_who_was_seen_nowhere_is_charged_nothing(self) -> None:
        """Every instance is promised, somebody else's, or idle; and nobody is on an idle one."""
        asking = pod("p", {}, {MEMORY: "3000"})

        assert charged(asking, node=self.node, instances=(self.made(0),)) == {}

    def test_an_idle_instance_that_it_has_reached_is_charged(self) -> None:
        """It could be promised to somebody else."""
        reached = {"p": frozenset({"MIG-1"})}
        made = (self.made(0), self.made(1))

        found = charged(
            pod("p", {}, {MEMORY: "3000"}), node=self.node, instances=made, reached=reached
        )

        assert [g.placed for c in found["p"].containers for g in c.grants] == [placed("1g.5gb", 1)]

    @pytest.mark.parametrize("foreign", [False, True], ids=["promised", "of-somebody-else"])
    def test_an_instance_that_is_taken_is_not_charged_again(self, *, foreign: bool) -> None:
        """Its slots are counted once."""
        holder = [] if foreign else [entry("q", mig_grant("1g.5gb", 1, gpu=self.gpu))]
        reached = {"p": frozenset({"MIG-1"})}
        made = (self.made(1, foreign=foreign),)

        found = charged(
            pod("p", {}, {MEMORY: "3000"}),
            node=self.node,
            promised=holder,
            instances=made,
            reached=reached,
        )

        assert found.keys() == ({"MIG-1"} if foreign else set())


AMOUNTS = st.dictionaries(
    st.sampled_from(
        [*VOLCANO.resources, *GPUSHARE.resources, "nvidia.com/gpu", "nvidia.com/gpu.x", "cpu"]
    ),
    st.one_of(st.integers(-1, 2**64).map(str), st.text("0123456789eEkMi.-", max_size=6)),
    max_size=4,
)


@given(limits=st.lists(AMOUNTS, max_size=4), reached=st.sets(st.sampled_from([*GPUS, "GPU-x"])))
def test_no_pod_takes_more_gpus_than_it_asks_for(
    limits: list[dict[str, str]], reached: set[str]
) -> None:
    """Whatever it writes, and whatever it was seen on."""
    stranger = pod("p", {}, *limits)
    whole = {name for one in limits for name in one if "number" in name or "count" in name}
    whole |= {name for one in limits for name in one if name == "nvidia.com/gpu"}

    found = charged(stranger, reached={"p": frozenset(reached)})

    on_gpus = {gpu for one in found.values() for gpu, _, _ in grants(one)}
    assert whole or len(on_gpus) <= len(limits)
    assert all(0 <= memory <= WHOLE for one in found.values() for _, memory, _ in grants(one))


def test_a_gpu_out_of_service_is_charged_last() -> None:
    """Nobody is promised it, so the charge would keep nothing free."""
    ill = replace(NODE, gpus=(replace(NODE.gpus[0], healthy=False), *NODE.gpus[1:]))
    use = NodeUse(
        pods=[pod("p", {}, SEED)],
        gpus=ill.gpus,
        hardware=Hardware(devices=()),
        vocabularies=(GPUSHARE,),
    )

    (found,) = find_unaccounted(gpu_node(ill), ledger(ill), use)

    assert grants(found) == on(GPUS[1])
