"""Registers: what Volcano's plugin announces is read once, and forgotten with its node."""

import json

from structlog.testing import capture_logs

from allocator.catalog.keys import REGISTER_KEY
from allocator.cluster.objects import NodeObject, decode_gpu_node, decode_node
from allocator.cluster.volcano_registers import VolcanoRegisters
from allocator.ledger.drift import MOST_PROBLEMS
from allocator.ledger.registered_capacity import saved_register
from allocator.model.untrusted import is_plain
from allocator.volcano.register import REGISTER_ANNOTATION, encode_register
from tests.builders.gpunodes import gpu_node
from tests.builders.model import T4, nodes_of

NODE = nodes_of(2, T4)
FULL = encode_register(NODE.gpus)
SHOWN = FULL.replace(",10,", ",0,")


def a_node(name: str, text: str, beside: str = "") -> NodeObject:
    annotations = {REGISTER_ANNOTATION: text, REGISTER_KEY: beside}
    metadata = {"name": name, "annotations": annotations, "resourceVersion": "7"}
    return decode_node(json.dumps({"metadata": metadata}).encode())


def test_a_register_is_read_again_only_when_it_changes() -> None:
    """The same text is the same object."""
    known, node_object = VolcanoRegisters(), a_node("n0", FULL)

    assert known.node("n0", FULL) is known.node("n0", FULL)
    assert known.identity(node_object).registered is known.identity(node_object).registered
    assert known.node("n0", SHOWN) is not known.node("n0", FULL)
    assert known.node("n0", "") is None


def test_nodes_that_are_gone_are_forgotten() -> None:
    """What is still there is not read again for it."""
    known, kept, gone = VolcanoRegisters(), a_node("n0", FULL), a_node("n1", FULL)
    node, read = known.node("n0", FULL), known.node("n1", FULL)

    known.forget([gone.name])

    assert known.identity(kept).registered is node
    assert known.node("n0", FULL) is node
    assert known.node("n1", FULL) is not read


def test_what_we_took_off_is_not_believed() -> None:
    """A register that we lowered counts as it was, and one that another wrote as it is."""
    beside = saved_register(SHOWN, FULL)

    (ours, other, odd) = (
        a_node("n0", SHOWN, beside),
        a_node("n0", SHOWN.replace("15360", "9000"), beside),
        a_node("n0", SHOWN, "no digest"),
    )

    assert VolcanoRegisters().identity(ours).registered == VolcanoRegisters().node("n0", FULL)
    assert (other.full_register, odd.full_register) == (other.register, odd.register)
    assert ours.resource_version == "7"


def test_a_register_fills_no_log() -> None:
    """Nonsense has a thousand problems, and a node may write other nonsense at once."""
    with capture_logs() as logs:
        VolcanoRegisters().node("n0", "a\x1b,x,-1,\x00,maybe,foo:" * 5000)

    assert len(logs) == MOST_PROBLEMS
    assert all(is_plain(str(line["what"])) for line in logs)


def test_a_status_fills_no_log() -> None:
    """Nor does a GPUNode of which nothing can be read."""
    document = gpu_node(NODE, (), instances=[{"gpu": "GPU-\x1b"}] * 512)
    with capture_logs() as logs:
        decode_gpu_node(json.dumps(document).encode(), lambda _: None)

    assert len(logs) == MOST_PROBLEMS
    assert all(is_plain(str(line["what"])) for line in logs)
