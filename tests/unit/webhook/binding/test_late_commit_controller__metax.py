"""A pod with MetaX GPUs that was bound past the hook is charged where its scheduler put it."""

from dataclasses import replace

import pytest

from allocator.metax.names import ALLOCATED_KEY
from allocator.model.gpu import Node
from allocator.model.request import METAX, Mode
from allocator.model.units import MiB
from tests.builders.gpunodes import Json
from tests.builders.model import nodes_of
from tests.builders.pods import container, pod
from tests.harness.late_commits import bound, scene

CARD = replace(
    nodes_of(1).gpus[0],
    mode=Mode.SGPU,
    family=METAX,
    model="C500",
    memory=MiB(65536),
    slots=16,
)
NODE = Node(
    name="n0", gpus=tuple(replace(CARD, uuid=f"GPU-{n}", index=i) for i, n in enumerate("ab"))
)
LIMITS = {"metax-tech.com/sgpu": 1, "metax-tech.com/vcore": 60, "metax-tech.com/vmemory": 4}
ASKING = pod(
    container("web"),
    container(limits=LIMITS),
    annotations={"metax-tech.com/sgpu-qos-policy": "fixed-share"},
)
STARTED: Json = {"phase": "Running"}


def late(written: str, *, hami_node: str = "n0", started: bool = True) -> Json:
    """Return a bound pod with what its scheduler wrote."""
    notes = {ALLOCATED_KEY: written, "hami.io/vgpu-node": hami_node}
    found = bound(notes, asking=ASKING, node=NODE)
    return found | ({"status": STARTED} if started else {})


def test_the_word_of_its_scheduler_is_taken() -> None:
    """MetaX's plugin goes by the same annotation; amounts and class come from the request."""
    found = scene(late('[[],[{"uuid":"GPU-b","compute":1,"vRam":1}]]'), node=NODE).sweep()

    (entry,) = found.promised
    (grant,) = entry.containers[0].grants
    assert (grant.gpu, grant.mode, grant.memory, grant.cores) == ("GPU-b", Mode.SGPU, 4096, 60)
    assert grant.share == "fixed-share"
    assert found.how == ["told"]
    assert found.annotations["vgpu-admission.io/served-by"] == "upstream"
    assert found.annotations[ALLOCATED_KEY] == '[[],[{"uuid":"GPU-b","compute":1,"vRam":1}]]'


@pytest.mark.parametrize(
    "text",
    [
        '[[],[{"uuid":"GPU-z"}]]',
        '[[{"uuid":"GPU-z"}]]',
        '[[],[{"uuid":"GPU-a,GPU-b"}]]',
        '[[],[{"uuid":"\\u001b[31m"}]]',
        '[[],[{"uuid":""}]]',
    ],
)
def test_a_gpu_that_does_not_exist_is_reported(text: str) -> None:
    """It is not charged on another GPU than the one that it was told to use."""
    found = scene(late(text), node=NODE).sweep()

    assert found.promised == ()
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]
    assert found.events[0].note.isprintable()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[[]]", "null", "7", '[["GPU-b"]]', "[" * 9000, '[[{"uuid":7}]]']
)
def test_without_a_word_a_gpu_is_chosen(text: str) -> None:
    """Somebody's plugin gave it one, and nobody knows which."""
    found = scene(late(text), node=NODE).sweep()

    assert len(found.promised) == 1
    assert found.how == ["chosen"]


def test_a_word_for_another_node_is_none() -> None:
    """It is left over from an attempt that failed."""
    text = '[[],[{"uuid":"GPU-z"}]]'

    assert scene(late(text, hami_node="n7"), node=NODE).sweep().how == ["chosen"]


@pytest.mark.parametrize(
    "notes",
    [
        {"volcano.sh/vgpu-ids-new": ";GPU-z,NVIDIA,1,0:;", "volcano.sh/vgpu-node": "n0"},
        {"volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,1,0:;", "volcano.sh/vgpu-node": "n0"},
        {"hami.io/vgpu-devices-allocated": "GPU-z,NVIDIA,1,0:;", "hami.io/vgpu-node": "n0"},
    ],
)
def test_a_list_for_the_plugin_of_another_family_says_nothing(notes: dict[str, str]) -> None:
    """MetaX's plugin does not read it, so neither a GPU nor a refusal follows from it."""
    found = scene(bound(notes, asking=ASKING, node=NODE) | {"status": STARTED}, node=NODE).sweep()

    assert [entry.pod for entry in found.promised] == ["p"]
    assert found.how == ["chosen"]


def test_its_own_list_counts_beside_one_for_another_plugin() -> None:
    """Else a tenant would be charged on another GPU than the one that it uses."""
    other = {"volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,1,0:;", "volcano.sh/vgpu-node": "n0"}
    written = late('[[],[{"uuid":"GPU-b"}]]')
    written["metadata"]["annotations"] |= other

    found = scene(written, node=NODE).sweep()

    (entry,) = found.promised
    assert entry.containers[0].grants[0].gpu == "GPU-b"
    assert found.how == ["told"]
