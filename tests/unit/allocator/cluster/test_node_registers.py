"""Whose register counts follows the setting nodeAgent, and HAMi's only while its plugin lives."""

from dataclasses import replace

import msgspec
import orjson
import pytest

from allocator.cluster.node_registers import NodeRegisters
from allocator.cluster.objects import NodeObject, decode_node
from allocator.config.settings import DEFAULTS, NodeAgent, settings_of
from allocator.hami.node_marks import HamiMarks
from allocator.ledger.lifecycle import WriteStatus, due_step
from allocator.volcano.register import encode_register
from tests.builders.gpunodes import ledger
from tests.builders.model import T4, nodes_of
from tests.fakes.api_rules import Json

VOLCANO = encode_register(nodes_of(1, T4).gpus)
HAMI = '[{"id":"GPU-h","count":10,"devmem":15360,"type":"NVIDIA-Tesla T4","health":true}]'
OFFERED = frozenset({"nvidia.com/gpu"})
MARKS = HamiMarks(register=HAMI, offered=OFFERED)
NODE = NodeObject("n0", VOLCANO, uid="u", hami=MARKS)


def registers(agent: NodeAgent) -> NodeRegisters:
    found = NodeRegisters()
    found.configure(
        factor=1, configs={}, settings=msgspec.structs.replace(DEFAULTS, node_agent=agent)
    )
    return found


@pytest.mark.parametrize(
    ("agent", "uuids", "by"),
    [
        (NodeAgent.OURS, ["GPU-n0-0"], ""),
        (NodeAgent.UPSTREAM, ["GPU-n0-0"], ""),
        (NodeAgent.HAMI, ["GPU-h"], "hami"),
    ],
)
def test_the_setting_says_whose_register_counts(
    agent: NodeAgent, uuids: list[str], by: str
) -> None:
    """A node that both have registered has one inventory."""
    identity = registers(agent).identity(NODE)

    assert identity.registered is not None
    assert [gpu.uuid for gpu in identity.registered.gpus] == uuids
    assert identity.registered_by == by


@pytest.mark.parametrize(
    "marks", [HamiMarks(), HamiMarks(offered=OFFERED), replace(MARKS, offered=frozenset())]
)
def test_a_plugin_that_is_gone_registers_nothing(marks: HamiMarks) -> None:
    """It leaves its register behind; what is allocatable says whether it lives."""
    node = replace(NODE, hami=marks)

    assert registers(NodeAgent.HAMI).node_of(node) is None
    assert registers(NodeAgent.HAMI).identity(node).registered is None


@pytest.mark.parametrize(
    ("count", "offered", "known"),
    [
        ("example.com/vgpu", "example.com/vgpu", True),
        ("example.com/vgpu", "nvidia.com/gpu", False),
        ("nvidia.com/gpu", "example.com/vgpu", False),
    ],
)
def test_a_plugin_is_known_by_the_resource_that_the_cluster_gives_it(
    count: str, offered: str, *, known: bool
) -> None:
    """Under another name than HAMi's own its nodes take pods all the same."""
    found = NodeRegisters()
    renamed = settings_of(
        f"nodeAgent: hami\nvocabularies: [hami]\nhami: {{resourceCountName: {count}}}"
    )
    found.configure(factor=1, configs={}, settings=renamed)
    node = replace(NODE, hami=replace(MARKS, offered=frozenset({offered})))

    assert (found.node_of(node) is not None) is known


def test_a_register_is_read_again_only_when_it_changes() -> None:
    """The node is the same object until the text differs."""
    found = registers(NodeAgent.HAMI)
    first = found.node_of(NODE)

    assert found.node_of(NODE) is first
    changed = replace(NODE, hami=replace(MARKS, register=HAMI.replace("15360", "9000")))
    assert found.node_of(changed) is not first
    found.forget(["n0"])
    assert found.node_of(NODE) == first


@pytest.mark.parametrize(
    ("allocatable", "alive"),
    [({}, False), ({"nvidia.com/gpu": "0"}, False), ({"nvidia.com/gpu": "20"}, True)],
)
def test_a_node_is_read_with_what_hami_wrote(allocatable: dict[str, str], *, alive: bool) -> None:
    """The heartbeat is what kubelet has to give."""
    written: Json = {
        "metadata": {
            "name": "n0",
            "annotations": {
                "hami.io/node-nvidia-register": HAMI,
                "hami.io/node-handshake": "Requesting_x",
                "hami.io/mutex.lock": "l",
            },
        },
        "status": {"allocatable": allocatable},
    }

    node = decode_node(orjson.dumps(written))

    offered = OFFERED if alive else frozenset()
    assert node.hami == HamiMarks(
        register=HAMI, handshake="Requesting_x", lock="l", offered=offered
    )
    assert node.hami.is_alive("nvidia.com/gpu") is alive
    assert node.gpu_facts != replace(node, hami=HamiMarks()).gpu_facts


@pytest.mark.parametrize(
    ("agent", "text", "said"),
    [
        (NodeAgent.HAMI, HAMI.replace("}]", ',"mode":"mig"}]'), "mode mig"),
        (NodeAgent.HAMI, HAMI, ""),
        (NodeAgent.OURS, HAMI.replace("}]", ',"mode":"mig"}]'), ""),
        (NodeAgent.UPSTREAM, HAMI.replace("}]", ',"mode":"mig"}]'), ""),
    ],
)
def test_mig_beside_hami_closes_the_node(agent: NodeAgent, text: str, said: str) -> None:
    """Where HAMi's plugin owns it: the leader writes on the GPUNode why, and what to do."""
    node = replace(NODE, hami=replace(MARKS, register=text))
    identity = registers(agent).identity(node)
    assert identity.registered is not None
    empty = replace(ledger(identity.registered), inventory="", driver="", node_uid="", boot="")
    step = due_step(identity, empty, upstream=agent is not NodeAgent.OURS)

    closed = str(step.status.get("closed", "")) if isinstance(step, WriteStatus) else ""
    assert closed == identity.registered_closed
    assert (said in closed) if said else not closed
    assert ("operatingmode hami-core" in closed) == bool(said)
