"""Fleet files describe GPUs in a few lines, and what is wrong with them in one."""

from pathlib import Path

import pytest

from allocator.config.fleet_file import load_fleet
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Loaded, Rejected
from allocator.model.request import Mode

SAMPLE = Path(__file__).parents[4] / "webhook" / "samples" / "fleet.yaml"


def fleet(text: str) -> tuple[Node, ...]:
    loaded = load_fleet(text)
    assert isinstance(loaded, Loaded), str(loaded)
    return loaded.value


def one(fields: str) -> tuple[Gpu, ...]:
    (node,) = fleet("nodes: [{name: n, " + fields + "}]")
    return node.gpus


def test_the_sample_loads() -> None:
    """What the documentation shows is right, and has something of everything."""
    nodes = {node.name: node for node in fleet(SAMPLE.read_text())}

    gpus = [gpu for node in nodes.values() for gpu in node.gpus]
    assert {"a100-40", "a100-80-1", "h100", "a30", "t4-2"} <= nodes.keys()
    assert {gpu.mode for gpu in nodes["h100"].gpus} == {Mode.MIG, Mode.HAMI_CORE}
    assert any(gpu.foreign for gpu in gpus)
    assert not all(gpu.healthy for gpu in gpus)
    assert any(len(gpu.instances) > len(gpu.grants) for gpu in gpus)


def test_a_count_makes_nodes_with_names_and_gpus_of_their_own() -> None:
    """No UUID occurs twice, and it is the same in the next run."""
    text = "nodes: [{name: t, count: 3, model: T4, gpus: 2}]"

    nodes = fleet(text)

    assert [node.name for node in nodes] == ["t-0", "t-1", "t-2"]
    assert len({gpu.uuid for node in nodes for gpu in node.gpus}) == 6
    assert nodes == fleet(text)


def test_gpus_of_a_list_override_the_node() -> None:
    """Each element defaults to the node's own fields."""
    gpus = one(
        "model: A30, mode: mig, gpus: [{count: 2}, {mode: hami-core}, {model: T4, mode: hami-core}]"
    )

    assert [gpu.index for gpu in gpus] == [0, 1, 2, 3]
    assert [gpu.mode for gpu in gpus] == [Mode.MIG, Mode.MIG, Mode.HAMI_CORE, Mode.HAMI_CORE]
    assert [gpu.model for gpu in gpus][2:] == ["NVIDIA A30", "Tesla T4"]


def test_a_busy_instance_is_promised_and_live() -> None:
    """Its memory and share of compute are the profile's."""
    (gpu,) = one("model: A30, mode: mig, busy: [{gpu: 0, profile: 2g.12gb, start: 2}]")

    (grant,) = gpu.grants
    assert (grant.gpu, grant.memory, grant.cores) == (gpu.uuid, 11672, 50)
    assert gpu.instances == (grant.placed,)


def test_a_busy_share_is_promised() -> None:
    """Several containers may hold one GPU."""
    (gpu,) = one("model: T4, busy: [{gpu: 0, memory: 8000, cores: 30}, {gpu: 0, memory: 1000}]")

    assert (gpu.memory_promised, gpu.cores_promised, len(gpu.grants)) == (9000, 30, 2)


def test_unknown_models_bring_their_memory() -> None:
    """A GPU that the catalogue does not know can be planned with."""
    (gpu,) = one("model: X900, memory: 1000")

    assert (gpu.model, gpu.memory) == ("X900", 1000)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            "model: A3O",
            'nodes[0].model: "A3O" found; accepted: a known model such as A30, A2, '
            "or memory in MiB beside it",
            id="misspelt-model",
        ),
        pytest.param(
            "model: V100S-32GB, mode: mig",
            "nodes[0].mode: Tesla V100S-PCIE-32GB has no MIG profiles in the catalogue; "
            "accepted: hami-core, or another model",
            id="model-without-mig",
        ),
        pytest.param(
            "model: T4, mode: smi",
            'nodes[0].mode: "smi" found; accepted: mig or hami-core or mps or native or sgpu',
            id="mode",
        ),
        pytest.param(
            "model: T4, gpus: 0",
            "nodes[0].gpus: 0 found; accepted: a whole number from 1 to 64",
            id="no-gpus",
        ),
        pytest.param(
            "model: A30, mode: mig, busy: [{gpu: 0, profile: 2g.12gb, start: 1}]",
            "nodes[0].busy[0].start: 1 found; accepted: a free start of 2g.12gb: 0, 2",
            id="no-such-start",
        ),
        pytest.param(
            "model: A30, mode: mig, idle: [{gpu: 0, profile: 4g.24gb, start: 0}], "
            "busy: [{gpu: 0, profile: 4g.24gb, start: 0}]",
            "nodes[0].idle[0].start: 0 found; accepted: a free start of 4g.24gb: none left",
            id="overlap",
        ),
        pytest.param(
            "model: T4, busy: [{gpu: 1, memory: 1}]",
            "nodes[0].busy[0].gpu: 1 found; accepted: a whole number from 0 to 0",
            id="no-such-gpu",
        ),
        pytest.param(
            "model: T4, busy: [{gpu: 0, memory: 9000}, {gpu: 0, memory: 9000}]",
            "nodes[0].busy[1]: GPU 0 holds 18000 MiB; accepted: at most 15360 MiB on Tesla T4",
            id="more-than-it-has",
        ),
        pytest.param(
            "model: T4, colour: red",
            'nodes[0].colour: unknown key "colour"; accepted: name, count, gpus, model, memory, '
            "mode, slots, chunks, chunkSMs, busy, idle, foreign, unhealthy",
            id="unknown-key",
        ),
    ],
)
def test_a_defect_is_said_in_one_line(fields: str, message: str) -> None:
    """The line has the place, the value and what would be accepted."""
    loaded = load_fleet("nodes: [{name: n, " + fields + "}]")

    assert isinstance(loaded, Rejected)
    assert str(loaded) == message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("nodes: []", id="no-nodes"),
        pytest.param("nodes: [{name: n, model: T4}, {name: n, model: T4}]", id="same-name"),
        pytest.param("nodes: [" + "{name: n, model: T4, count: 4000}," * 2 + "]", id="too-many"),
        pytest.param("nodes: [{name: n, model: T4, gpus: []}]", id="empty-list-of-gpus"),
        pytest.param("nodes: &a [*a]", id="alias"),
    ],
)
def test_what_describes_no_fleet_is_rejected(text: str) -> None:
    """With at least one reason."""
    loaded = load_fleet(text)

    assert isinstance(loaded, Rejected)
    assert loaded.problems


HOSTILE_NUMBERS = ["-1", "101", "1.5", "1e3", "true", "'16'", "[16]", "{a: 1}", "99999999999", "x"]


@pytest.mark.parametrize("key", ["chunks", "chunkSMs"])
@pytest.mark.parametrize("value", HOSTILE_NUMBERS)
def test_a_number_of_chunks_is_bounded(key: str, value: str) -> None:
    """A plan over a GPU of more chunks than percent would add up wrongly."""
    loaded = load_fleet(f"nodes: [{{name: n, model: T4, mode: mps, {key}: {value}}}]")

    assert isinstance(loaded, Rejected)
    assert f"nodes[0].{key}" in str(loaded)


@pytest.mark.parametrize("mode", ["hami-core", "sgpu", "native"])
def test_only_a_gpu_in_mode_mps_has_chunks(mode: str) -> None:
    """In other modes nothing divides the compute like that."""
    loaded = load_fleet(f"nodes: [{{name: n, model: T4, mode: {mode}, chunks: 16}}]")

    assert isinstance(loaded, Rejected)
    assert str(loaded) == f"nodes[0].chunks: 16 in mode {mode}; accepted: mode mps, or 0"
