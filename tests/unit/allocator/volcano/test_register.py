"""The register and the handshake are read and written as Volcano's plugin and scheduler do."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from allocator.catalog.boards import board_named
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.volcano.register import (
    Handshake,
    HandshakePhase,
    RegisteredNode,
    decode_handshake,
    decode_register,
    encode_handshake,
    encode_register,
    node_from_register,
)

A100 = "GPU-6b1f0c1e-1111-4a6e-9c0b-0a1b2c3d4e5f,10,40960,NVIDIA-NVIDIA A100-SXM4-40GB,true,mig:"
T4 = "GPU-7c2f0c1e-2222-4a6e-9c0b-0a1b2c3d4e5f,10,15360,NVIDIA-Tesla T4,true,hami-core:"
NOW = datetime(2026, 3, 1, 8, 15, 31, tzinfo=UTC)


@pytest.mark.parametrize("text", [A100, T4, A100 + T4], ids=["mig", "hami-core", "two"])
def test_what_is_written_is_what_was_read(text: str) -> None:
    """Six fields and a colon after each record, byte for byte."""
    node = node_from_register("n", text).node

    assert encode_register(node.gpus) == text


def test_memory_is_in_units_of_the_factor() -> None:
    """A site whose unit is 10 MiB registers a tenth."""
    text = T4.replace("15360", "1536")

    node = node_from_register("n", text, factor=10).node

    assert node.gpus[0].memory == 15360
    assert encode_register(node.gpus, factor=10) == text


def test_old_records_have_no_mode() -> None:
    """Five fields are what plugins up to v1.9.4 write; they know hami-core only."""
    register = decode_register("GPU-a,10,15360,NVIDIA-Tesla T4,true")

    assert register.problems == ()
    assert [(r.product, r.mode) for r in register.records] == [("Tesla T4", Mode.HAMI_CORE)]


def test_modes_are_each_gpus_own() -> None:
    """Upstream gives the whole node the mode of its last GPU (V8)."""
    modes = [gpu.mode for gpu in node_from_register("n", A100 + T4).node.gpus]

    assert modes == [Mode.MIG, Mode.HAMI_CORE]
    assert modes == [gpu.mode for gpu in node_from_register("n", T4 + A100).node.gpus][::-1]


def test_an_unknown_model_in_mode_mig_is_not_shared_instead() -> None:
    """It stays MIG without shapes, so nothing is given out on it, and it is said why (V8)."""
    registered = node_from_register("n", A100.replace("A100-SXM4-40GB", "X900"))

    (gpu,) = registered.node.gpus
    assert (gpu.mode, gpu.board) == (Mode.MIG, None)
    assert [problem.what for problem in registered.problems] == [
        "NVIDIA X900 is in mode mig but not in the catalogue"
    ]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        pytest.param(",10,", ",ten,", 1, id="count-not-a-number"),
        pytest.param(",10,", ",-1,", 1, id="count-negative"),
        pytest.param(",40960,", ",0,", 1, id="memory-zero"),
        pytest.param(",40960,", ",99999999999999999999,", 1, id="memory-huge"),
        pytest.param(",true,mig", "", 1, id="four-fields"),
        pytest.param(",mig", ",100,mig,x", 1, id="eight-fields"),
        pytest.param("GPU-6b1f", "GPU 6b1f", 1, id="uuid-with-space"),
        pytest.param("A100", "\x00", 1, id="type-not-printable"),
        pytest.param(A100, T4, 1, id="same-gpu-twice"),
        pytest.param(",true,", ",yes,", 2, id="health-unclear"),
        pytest.param(",mig", ",smi", 2, id="mode-unknown"),
    ],
)
def test_a_bad_record_costs_itself_alone(before: str, after: str, kept: int) -> None:
    """The other GPUs stay, the defect is listed, and the node is no ground for a refusal."""
    registered = node_from_register("n", A100.replace(before, after) + T4)

    assert len(registered.node.gpus) == kept
    assert len(registered.problems) == 1
    assert not registered.node.fresh


def test_doubtful_values_are_read_as_upstream_reads_them() -> None:
    """Health that is no truth value is false, a mode that is none is hami-core."""
    (gpu,) = node_from_register("n", A100.replace("true,mig", "yes,smi")).node.gpus

    assert (gpu.healthy, gpu.mode) == (False, Mode.HAMI_CORE)


def test_indexes_are_places_in_the_annotation() -> None:
    """An empty record is skipped and still counts, as upstream counts."""
    assert [record.index for record in decode_register(A100 + ":" + T4).records] == [0, 2]


@pytest.mark.parametrize("text", ["x" * 300_000, T4 * 300], ids=["characters", "records"])
def test_size_is_bounded(text: str) -> None:
    """Far too much is cut off, and said."""
    registered = node_from_register("n", text)

    assert len(registered.node.gpus) <= 1
    assert not registered.node.fresh


@pytest.mark.parametrize("text", ["", ":"], ids=["empty", "colon"])
def test_no_records_are_no_gpus(text: str) -> None:
    """A plugin that found none has said so."""
    registered = node_from_register("n", text)

    assert registered == RegisteredNode(node=Node(name="n", gpus=()))


def test_names_of_old_drivers_are_kept() -> None:
    """They find their board, and are written as they were read."""
    text = A100.replace("NVIDIA-NVIDIA ", "NVIDIA-")

    (gpu,) = node_from_register("n", text).node.gpus

    assert gpu.board == board_named("NVIDIA A100-SXM4-40GB")
    assert encode_register([gpu]) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "Reported 2026-03-01 08:15:31.123456789 +0000 UTC m=+30.22",
            Handshake(HandshakePhase.REPORTED, NOW),
            id="reported",
        ),
        pytest.param(
            "Reported 2026-03-01 16:15:31 +0800 CST",
            Handshake(HandshakePhase.REPORTED, NOW),
            id="reported-elsewhere",
        ),
        pytest.param(
            "Requesting_2026.03.01 08:15:31", Handshake(HandshakePhase.REQUESTING, NOW), id="probe"
        ),
        pytest.param(
            "Deleted_2026.03.01 08:15:31", Handshake(HandshakePhase.DELETED, NOW), id="deleted"
        ),
        pytest.param("Requesting_soon", Handshake(HandshakePhase.REQUESTING, None), id="no-time"),
        pytest.param(
            "Reported 2026-99-01 08:15:31", Handshake(HandshakePhase.REPORTED, None), id="no-day"
        ),
        pytest.param("hello", None, id="something-else"),
    ],
)
def test_handshakes_are_read(text: str, expected: Handshake | None) -> None:
    """Go's time with its monotonic tail, and the scheduler's own format."""
    assert decode_handshake(text) == expected


@pytest.mark.parametrize("phase", list(HandshakePhase))
def test_a_handshake_is_read_back(phase: HandshakePhase) -> None:
    """Whatever the zone of the clock, the wire has UTC."""
    text = encode_handshake(phase, NOW.astimezone(timezone(timedelta(hours=8))))

    assert decode_handshake(text) == Handshake(phase, NOW)


def test_a_probe_is_unanswered_after_a_minute() -> None:
    """The scheduler then writes Deleted, which means the same at once."""
    probe, minute = Handshake(HandshakePhase.REQUESTING, NOW), timedelta(seconds=60)

    assert not probe.is_unanswered(NOW + minute)
    assert probe.is_unanswered(NOW + minute * 2)
    assert Handshake(HandshakePhase.DELETED, NOW).is_unanswered(NOW)
    assert not Handshake(HandshakePhase.REPORTED, NOW).is_unanswered(NOW + minute * 99)


def test_a_gpu_without_slots_has_nothing_to_give() -> None:
    """It is how a GPU that may not be used is registered, and no defect."""
    text = T4.replace(",10,", ",0,")

    registered = node_from_register("n", text)

    assert registered.problems == ()
    assert registered.node.gpus[0].slots == 0
    assert encode_register(registered.node.gpus) == text
