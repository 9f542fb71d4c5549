"""Inventory survives its wire formats, and no outside text gets further than a problem."""

import contextlib
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.catalog.boards import MODELS, Model
from allocator.config.device_config import load_device_config, load_node_config
from allocator.config.document import DocumentError, read_document
from allocator.config.fleet_file import load_fleet
from allocator.ledger.decode import decode, decode_text
from allocator.ledger.schema import spec_of, status_of
from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.board import Placement
from allocator.model.gpu import Gpu, GpuKind, Node
from allocator.model.request import Mode, Stage
from allocator.model.units import CorePercent, MiB
from allocator.model.usage import without_entries
from allocator.placement.fleet import snapshot_of
from allocator.volcano.register import (
    decode_handshake,
    decode_register,
    encode_register,
    node_from_register,
)

ROOT = Path(__file__).parents[2]
SAMPLES = (
    (ROOT / "webhook" / "samples" / "fleet.yaml").read_text(),
    (ROOT / "tests" / "golden" / "volcano" / "device-config-a.yaml").read_text(),
    (ROOT / "tests" / "golden" / "volcano" / "node-config.json").read_text(),
)

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)
SOME = [MODELS[name] for name in ("NVIDIA A100-SXM4-40GB", "NVIDIA A30", "NVIDIA H200", "Tesla T4")]


@st.composite
def gpus(draw: st.DrawFn, index: int) -> Gpu:
    model: Model = draw(st.sampled_from(SOME))
    cut = model.board is not None and draw(st.booleans())
    instances = draw(st.lists(placed(model), max_size=3)) if cut else []
    return Gpu(
        uuid=f"GPU-{index}",
        index=index,
        model=model.name,
        memory=MiB(draw(st.integers(1, 200_000))),
        mode=Mode.MIG if cut else Mode.HAMI_CORE,
        slots=draw(st.integers(0, 20)),
        board=model.board if cut else None,
        healthy=draw(st.booleans()),
        numa=draw(st.none() | st.integers(0, 7)),
        foreign=MiB(draw(st.integers(0, 1000))),
        links=tuple(draw(st.lists(WORDS.map("GPU-".__add__), max_size=2))),
        link_counts=tuple(draw(st.lists(st.integers(0, 18), max_size=2))),
        switch=draw(st.none() | st.just("0000:3b:00.0")),
        instances=tuple(instances),
        chunks=draw(st.integers(0, 100)),
        chunk_sms=draw(st.sampled_from([0, 4, 8])),
    )


def placed(model: Model) -> st.SearchStrategy[Placement]:
    assert model.board is not None
    places = [Placement(p, start) for p in model.board.profiles for start in p.starts]
    return st.sampled_from(places)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    count = draw(st.integers(1, 4))
    return Node(name=draw(WORDS), gpus=tuple(draw(gpus(index)) for index in range(count)))


@st.composite
def grants(draw: st.DrawFn, node: Node) -> Grant:
    gpu: Gpu = draw(st.sampled_from(node.gpus))
    where = draw(placed(MODELS[gpu.model])) if gpu.mode is Mode.MIG else None
    mode = draw(st.sampled_from([Mode.HAMI_CORE, Mode.MEMORY_ONLY])) if where is None else Mode.MIG
    return Grant(
        gpu=gpu.uuid,
        mode=mode,
        memory=MiB(draw(st.integers(0, 100_000))),
        cores=CorePercent(draw(st.integers(0, 100))),
        placed=where,
        position=None if where is None else draw(st.none() | st.just("group1-0")),
    )


APPS: st.SearchStrategy[Stage] = st.just(Stage.APP)


def entries(node: Node, stages: st.SearchStrategy[Stage] = APPS) -> st.SearchStrategy[list[Entry]]:
    containers = st.builds(
        ContainerGrants,
        name=WORDS,
        grants=st.lists(grants(node), max_size=2).map(tuple),
        stage=stages,
    )
    entry = st.builds(
        Entry,
        namespace=WORDS,
        pod=WORDS,
        uid=WORDS,
        since=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)).map(  # noqa: DTZ001 - the bounds must be naive
            lambda at: at.replace(tzinfo=UTC)
        ),
        containers=st.lists(containers, max_size=2 if stages is APPS else 4).map(tuple),
    )
    return st.lists(entry, max_size=3)


@given(st.data())
@settings(max_examples=60)
def test_a_gpunode_is_read_back(data: st.DataObject) -> None:
    """Inventory and promises come back equal, each promise on its GPU."""
    node = data.draw(nodes())
    promised = tuple(data.draw(entries(node)))
    document = {
        "metadata": {"name": node.name},
        "spec": spec_of(promised),
        "status": status_of(node),
    }

    decoded = decode(document)

    held = Counter(g for e in promised for c in e.containers for g in c.grants)
    assert decoded.problems == ()
    assert decoded.entries == promised
    assert Counter(grant for gpu in decoded.node.gpus for grant in gpu.grants) == held
    assert tuple(replace(gpu, grants=()) for gpu in decoded.node.gpus) == node.gpus


@given(st.data())
@settings(max_examples=60)
def test_a_promise_counts_by_the_most_that_is_held_at_a_time(data: st.DataObject) -> None:
    """On each GPU nothing less and nothing more, in any order of containers; and it is freed."""
    node = data.draw(nodes())
    promised = tuple(data.draw(entries(node, st.sampled_from(Stage))))
    document = {
        "metadata": {"name": node.name},
        "spec": spec_of(promised),
        "status": status_of(node),
    }

    decoded = decode(document)

    assert (decoded.entries, decoded.problems) == (promised, ())
    assert decode_text(msgspec.json.encode(document)) == decoded
    for gpu in decoded.node.gpus:
        held = [at_once(entry, gpu) for entry in promised]
        assert gpu.memory_promised == sum(max(memory) for memory, _, _, _ in held)
        cores = sum(max(cores) for _, cores, _, _ in held)
        assert sum(grant.cores for grant in gpu.grants) == cores
        # Rounded up after grants were merged, so it may be a chunk more.
        chunks = sum(max(chunks) for _, _, _, chunks in held)
        assert sum(gpu.chunks_for(grant.cores) for grant in gpu.grants) >= chunks
        if gpu.mode is not Mode.MIG:
            assert len(gpu.grants) == sum(max(count) for _, _, count, _ in held)
    assert without_entries(decoded.node, promised).gpus == node.gpus


def at_once(entry: Entry, gpu: Gpu) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return memory, cores, number and chunks of a pod's grants on one GPU, after each start."""
    lasting, now = [0, 0, 0, 0], []
    for container in entry.containers:
        own = [grant for grant in container.grants if grant.gpu == gpu.uuid]
        chunks = sum(gpu.chunks_for(g.cores) for g in own)
        sums = (sum(g.memory for g in own), sum(g.cores for g in own), len(own), chunks)
        now.append([a + b for a, b in zip(lasting, sums, strict=True)])
        if container.stage is not Stage.INIT:
            lasting = now[-1]
    memory, cores, count, taken = zip([0, 0, 0, 0], *now, strict=True)
    return list(memory), list(cores), list(count), list(taken)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JSON | st.just({"name": "n"}),
        "spec": JSON | st.fixed_dictionaries({"entries": JSON | st.lists(JSON, max_size=3)}),
        "status": JSON
        | st.fixed_dictionaries(
            {},
            optional={
                key: JSON | st.lists(JSON, max_size=3) for key in ("boards", "gpus", "instances")
            },
        ),
    },
)


@given(JSON | FIELDS)
@settings(max_examples=200)
def test_no_gpunode_raises(document: object) -> None:
    """Whatever an object contains, it becomes a node."""
    assert isinstance(decode(document).node, Node)


@given(st.lists(gpus(0), max_size=5), st.integers(1, 100))
@settings(max_examples=60)
def test_a_register_is_read_back(found: list[Gpu], factor: int) -> None:
    """Six fields per GPU, in order; memory is rounded down to whole units."""
    sent = [gpu for gpu in found if gpu.slots and gpu.memory >= factor]
    named = [(f"GPU-{i}", gpu) for i, gpu in enumerate(sent)]
    text = "".join(
        encode_register([gpu], factor=factor).replace("GPU-0", uuid) for uuid, gpu in named
    )

    node = node_from_register("n", text, factor=factor).node

    assert encode_register(node.gpus, factor=factor) == text
    assert [(g.model, g.mode, g.board) for g in node.gpus] == [
        (g.model, g.mode, g.board) for g in sent
    ]


@given(st.text() | st.text("GPU-a0,:truemig ", max_size=80))
@settings(max_examples=200)
def test_no_annotation_raises(text: str) -> None:
    """Each part of an annotation is a record, a problem, or empty."""
    register = decode_register(text)

    uuids = [record.uuid for record in register.records]
    assert len(set(uuids)) == len(uuids)
    assert len(uuids) <= text.count(":") + 1
    decode_handshake(text)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Return a sample with a few characters replaced."""
    text = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.text(max_size=3)) + text[at + draw(st.integers(0, 3)) :]
    return text


@given(damaged() | st.text())
@settings(max_examples=60)
def test_no_file_raises(text: str) -> None:
    """Every loader answers every text with a value or with problems."""
    with contextlib.suppress(DocumentError):
        read_document(text)

    for load in (load_device_config, load_node_config, load_fleet):
        assert load(text) is not None


@given(st.lists(nodes(), max_size=6))
@settings(max_examples=60)
def test_offers_are_the_most_on_one_node(found: list[Node]) -> None:
    """Counting in bulk gives what counting one by one gives."""
    by_name = {node.name: node for node in found}
    expected: Counter[GpuKind] = Counter()
    for node in by_name.values():
        kinds = (
            GpuKind(model=g.model, memory=g.memory, mode=g.mode, board=g.board) for g in node.gpus
        )
        expected |= Counter(kinds)

    snapshot = snapshot_of(found, version="", complete=True)

    assert snapshot.offers == expected
