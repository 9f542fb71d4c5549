"""A status beyond what hardware has closes its node, says why, and costs nothing more."""

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from allocator.catalog.boards import MODELS
from allocator.ledger.closed import closed_reason
from allocator.ledger.decode import decode, decode_text
from allocator.ledger.ledger import LONGEST_STATED, parse_ledger, parse_ledger_text
from allocator.ledger.lifecycle import NodeIdentity
from allocator.ledger.schema import (
    MOST_BOARDS,
    MOST_GPUS,
    MOST_INSTANCES,
    MOST_STATUS_BYTES,
    MOST_UNPROMISED,
    status_of,
)
from allocator.model.board import Board
from allocator.model.gpu import Node
from allocator.model.request import Mode
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.builders.model import A100_40, gpu, mig_grant, nodes_of, placed, soft_grant

Json = dict[str, Any]
NODE = nodes_of(1, product=A100_40, mode=Mode.MIG)
IDENTITY = NodeIdentity(name=NODE.name, uid="", boot="boot-1")


BOARDS = [model.board for model in MODELS.values() if model.board is not None]


def wire(**status: object) -> Json:
    document: Json = msgspec.json.decode(msgspec.json.encode(gpu_node(NODE, (), **status)))
    return document


def board(name: str = "B", **changes: object) -> Json:
    profile = {"name": "1g.1gb", "id": 0, "memoryMiB": 1, "sms": 1, "size": 1, "starts": [0]}
    return {"name": name, "slots": 8, "profiles": [profile], **changes}


def profiles(number: int, starts: int) -> list[Json]:
    return [
        board()["profiles"][0] | {"name": f"{n + 1}g.1gb", "starts": list(range(starts))}
        for n in range(number)
    ]


def a_gpu(number: int) -> Json:
    shown = {"uuid": f"GPU-{number}", "index": number, "model": "NVIDIA L4", "memoryMiB": 1}
    return {**shown, "mode": "hami-core", "healthy": True, "slots": 1}


def a_pod(number: int) -> Json:
    pod = {"namespace": "n", "name": "p", "uid": f"u{number}"}
    return {"pod": pod, "since": "2026-11-21T17:00:00Z", "containers": []}


BEYOND = [
    pytest.param(
        {"boards": [board(slots=16, profiles=profiles(64, 16))]},
        "status.boards[0].profiles: 64 profiles; accepted: at most 24",
        id="a-board-of-16-slots-and-64-profiles",
    ),
    pytest.param(
        {"boards": [board(), board(slots=16, profiles=profiles(1, 16))]},
        "status.boards[1].slots: 16 slots that its profiles divide into 16 parts; "
        "accepted: at most 8 parts, as of 12 slots taken in threes",
        id="a-board-in-sixteen-parts",
    ),
    pytest.param(
        {"boards": [board(f"B{n}") for n in range(MOST_BOARDS + 1)]},
        "status.boards: 9 elements found; accepted: at most 8",
        id="boards",
    ),
    pytest.param(
        {"gpus": [a_gpu(n) for n in range(MOST_GPUS + 1)]},
        "status.gpus: 65 elements found; accepted: at most 64",
        id="gpus",
    ),
    pytest.param(
        {"gpus": [None] * 25_000},
        "status.gpus: 25000 elements found; accepted: at most 64",
        id="gpus-that-are-nothing",
    ),
    pytest.param(
        {"instances": [{"gpu": "GPU-1"}] * (MOST_INSTANCES + 1)},
        "status.instances: 513 elements found; accepted: at most 512",
        id="instances",
    ),
    pytest.param(
        {"unpromised": [a_pod(n) for n in range(MOST_UNPROMISED + 1)]},
        "status.unpromised: 257 elements found; accepted: at most 256",
        id="pods-without-an-entry",
    ),
    pytest.param(
        {"boards": [board("B" * 1_000_000)]},
        " bytes of GPUs, boards and pods; accepted: at most 131072",
        id="a-name-of-a-megabyte",
    ),
    pytest.param(
        {"gpus": [a_gpu(0) | {"links": [f"GPU-{n}" for n in range(20_000)]}]},
        " bytes of GPUs, boards and pods; accepted: at most 131072",
        id="links",
    ),
    pytest.param({"gpus": "all"}, 'status.gpus: "all" found; accepted: array', id="no-list"),
]


@pytest.mark.parametrize(("status", "why"), BEYOND)
@pytest.mark.parametrize(
    "read", [parse_ledger, lambda d: parse_ledger_text(msgspec.json.encode(d))[0]]
)
def test_the_node_is_closed_and_says_why(
    status: Json, why: str, read: Callable[[Json], Any]
) -> None:
    """The value, its place and what is accepted, in whatever way the object is read."""
    ledger = read(wire(**status))
    reason = closed_reason(ledger, IDENTITY, upstream=False)

    assert ledger.node.gpus == ()
    assert not ledger.node.fresh
    assert reason.startswith("its agent reports more than is accepted: status")
    assert why in reason
    assert len(reason) <= LONGEST_STATED


def test_what_hardware_has_is_accepted() -> None:
    """Sixteen GPUs that are full, each linked to all others, and as many pods as kubelet runs."""
    names = [f"GPU-{n:032x}" for n in range(16)]
    full = [
        replace(gpu(A100_40, mode=Mode.MIG, index=n), uuid=name, links=tuple(names))
        for n, name in enumerate(names)
    ]
    cut = [placed("1g.5gb", start) for start in range(7)]
    node = Node(name="n", gpus=tuple(replace(one, instances=tuple(cut)) for one in full))
    pods = [entry(f"{n:036x}", mig_grant("1g.5gb", 0, gpu=names[0])) for n in range(110)]

    ledger = parse_ledger(wire(**status_of(node, pods)))

    assert (ledger.excess, ledger.problems) == (None, ())
    assert (len(ledger.node.gpus), len(ledger.unpromised)) == (16, 110)


@pytest.mark.parametrize("known", BOARDS, ids=lambda board: board.name)
def test_every_known_board_is_accepted(known: Board) -> None:
    """As its agent reports it."""
    cut = replace(gpu(A100_40, mode=Mode.MIG), model=known.name, board=known)

    (found,) = parse_ledger(wire(**status_of(Node(name="n", gpus=(cut,))))).node.gpus

    assert found.board == known


def test_entries_of_a_closed_node_are_kept() -> None:
    """What was promised there stays promised, and is given back as anywhere."""
    document = gpu_node(NODE, [entry("u", soft_grant(1000))], boards=[board(slots=63)] * 9)
    ledger, _ = parse_ledger_text(msgspec.json.encode(document))

    assert ledger.closed
    assert [one.uid for one in ledger.entries] == ["u"]
    assert ledger.entry_uids == ("u",)


def test_a_node_that_writes_without_end_takes_no_more_room() -> None:
    """Only its last status is kept, and with it only the entries that are in the spec."""
    document = gpu_node(NODE, [entry("u", mig_grant("1g.5gb", 0))])
    status = document["status"]
    filler = [a_gpu(n) for n in range(1, MOST_GPUS)]
    raws = [
        msgspec.json.encode(
            document | {"status": status | {"gpus": [*filler, a_gpu(0) | {"foreignMiB": n}]}}
        )
        for n in range(300)
    ]

    assert memory_kept(raws) < 30 * len(raws[0])


def test_entries_that_are_gone_are_forgotten() -> None:
    """A node runs pods for years while its status stays the same."""

    def attempt(name: str) -> int:
        pods = (f"{name}{number}" for number in range(2000))
        documents = [gpu_node(NODE, [entry(uid, mig_grant("1g.5gb", 0))]) for uid in pods]
        return memory_kept(list(map(msgspec.json.encode, documents)))

    size = len(msgspec.json.encode(gpu_node(NODE, [entry("u0", mig_grant("1g.5gb", 0))])))
    # The interpreter's table of names may grow meanwhile, by a megabyte at once and seldom.
    assert min(map(attempt, "uvw")) < 100 * size  # garbage not yet collected included


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_text_that_a_terminal_obeys_is_not_read(text: str) -> None:
    """No model, board, switch or pod is called so, and the problem shows it escaped."""
    clean = wire()["status"]
    gpus = [a_gpu(0), a_gpu(1) | {"model": text}, a_gpu(2) | {"switch": text}]
    boards = [*clean["boards"], board(text)]
    pods = [a_pod(0), a_pod(1)]
    pods[1]["pod"]["name"] = text
    decoded = decode(wire(gpus=gpus, boards=boards, unpromised=pods))

    assert [one.uuid for one in decoded.node.gpus] == ["GPU-0"]
    assert [one.uid for one in decoded.unpromised] == ["u0"]
    assert len(decoded.problems) == 4
    for problem in decoded.problems:
        assert str(problem).isprintable()
        assert "accepted: printable text" in str(problem)


@pytest.mark.parametrize("bytes_over", [0, 1])
def test_the_size_of_a_status_is_bounded_to_the_byte(bytes_over: int) -> None:
    """Other fields, which change with every start of a container, do not count."""
    base: Json = {"boards": [], "gpus": [], "instances": [], "unpromised": []}
    size = len(msgspec.json.encode({**base, "gpus": [""]}))
    text = "x" * (MOST_STATUS_BYTES - size + bytes_over)
    document = {"metadata": {"name": "n"}, "status": {**base, "gpus": [text], "held": ["u"] * 99}}

    assert (decode_text(msgspec.json.encode(document)).excess is None) == (bytes_over == 0)


@pytest.mark.parametrize("key", ["chunks", "chunkSMs"])
@pytest.mark.parametrize(
    "value", [-1, 101, 2**31, 2**64, 1.5, "16", True, [16], {"a": 1}, "", "\x1b[31m"]
)
def test_a_gpu_with_an_odd_number_of_chunks_is_left_out(key: str, value: object) -> None:
    """More chunks than percent could be promised twice, so nothing is promised there."""
    gpu = {"uuid": "GPU-0", "index": 0, "model": "Tesla T4", "memoryMiB": 15360, "slots": 10}
    good = gpu | {"mode": "mps", "healthy": True}
    bad = good | {"uuid": "GPU-1", key: value}

    decoded = decode({"metadata": {"name": "n"}, "status": {"gpus": [good, bad]}})

    assert [each.uuid for each in decoded.node.gpus] == ["GPU-0"]
    assert [problem.path for problem in decoded.problems] == [f"status.gpus[1].{key}"]


def memory_kept(raws: Sequence[bytes]) -> int:
    """Return how many bytes more are in use after all of *raws* were read, one after the other."""
    decode_text(raws[0])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for raw in raws[1:]:
            decode_text(raw)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
