"""MetaX's GPUs from the pod that a person writes to what MetaX's device plugin reads."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from allocator.catalog.vocabularies import METAX_SGPU
from allocator.cluster.family_inventories import FamilyInventories
from allocator.cluster.objects import decode_node
from allocator.config.settings import DEFAULTS, FleetScope, ScoreWeights
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import Index, IndexBuilder
from allocator.extender.pod import SchedulingPod
from allocator.extender.prioritize import score_nodes
from allocator.families.metax import METAX_FAMILY
from allocator.ledger.assign import PodClaim
from allocator.ledger.commit import with_entry
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.ledger.lifecycle import GpuNodeAction, NodeIdentity, WriteStatus, due_step
from allocator.metax.names import ALLOCATED_KEY, CARDS_KEY, LOSSES_KEY, SCORES_KEY
from allocator.model.gpu import Node
from allocator.model.request import FillPolicy, Mode, PodRequest
from allocator.replay.content import ReplayContentError
from allocator.replay.node_codec import taken_rows, taken_shares, with_rows
from allocator.request.parse import parse_request
from tests.builders.bindings import applied, binding, bound, live
from tests.builders.gpunodes import gpu_node, ledger
from tests.builders.model import snapshot
from tests.builders.pods import Json, admitted, container, decided, pod, received, typed
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import confirm
from webhook.admission.outcome import Refused, Rewritten
from webhook.binding.batch import decide_batch
from webhook.binding.binding_annotations import Commit, committed_patch
from webhook.binding.decide import BindRequest, Denied, judge

NOW = datetime(2026, 3, 1, 8, 15, 31, tzinfo=UTC)
GPU, SGPU = "metax-tech.com/gpu", "metax-tech.com/sgpu"
VCORE, VMEMORY = "metax-tech.com/vcore", "metax-tech.com/vmemory"
QOS, CLASS = "metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class"
USE = "metax-tech.com/use-gpuuuid"
HAMI_TEXT = "hami.io/metax-sgpu-devices-allocated"


def card(uuid: str, *, zone: int = 1) -> Json:
    """Return one card as MetaX's plugin publishes it."""
    amounts = {"totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536}
    return {"uuid": uuid, "model": "C500", **amounts, "healthy": True, "linkZone": zone}


def machine(*cards: Json, **amounts: str) -> Json:
    """Return a Node with *cards* in mode sgpu, or with *amounts* of the resources gpu and sgpu."""
    shown = {f"metax-tech.com/{name}": text for name, text in amounts.items()}
    shown = shown or {SGPU: str(16 * len(cards))}
    notes = {CARDS_KEY: json.dumps(cards)} if cards else {}
    return {
        "metadata": {"name": "n0", "uid": "u", "annotations": notes},
        "status": {"nodeInfo": {"bootID": "b"}, "capacity": shown, "allocatable": shown},
    }


TWO = machine(card("GPU-a"), card("GPU-b"))


def identity(written: Json) -> NodeIdentity:
    """Return the Node as the leader knows it."""
    read = decode_node(msgspec.json.encode(written))
    found = FamilyInventories().inventory(read.facts)
    return read.identity(found.node, registered_by="metax", registered_closed=found.closed)


def node_of(written: Json) -> Node:
    """Return the node with its GPUs."""
    found = identity(written).registered
    assert found is not None
    return found


def around(*nodes: Node) -> AdmissionContext:
    """Return what admission and the hook on Bindings know."""
    return AdmissionContext(settings=DEFAULTS, snapshot=snapshot(*nodes), host_paths=True)


class Cluster:
    """One MetaX node whose ledger keeps what is committed."""

    def __init__(self, written: Json) -> None:
        self.ledger: Ledger = ledger(node_of(written))
        self._number = 0

    def bind(self, written: Json) -> Any:  # noqa: ANN401 -- JSON
        """Return the annotations of a pod that is bound, or the refusal of its bind."""
        self._number += 1
        view, uid = around(self.ledger.node), f"uid-{self._number}"
        stored = admitted(received(written), view)
        judged = judge(bound(binding(uid=uid)), live(stored, uid=uid), view)
        assert isinstance(judged, BindRequest), judged
        (found,) = decide_batch(self.ledger, [(judged, view)], NOW)
        if not isinstance(found, Commit):
            return found
        self.ledger = with_entry(self.ledger, found.entry)
        return applied(binding(), committed_patch(found, NOW))["metadata"]["annotations"]


def share(notes: Json | None = None, *, cores: int | None = 60, memory: int = 4) -> Json:
    """Return a pod that asks for a share of one GPU."""
    limits = {SGPU: 1, VCORE: cores, VMEMORY: memory}
    known = {name: amount for name, amount in limits.items() if amount is not None}
    return pod(container(limits=known), annotations=notes or {})


def given(annotations: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return what MetaX's plugin reads."""
    return json.loads(annotations[ALLOCATED_KEY])


def test_the_pod_of_metaxs_guide_gets_its_share() -> None:
    """60 percent and 4 GiB, with all that plugin, HAMi and our policies read (M1)."""
    found = Cluster(TWO).bind(share())

    (((device,),),) = (given(found),)
    assert (device["compute"], device["vRam"]) == (60, 4096)
    assert device["uuid"] in {"GPU-a", "GPU-b"}
    assert found[HAMI_TEXT] == f"{device['uuid']},Metax-SGPU,4096,60:;"
    assert found["metax-tech.com/predicate-time"] == "1772352931000000000"
    assert found["hami.io/vgpu-node"] == "n0"
    assert found["vgpu-admission.io/mode"] == "sgpu"
    assert found["vgpu-admission.io/served-by"] == "upstream"
    assert not [key for key in found if key.startswith("volcano.sh/")]


def test_nothing_but_the_void_is_written_into_its_containers() -> None:
    """No variable of NVIDIA's library is of use there; its other containers see no GPU either."""
    stored = admitted(received(share()), around(node_of(TWO)))

    (main,) = stored["spec"]["containers"]
    assert main["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert "volumes" not in stored["spec"]
    assert main["resources"]["limits"] == {SGPU: "1", VCORE: "60", VMEMORY: "4"}


@pytest.mark.parametrize("written", [share(), pod(container(limits={GPU: 2}))])
def test_a_second_pass_changes_nothing(written: Json) -> None:
    """Admission reads its own marks back, and validation confirms them."""
    view = around(node_of(TWO), replace(node_of(machine(gpu="8")), name="n1"))
    once = admitted(received(written), view)

    assert admitted(once, view) == once
    assert isinstance(confirm(typed(once), view), Rewritten)


def test_an_online_pod_is_charged_no_compute() -> None:
    """And no QoS policy is its own (M2)."""
    ((device,),) = given(Cluster(TWO).bind(share({CLASS: "online"}, cores=None)))

    assert "compute" not in device
    assert device["vRam"] == 4096


def test_an_online_pod_goes_where_it_holds_back_nobody() -> None:
    """By binpack it would join the offline pod, whose GPU is the fuller one."""
    cluster = Cluster(TWO)
    ((waiting,),) = given(cluster.bind(share({CLASS: "offline"}, cores=30)))
    ((first,),) = given(cluster.bind(share({CLASS: "online"})))
    ((second,),) = given(cluster.bind(share({CLASS: "online"})))

    assert waiting["uuid"] != first["uuid"] == second["uuid"]


def test_the_first_pod_decides_the_policy_of_a_gpu() -> None:
    """Another policy gets the other GPU, and a third pod joins its like (M3)."""
    cluster = Cluster(TWO)
    ((first,),) = given(cluster.bind(share(cores=30)))
    ((other,),) = given(cluster.bind(share({QOS: "fixed-share"}, cores=30)))
    ((third,),) = given(cluster.bind(share(cores=30)))

    assert first["uuid"] != other["uuid"]
    assert third["uuid"] == first["uuid"]
    refused = cluster.bind(share({QOS: "burst-share"}, cores=10))
    assert isinstance(refused, Denied)
    assert "shares a GPU as burst-share" in refused.refusal.message


def test_two_whole_gpus_of_a_shared_node() -> None:
    """Without amounts a container gets all of each (M4)."""
    found = Cluster(TWO).bind(pod(container(limits={SGPU: 2})))

    devices = sorted(given(found)[0], key=lambda device: device["uuid"])
    assert devices == [{"uuid": uuid, "compute": 100, "vRam": 65536} for uuid in ("GPU-a", "GPU-b")]


def test_each_container_keeps_its_place() -> None:
    """One that asks for nothing has an empty list (M7)."""
    asking = container("second", limits={SGPU: 1, VCORE: 30, VMEMORY: 8})

    found = Cluster(TWO).bind(pod(container(), asking))

    nothing, (device,) = given(found)
    assert nothing == []
    assert (device["compute"], device["vRam"]) == (30, 8192)
    assert found[HAMI_TEXT].startswith(";GPU-")


@pytest.mark.parametrize(
    ("text", "accepted"), [(" GPU-a , GPU-z ", {"GPU-a"}), ("", {"GPU-a", "GPU-b"})]
)
def test_gpus_are_named_as_in_hami(text: str, accepted: set[str]) -> None:
    """Blanks do not count, and a blank list accepts all (M8, M9)."""
    ((device,),) = given(Cluster(TWO).bind(share({USE: text})))

    assert device["uuid"] in accepted


def request_of(limits: Json, notes: Json | None = None) -> PodRequest | str:
    """Return what a pod asks for, or why it is refused."""
    written = typed(received(pod(container(limits=limits), annotations=notes or {})))
    found = decided(pod(container(limits=limits), annotations=notes or {}), around(node_of(TWO)))
    if isinstance(found, Refused):
        return str(found.findings.first)
    asked = parse_request(
        containers=written.spec.containers,
        init_containers=(),
        annotations=written.metadata.annotations or {},
        vocabularies=(METAX_SGPU,),
    )
    assert isinstance(asked, PodRequest)
    return asked


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        (4, 4096),
        ("4", 4096),
        ("16", 16384),
        ("1e1", 10240),
        ("4Gi", 4096),
        ("4G", 3814),
        ("512Mi", 512),
        ("2Gi", 2048),
        ("3M", 2),
        ("1Mi", 1),
    ],
)
def test_memory_is_in_gib_or_in_bytes(text: str | int, mib: int) -> None:
    """By the number and the format that were written, never by the printed text."""
    asked = request_of({SGPU: 1, VMEMORY: text})

    assert isinstance(asked, PodRequest), asked
    assert asked.containers[0].memory == mib


@pytest.mark.parametrize("text", [1000, "1k", "1000", "1e3", 2000, "64k", "1Ti"])
def test_a_thousand_gib_are_not_a_whole_gpu(text: str | int) -> None:
    """HAMi reads them so, because the API server writes ``1k`` (M6)."""
    closed = msgspec.structs.replace(DEFAULTS, fleet=FleetScope.CLOSED)
    view = msgspec.structs.replace(around(node_of(TWO)), settings=closed)

    found = decided(pod(container(limits={SGPU: 1, VMEMORY: text})), view)

    assert isinstance(found, Refused)
    assert "GiB on one GPU; the largest has 64" in str(found.findings.first)


HOSTILE = [
    {SGPU: -1},
    {SGPU: "1.5"},
    {SGPU: 17},
    {SGPU: 2**32},
    {SGPU: "9" * 70},
    {SGPU: "one"},
    {SGPU: 1, VCORE: 140},
    {SGPU: 1, VCORE: -1},
    {SGPU: 1, VCORE: "50%"},
    {SGPU: 1, VMEMORY: -4},
    {SGPU: 1, VMEMORY: "500m"},
    {SGPU: 1, VMEMORY: "4Ki"},
    {SGPU: 1, VMEMORY: "2M"},
    {SGPU: 1, VMEMORY: "1M"},
    {SGPU: 1, VMEMORY: 2097152},
    {SGPU: 1, VMEMORY: "8Ei"},
    {SGPU: 1, VMEMORY: "4 Gi"},
    {SGPU: 1, VMEMORY: "\x1b[31m"},
    {SGPU: 0, VCORE: 10},
    {SGPU: 1, GPU: 1},
    {GPU: 1, VCORE: 10},
    {GPU: -1},
    {GPU: 2**32},
    {SGPU: 1, "metax-tech.com/vmem": 1, "metax-tech.com/sgpus": 1},
]


@pytest.mark.parametrize("limits", HOSTILE)
def test_what_hami_takes_for_no_request_is_refused(limits: Json) -> None:
    """A pod would start without a GPU, or with more of one than it asked for."""
    found = request_of(limits)

    assert isinstance(found, str), found
    assert found.isprintable()
    assert len(found) < 400


@pytest.mark.parametrize(
    "notes",
    [
        {QOS: ""},
        {QOS: "Best-Effort"},
        {QOS: "\x00"},
        {CLASS: "x" * 5000},
        {CLASS: "batch", QOS: "best-effort"},
        {"metax-tech.com/sgpu-topology-aware": "yes"},
        {"metax-tech.com/sgpu-topology-aware": ""},
        {"vgpu-admission.io/mode": "mig"},
        {"vgpu-admission.io/mode": "hami-core"},
        {"vgpu-admission.io/mode": "native"},
        {"vgpu-admission.io/mig-profile": "1g.5gb"},
        {"vgpu-admission.io/library": "off"},
        {ALLOCATED_KEY: "[[]]"},
        {"metax-tech.com/predicate-time": "1"},
    ],
)
def test_an_annotation_that_cannot_be_followed_is_refused(notes: Json) -> None:
    """With its name in the text."""
    found = request_of({SGPU: 1}, notes)

    assert isinstance(found, str), found
    assert found.isprintable()
    assert len(found) < 400
    assert any(key in found for key in notes)


@pytest.mark.parametrize("word", ["offline", "online"])
def test_a_class_goes_with_one_gpu(word: str) -> None:
    """A pod that asks for two is refused (M5)."""
    assert "goes with one GPU" in str(request_of({SGPU: 2}, {CLASS: word}))


def test_vcore_without_sgpu_asks_for_one_gpu() -> None:
    """HAMi lets such a pod start without a GPU; here it gets the resource that calls the plugin."""
    written = pod(container(limits={VCORE: 50, VMEMORY: 4}))

    stored = admitted(received(written), around(node_of(TWO)))

    assert stored["spec"]["containers"][0]["resources"]["limits"][SGPU] == "1"


def test_whole_gpus_of_a_native_node() -> None:
    """HAMi's text names them; MetaX's plugin chooses them by itself and takes no lock."""
    found = Cluster(machine(gpu="4")).bind(pod(container(limits={GPU: 2})))

    assert found["hami.io/metax-gpu-devices-allocated"] == (
        "n0-metax-0,Metax-GPU,65536,100:n0-metax-1,Metax-GPU,65536,100:;"
    )
    assert ALLOCATED_KEY not in found
    assert found["vgpu-admission.io/mode"] == "native"


def test_a_node_is_native_or_shared_never_both() -> None:
    """A share finds nothing on a native node, nor a whole GPU on a shared one."""
    for written, asked in ((machine(gpu="4"), share()), (TWO, pod(container(limits={GPU: 1})))):
        found = Cluster(written).bind(asked)
        assert isinstance(found, Denied)


def written_status(step: object) -> Json:
    """Return what the leader writes."""
    assert isinstance(step, WriteStatus), step
    return dict(step.status)


def stored(written: Json, *held: Any) -> Ledger:  # noqa: ANN401 -- entries
    """Return the GPUNode of a Node as the leader keeps it, with the entries *held*."""
    known = identity(written)
    empty = replace(ledger(node_of(written)), inventory="", driver="", node_uid="", boot="")
    status = written_status(due_step(known, empty, upstream=False))
    return parse_ledger(gpu_node(node_of(written), held, **status))


def test_the_leader_keeps_the_gpunode() -> None:
    """Made from what the node publishes, and closed once its plugin withdraws its shares."""
    known = stored(TWO)

    assert due_step(identity(TWO), None, upstream=False) is GpuNodeAction.CREATE
    assert known.driver == "metax"
    assert known.node.gpus == node_of(TWO).gpus
    assert known.closed == ""
    assert due_step(identity(TWO), known, upstream=False) is None
    gone = replace(identity(TWO), registered=None, registered_by="")
    assert due_step(gone, known, upstream=False) is GpuNodeAction.CLOSE


def test_a_node_that_offers_both_modes_takes_nothing() -> None:
    """Its GPUNode says why, once, and opens again when one of them is withdrawn."""
    both = machine(card("GPU-a"), gpu="1", sgpu="16")
    known, open_again = stored(both), due_step(identity(TWO), stored(both), upstream=False)

    assert "offers both" in known.closed
    assert due_step(identity(both), known, upstream=False) is None
    assert written_status(open_again)["gpus"]


MODES = {"version": "v1", "cluster-config": "mode: sgpu", "nodes-config": ""}


def test_a_node_in_another_mode_than_its_operator_wants_takes_nothing() -> None:
    """It is about to change; a rejected ConfigMap changes nothing, and none is no wish."""
    found = FamilyInventories()
    facts = decode_node(msgspec.json.encode(machine(gpu="4"))).facts

    assert found.inventory(facts).closed == ""
    found.configure("metax", MODES)
    closed = found.inventory(facts).closed
    assert "sets its mode to sgpu, but it still offers metax-tech.com/gpu" in closed
    found.configure("metax", {**MODES, "cluster-config": "mode: vgpu"})
    assert found.inventory(facts).closed == closed
    found.configure("metax", {**MODES, "nodes-config": "[{nodeName: n0, mode: native}]"})
    assert found.inventory(facts).closed == ""
    found.configure("metax", MODES)
    found.configure("metax", None)
    assert found.inventory(facts).closed == ""


def test_a_node_that_changed_its_mode_under_a_pod_takes_nothing() -> None:
    """The pod may still run on the GPUs that are offered in the other mode now."""
    cluster = Cluster(machine(gpu="4"))
    cluster.bind(pod(container(limits={GPU: 1})))
    held = cluster.ledger.entries

    known = stored(TWO, *held)
    status = written_status(due_step(identity(TWO), replace(known, entries=held), upstream=False))

    assert status["closed"] == (
        "its GPUs are in mode sgpu now, but pods still hold them in mode native"
    )
    assert not status["gpus"]


def test_a_node_of_our_agent_is_not_read() -> None:
    """Two writers of one GPUNode would take turns for ever."""
    agent = {**TWO, "metadata": {**TWO["metadata"], "labels": {"vgpu-admission.io/agent": "1"}}}

    assert decode_node(msgspec.json.encode(agent)).facts is None


def value(written: Json, limits: Json, policy: FillPolicy = FillPolicy.BINPACK) -> int | None:
    """Return what the links of a node are worth for a pod."""
    asked = parse_request(
        containers=typed(received(pod(container(limits=limits)))).spec.containers,
        init_containers=(),
        annotations={},
        vocabularies=(METAX_SGPU,) if SGPU in limits else DEFAULT_WORDS,
    )
    assert isinstance(asked, PodRequest)
    assert METAX_FAMILY.node_value is not None
    return METAX_FAMILY.node_value(node_of(written), asked, policy)


DEFAULT_WORDS = around(node_of(TWO)).vocabularies


def told(key: str, text: str) -> Json:
    """Return a native node that says *text* of its links."""
    written = machine(gpu="8")
    return {**written, "metadata": {**written["metadata"], "annotations": {key: text}}}


def test_nodes_are_compared_by_their_maps() -> None:
    """By binpack least damage, by spread the best links; silence is never best (M10, M11)."""
    least, more = (
        value(told(LOSSES_KEY, '{"2":80}'), {GPU: 2}),
        value(told(LOSSES_KEY, '{"2":400}'), {GPU: 2}),
    )
    assert least is not None
    assert more is not None
    assert least > more
    assert value(told(SCORES_KEY, '{"2":110}'), {GPU: 2}, FillPolicy.SPREAD) == 110
    assert value(machine(gpu="8"), {GPU: 2}, FillPolicy.SPREAD) is None


def test_whole_gpus_of_a_shared_node_are_compared_by_link_zones() -> None:
    """Two of three and four linked GPUs are worth 80, taken from the three."""
    cards = [card(f"GPU-{n}", zone=1 if n < 3 else 2) for n in range(7)]

    assert value(machine(*cards), {SGPU: 2}) == 80
    assert value(machine(*cards), {SGPU: 2, VCORE: 50}) is None


def test_linked_gpus_are_taken_together() -> None:
    """Two GPUs of one zone, although another one comes first in the list."""
    cards = [card("GPU-z", zone=7), card("GPU-a"), card("GPU-b"), card("GPU-y", zone=8)]

    found = Cluster(machine(*cards)).bind(pod(container(limits={SGPU: 2})))

    assert {device["uuid"] for device in given(found)[0]} == {"GPU-a", "GPU-b"}


def test_the_smaller_zone_is_taken_where_both_will_do() -> None:
    """A larger one stays whole for pods that need it."""
    cards = [card(f"GPU-{n}", zone=1 if n < 4 else 2) for n in range(7)]

    found = Cluster(machine(*cards)).bind(pod(container(limits={SGPU: 2})))

    assert {device["uuid"] for device in given(found)[0]} <= {"GPU-4", "GPU-5", "GPU-6"}


def test_its_grants_keep_their_class_in_the_gpunode() -> None:
    """Another replica reads it there."""
    cluster = Cluster(TWO)
    cluster.bind(share({QOS: "fixed-share"}))
    (entry,) = cluster.ledger.entries

    read = parse_ledger(gpu_node(node_of(TWO), (entry,)))

    assert read.entries == (entry,)
    assert entry.containers[0].grants[0].share == "fixed-share"
    assert entry.containers[0].grants[0].mode is Mode.SGPU


def scored(index: Index, request: PodRequest, policy: FillPolicy) -> dict[str, int]:
    """Return what kube-scheduler hears of each node."""
    answer = score_nodes(
        index,
        SchedulingPod(uid="p", namespace="t", name="p", claim=PodClaim(uid="p", request=request)),
        sorted(index.node_infos),
        weights=ScoreWeights(memory=1, cores=1, shares=1, topology=3),
        fill_policy=policy,
    ).answer
    return {one["Host"]: one["Score"] for one in json.loads(answer)}


@pytest.mark.parametrize(
    ("key", "texts", "policy"),
    [
        (LOSSES_KEY, ('{"2":80}', '{"2":400}', '{"2":300}'), FillPolicy.BINPACK),
        (SCORES_KEY, ('{"2":110}', "", '{"2":50}'), FillPolicy.SPREAD),
        (SCORES_KEY, ('{"2":0}', "", "{"), FillPolicy.SPREAD),
    ],
)
def test_the_extender_prefers_the_node_with_the_best_links(
    key: str, texts: tuple[str, ...], policy: FillPolicy
) -> None:
    """A node that says nothing, or nonsense, never beats one that says something."""
    builder = IndexBuilder()
    for number, text in enumerate(texts):
        written = told(key, text) if text else machine(gpu="8")
        builder.put(replace(node_of(written), name=f"n{number}"))
    asked = parse_request(
        containers=typed(received(pod(container(limits={GPU: 2})))).spec.containers,
        init_containers=(),
        annotations={},
        vocabularies=DEFAULT_WORDS,
    )
    assert isinstance(asked, PodRequest)

    scores = scored(builder.index(version="1", complete=True), asked, policy)

    assert scores["n0"] > max(scores.get("n1", 0), scores.get("n2", 0))


def test_the_extender_tells_a_share_from_whole_gpus() -> None:
    """By the mode of the node, in words that a scheduler counts."""
    builder = IndexBuilder()
    builder.put(node_of(TWO))
    builder.put(replace(node_of(machine(gpu="8")), name="n1"))
    index = builder.index(version="1", complete=True)
    asked = request_of({SGPU: 1, VMEMORY: 4})
    assert isinstance(asked, PodRequest)
    waiting = SchedulingPod(
        uid="p", namespace="t", name="p", claim=PodClaim(uid="p", request=asked)
    )

    verdict = filter_nodes(
        index, waiting, ("n0", "n1"), context=FilterContext(policy=around().policy)
    )

    assert list(verdict.fitting) == ["n0"]
    assert "mode" in str(verdict.failures["n1"])


def test_a_bind_is_decided_again_over_the_same_classes() -> None:
    """A record of a bind keeps who shared the GPUs, and as what."""
    cluster = Cluster(TWO)
    cluster.bind(share({QOS: "fixed-share"}))
    there = cluster.ledger.node

    again = with_rows(node_of(TWO), taken_rows(there), shares=taken_shares(there))

    assert again.gpus == there.gpus
    with pytest.raises(ReplayContentError, match="2 shares for 1 grants"):
        with_rows(node_of(TWO), taken_rows(there), shares=("online", "online"))
