"""A family is a value in the registry and a vocabulary: nothing else knows that there is one."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.family_inventories import FamilyInventories
from allocator.cluster.objects import decode_node
from allocator.config.settings import DEFAULTS
from allocator.ledger.ledger import parse_ledger
from allocator.ledger.lifecycle import GpuNodeAction, NodeIdentity, WriteStatus, due_step
from allocator.ledger.reclaim import ReclaimEvidence, is_reclaimable
from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.placement.topology import link_distances
from allocator.replay.fleet_codec import decode_fleet, encode_fleet
from tests.builders.acme import ACME_WORDS, CARDS, CHIP, CHIP_MEMORY, GIVEN, known_family
from tests.builders.bindings import applied, binding, bound, live
from tests.builders.gpunodes import entry, gpu_node, ledger
from tests.builders.model import T4, gpu, node, snapshot, soft_grant
from tests.builders.pods import NUMBER, Json, admitted, container, decided, pod, received
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import Refused
from webhook.binding.batch import decide_batch
from webhook.binding.binding_annotations import Commit, committed_patch
from webhook.binding.decide import BindRequest, Denied, judge

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
WORDS = (*VOCABULARIES, ACME_WORDS)
NODE: Json = {
    "metadata": {
        "name": "n0",
        "uid": "u",
        "annotations": {CARDS: json.dumps({f"card-{i}": 32768 for i in range(4)})},
    },
    "status": {"nodeInfo": {"bootID": "boot-1"}},
}


@pytest.fixture(autouse=True)
def _acme() -> Iterator[None]:
    with known_family():
        yield


def described(text: str | None = None) -> NodeIdentity:
    """Return the Node as the leader knows it; *text* is what its plugin wrote there."""
    written = NODE
    if text is not None:
        written = NODE | {"metadata": {**NODE["metadata"], "annotations": {CARDS: text}}}
    read = decode_node(msgspec.json.encode(written))
    return read.identity(FamilyInventories().node(read.facts), registered_by="acme")


def inventory() -> Node:
    found = described().registered
    assert found is not None
    return found


def around(*nodes: Node) -> AdmissionContext:
    return AdmissionContext(settings=DEFAULTS, snapshot=snapshot(*nodes), vocabularies=WORDS)


def bind(written: Json, at: Node, *held: Entry) -> Any:  # noqa: ANN401 -- JSON
    """Return the Binding to *at* of a pod as a user wrote it, as it goes on after the hook."""
    view = around(at)
    judged = judge(bound(binding()), live(admitted(received(written), view)), view)
    assert isinstance(judged, BindRequest), judged
    (found,) = decide_batch(ledger(at, held), [(judged, view)], NOW)
    return applied(binding(), committed_patch(found, NOW)) if isinstance(found, Commit) else found


def test_a_pod_gets_what_its_plugin_reads() -> None:
    """It asks in the family's words, is placed on its node, and the Binding says so."""
    written = pod(container(limits={CHIP: 2, CHIP_MEMORY: 1000}))

    annotations = bind(written, inventory())["metadata"]["annotations"]

    assert json.loads(annotations[GIVEN]) == {"main": ["card-0", "card-1"]}
    assert annotations["vgpu-admission.io/served-by"] == "upstream"
    assert not [key for key in annotations if key.startswith("volcano.sh/")]


@pytest.mark.parametrize(
    ("limits", "at"),
    [
        pytest.param({CHIP: 1, CHIP_MEMORY: 1000}, node("n0", gpu(T4)), id="ours-on-nvidia"),
        pytest.param({NUMBER: 1}, None, id="nvidia-on-ours"),
    ],
)
def test_families_do_not_mix(limits: Json, at: Node | None) -> None:
    """GPUs of another family serve nobody, though their mode and memory would do."""
    here = at or inventory()
    written = pod(container(limits=limits))
    both = around(inventory(), node("n1", gpu(T4)))

    judged = judge(bound(binding()), live(admitted(received(written), both)), both)
    assert isinstance(judged, BindRequest)
    (found,) = decide_batch(ledger(here), [(judged, both)], NOW)

    assert isinstance(found, Denied)
    assert "family" in found.refusal.message


def test_what_no_gpu_of_the_family_has_is_refused() -> None:
    """In the names of its own vocabulary."""
    found = decided(pod(container(limits={CHIP: 1, CHIP_MEMORY: 10_000_000})), around(inventory()))

    assert isinstance(found, Refused)
    assert CHIP_MEMORY in found.findings.first.field


def test_its_own_distance_counts() -> None:
    """Two cards that the family calls close are taken, not the first two that are free."""
    here, held = inventory(), entry("a", soft_grant(30000, gpu="card-0"))

    found = bind(pod(container(limits={CHIP: 2, CHIP_MEMORY: 8000})), here, held)

    assert json.loads(found["metadata"]["annotations"][GIVEN]) == {"main": ["card-2", "card-3"]}
    assert link_distances(here.gpus).distances[0] == (0, 0, 8, 8)


def test_the_leader_writes_its_gpunode() -> None:
    """Made, filled, kept and closed by what the plugin writes on the Node."""
    machine = described()
    empty = replace(ledger(inventory()), inventory="", driver="", node_uid="", boot="")

    assert due_step(machine, None, upstream=False) is GpuNodeAction.CREATE
    step = due_step(machine, empty, upstream=False)

    assert isinstance(step, WriteStatus)
    assert step.status["driver"] == "acme"
    gpus: Any = step.status["gpus"]
    assert {one["family"] for one in gpus} == {"acme"}
    written = parse_ledger(gpu_node(inventory(), (), **step.status))
    assert written.node.gpus == inventory().gpus
    assert due_step(machine, written, upstream=False) is None
    gone = replace(machine, registered=None, registered_by="")
    assert due_step(gone, written, upstream=False) is GpuNodeAction.CLOSE
    assert due_step(described("{"), written, upstream=False) is GpuNodeAction.CLOSE


def test_its_entries_wait_for_no_agent_of_ours() -> None:
    """Nobody holds them: they go once their pod is gone."""
    held = entry("a", soft_grant(100, gpu="card-0"))
    evidence = ReclaimEvidence(pod=None, node=described(), now=NOW, agent_serves=True)
    theirs = ledger(inventory(), (held,), driver="acme", nodeUID="u", held=["a"])
    ours = ledger(inventory(), (held,), driver="570", nodeUID="u", held=["a"])

    assert is_reclaimable(theirs, held, evidence)
    assert not is_reclaimable(ours, held, replace(evidence, node=replace(described(), agent=True)))


def test_records_keep_the_family() -> None:
    """A decision is decided again over GPUs of the same family."""
    fleet = snapshot(inventory(), node("n1", gpu(T4)))

    assert decode_fleet(encode_fleet(fleet)).offers == fleet.offers
    assert {kind.family for kind in fleet.offers} == {"nvidia", "acme"}


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        pytest.param("family", "unknown", "family", id="family"),
        pytest.param("family", "", "family", id="empty"),
        pytest.param("family", 7, "family", id="number"),
        pytest.param("family", "acme\n", "family", id="newline"),
        pytest.param("family", "\u202eemca", "family", id="direction"),
        pytest.param("family", "a" * 64, "family", id="long"),
        pytest.param("family", ["acme"], "family", id="list"),
        pytest.param("family", {"acme": 1}, "family", id="map"),
        pytest.param("family", None, "family", id="null"),
        pytest.param("family", "ACME", "family", id="case"),
        pytest.param("mode", "mig", "mode", id="mode-of-another-family"),
        pytest.param("mode", "memory-only", "mode", id="mode-of-grants"),
    ],
)
def test_a_gpu_of_no_family_is_left_out(key: str, value: object, where: str) -> None:
    """The others serve, and the problem says where it is."""
    document = gpu_node(inventory())
    document["status"]["gpus"][0][key] = value

    found = parse_ledger(document)

    assert [one.uuid for one in found.node.gpus] == ["card-1", "card-2", "card-3"]
    assert [problem.path for problem in found.problems] == [f"status.gpus[0].{where}"]
