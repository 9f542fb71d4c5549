"""HAMi's register is read within bounds, and written with every field that HAMi reads."""

import json

import pytest

from allocator.hami.register import (
    RegisteredDevice,
    encode_hami_register,
    node_from_hami_register,
    registered_device,
)
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import MiB
from tests.builders.hostile_text import HOSTILE_TEXTS

# As HAMi 2.10 writes it: keys whose value is 0 are missing.
RECORDED = (
    '[{"id":"GPU-11","count":10,"devmem":24576,"devcore":100,"type":"NVIDIA L4",'
    '"mode":"hami-core","health":true},{"id":"GPU-22","index":1,"count":10,"devmem":24576,'
    '"devcore":100,"type":"NVIDIA L4","numa":1,"mode":"hami-core","health":true}]'
)
ONE = {
    "id": "GPU-11",
    "index": 0,
    "count": 10,
    "devmem": 24576,
    "devcore": 100,
    "type": "NVIDIA L4",
    "numa": 0,
    "mode": "hami-core",
    "health": True,
}


def _device(gpu: Gpu) -> RegisteredDevice:
    return registered_device(
        gpu, count=gpu.slots, memory=int(gpu.memory), cores=100, healthy=gpu.healthy
    )


def test_a_recorded_register_is_read() -> None:
    """Missing keys mean 0, as Go's omitempty writes them."""
    read = node_from_hami_register("n", RECORDED)

    assert read.problems == ()
    assert read.node.fresh
    assert [(g.uuid, g.index, g.numa, g.memory, g.slots) for g in read.node.gpus] == [
        ("GPU-11", 0, 0, 24576, 10),
        ("GPU-22", 1, 1, 24576, 10),
    ]
    assert all(g.healthy and g.mode is Mode.HAMI_CORE for g in read.node.gpus)
    assert {g.model for g in read.node.gpus} == {"NVIDIA L4"}


def test_a_missing_health_is_not_healthy() -> None:
    """HAMi leaves out false, so a GPU without the key takes no pods."""
    text = json.dumps([{k: v for k, v in ONE.items() if k != "health"}])

    assert [g.healthy for g in node_from_hami_register("n", text).node.gpus] == [False]


@pytest.mark.parametrize("mode", ["mig", "mps", "", "hami-core,mig"])
def test_a_gpu_in_another_mode_takes_no_pods(mode: str) -> None:
    """Only HAMi's scheduler can reserve its instances, and the problem says what to do."""
    read = node_from_hami_register("n", json.dumps([ONE | {"mode": mode}]))

    assert [g.healthy for g in read.node.gpus] == [False]
    assert len(read.problems) == 1
    assert str(read.problems[0]) == (
        f'hami.io/node-nvidia-register[0]: "GPU-11" is in mode "{mode}", so it takes no pods of '
        "ours; accepted: mode hami-core: only HAMi's scheduler can reserve its instances; "
        "set operatingmode hami-core for the node in HAMi's node configuration"
    )
    assert read.node.fresh


@pytest.mark.parametrize(
    ("modes", "where"),
    [
        (["mig"], "mode mig"),
        (["mig", "mig"], "mode mig"),
        (["mps", "mig"], "mode mig"),
        (["mps"], "mode mps"),
        (["", "x" * 5000], "no mode hami-core"),
        (["hami-core,mig"], "no mode hami-core"),
        (["HAMI-CORE"], "no mode hami-core"),
        (["\x1b[31m"], "no mode hami-core"),
        (["mig "], "no mode hami-core"),
        (["\u00fc%s", "\u202emig"], "no mode hami-core"),
    ],
)
def test_a_node_without_a_gpu_that_can_be_shared_is_closed(modes: list[str], where: str) -> None:
    """The reason says what to do, and holds nothing of a text that is no mode."""
    read = node_from_hami_register(
        "n", json.dumps([ONE | {"id": f"GPU-{n}", "mode": mode} for n, mode in enumerate(modes)])
    )

    assert read.closed == (
        f"its GPUs are in {where}, in which only HAMi's scheduler can give them out; "
        "set operatingmode hami-core for the node in HAMi's node configuration"
    )


@pytest.mark.parametrize("modes", [["hami-core"], ["mig", "hami-core"], []])
def test_a_node_with_a_gpu_that_can_be_shared_is_open(modes: list[str]) -> None:
    """One is enough, and a node without GPUs is not told of modes."""
    text = json.dumps([ONE | {"id": f"GPU-{n}", "mode": mode} for n, mode in enumerate(modes)])

    assert node_from_hami_register("n", text).closed == ""


def test_what_is_written_is_what_was_read() -> None:
    """A GPU survives the way out and back."""
    node = node_from_hami_register("n", RECORDED).node
    written = encode_hami_register(map(_device, node.gpus))

    assert node_from_hami_register("n", written).node == node


def test_every_field_is_written() -> None:
    """HAMi reads a missing field as 0 or false, so none is left out."""
    gpu = Gpu(
        uuid="GPU-1",
        index=0,
        model="Tesla T4",
        memory=MiB(15360),
        mode=Mode.HAMI_CORE,
        slots=10,
        healthy=False,
    )

    assert json.loads(encode_hami_register([_device(gpu)])) == [
        ONE | {"id": "GPU-1", "devmem": 15360, "type": "NVIDIA-Tesla T4", "health": False}
    ]


@pytest.mark.parametrize(
    "text",
    [
        "GPU-11,10,24576,100,NVIDIA-L4,0,true:",
        "{}",
        "[",
        "null",
        '[null, "GPU-1", 7, []]',
        json.dumps([ONE | {"id": ""}]),
        json.dumps([ONE | {"id": "GPU-1:GPU-2"}]),
        json.dumps([ONE | {"id": "x" * 97}]),
        json.dumps([ONE | {"devmem": 0}]),
        json.dumps([ONE | {"devmem": -1}]),
        json.dumps([ONE | {"devmem": 2**31}]),
        json.dumps([ONE | {"devmem": "24576"}]),
        json.dumps([ONE | {"count": 1e30}]),
        json.dumps([ONE | {"index": -1}]),
        json.dumps([ONE | {"health": "true"}]),
        json.dumps([ONE | {"type": "x" * 129}]),
        json.dumps([ONE | {"mode": []}]),
        json.dumps([ONE, ONE]),
        json.dumps([ONE | {"id": f"GPU-{n}"} for n in range(65)]),
        "[" * 100_000,
        '"' + "x" * 300_000 + '"',
        "\ud800",
        *(json.dumps([ONE | {"type": text}]) for text in HOSTILE_TEXTS.values()),
    ],
)
def test_hostile_registers_are_told_and_never_raise(text: str) -> None:
    """What cannot be read becomes a short problem on one line, and the node is not fresh."""
    read = node_from_hami_register("n", text)

    assert read.problems
    assert not read.node.fresh
    assert len(read.node.gpus) <= 64
    assert all(len(str(p)) < 600 and str(p).isprintable() for p in read.problems)


def test_a_malformed_record_does_not_spoil_the_others() -> None:
    """One bad GPU is left out, the other is served."""
    read = node_from_hami_register("n", json.dumps([ONE | {"devmem": -1}, ONE]))

    assert [g.uuid for g in read.node.gpus] == ["GPU-11"]


def test_an_unknown_numa_node_is_none() -> None:
    """HAMi writes -1; GPUs of no known NUMA node are not those of NUMA node -1."""
    read = node_from_hami_register("n", json.dumps([ONE | {"numa": -1}]))

    assert (read.problems, read.node.gpus[0].numa) == ((), None)


def test_a_register_is_bounded() -> None:
    """No more is read than an object can hold."""
    read = node_from_hami_register("n", RECORDED + " " * (256 * 1024))

    assert (read.node.gpus, read.node.fresh) == ((), False)
    assert "at most 262144" in str(read.problems[0])


@pytest.mark.parametrize(
    ("model", "written"),
    [("NVIDIA L4", "NVIDIA L4"), ("L4", "NVIDIA-L4"), ("Tesla NVIDIA", "Tesla NVIDIA")],
)
def test_a_product_name_is_written_as_hami_writes_it(model: str, written: str) -> None:
    """With the prefix where the word is missing."""
    gpu = Gpu(uuid="GPU-1", index=0, model=model, memory=MiB(1), mode=Mode.HAMI_CORE, slots=1)

    assert _device(gpu).type == written


@pytest.mark.parametrize(("length", "known"), [(128, 1), (129, 0)])
def test_a_product_name_has_as_many_characters_as_are_accepted(length: int, known: int) -> None:
    """One more is none of a product."""
    found = node_from_hami_register("n0", json.dumps([{**ONE, "type": "x" * length}]))

    assert (len(found.node.gpus), len(found.problems)) == (known, 1 - known)


def test_a_register_has_as_many_characters_as_an_object_may() -> None:
    """One more is not read."""
    text = json.dumps([ONE])

    assert len(node_from_hami_register("n0", text.ljust(256 * 1024)).node.gpus) == 1
    assert node_from_hami_register("n0", text.ljust(256 * 1024 + 1)).node.gpus == ()
