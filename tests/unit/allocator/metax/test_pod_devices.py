"""What MetaX's device plugin and HAMi read on a pod, byte for byte."""

from datetime import UTC, datetime

import pytest

from allocator.metax.names import ALLOCATED_KEY
from allocator.metax.pod_devices import (
    allocated_text,
    allocated_uuids,
    shared_annotations,
    whole_annotations,
)
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB

NOW = datetime(2026, 3, 1, 8, 15, 31, 250, tzinfo=UTC)


def grant(cores: int, memory: int, uuid: str = "GPU-b") -> Grant:
    """Return a share of one GPU."""
    return Grant(gpu=uuid, mode=Mode.SGPU, memory=MiB(memory), cores=CorePercent(cores))


def test_a_share_is_written_for_the_plugin_and_for_hami() -> None:
    """The pod of MetaX's guide: 60 percent and 4 GiB (M1)."""
    assert shared_annotations([[grant(60, 4096)]], node="n1", now=NOW) == {
        "metax-tech.com/gpu-devices-allocated": '[[{"uuid":"GPU-b","compute":60,"vRam":4096}]]',
        "metax-tech.com/predicate-time": "1772352931000250000",
        "hami.io/metax-sgpu-devices-to-allocate": "GPU-b,Metax-SGPU,4096,60:;",
        "hami.io/metax-sgpu-devices-allocated": "GPU-b,Metax-SGPU,4096,60:;",
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1772352931",
        "hami.io/bind-time": "1772352931",
        "hami.io/bind-phase": "allocating",
    }


def test_a_share_of_zero_is_left_out() -> None:
    """An online pod is charged no compute (M2)."""
    assert allocated_text([[grant(0, 4096)]]) == '[[{"uuid":"GPU-b","vRam":4096}]]'


def test_each_container_has_its_place() -> None:
    """A container without GPUs keeps an empty one (M7)."""
    written = shared_annotations([[], [grant(30, 8192)]], node="n1", now=NOW)

    assert written[ALLOCATED_KEY] == '[[],[{"uuid":"GPU-b","compute":30,"vRam":8192}]]'
    assert written["hami.io/metax-sgpu-devices-allocated"] == ";GPU-b,Metax-SGPU,8192,30:;"


def test_whole_gpus_are_written_for_hami_alone() -> None:
    """MetaX's plugin chooses them by itself, so it reads nothing."""
    written = whole_annotations([[grant(100, 65536, "n1-metax-0")]], node="n1", now=NOW)

    assert written == {
        "hami.io/metax-gpu-devices-to-allocate": "n1-metax-0,Metax-GPU,65536,100:;",
        "hami.io/metax-gpu-devices-allocated": "n1-metax-0,Metax-GPU,65536,100:;",
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1772352931",
        "hami.io/bind-time": "1772352931",
        "hami.io/bind-phase": "allocating",
    }


def test_a_plugin_finds_the_gpus_of_each_container() -> None:
    """What is written can be read back."""
    text = allocated_text([[], [grant(1, 1, "GPU-a"), grant(0, 0, "GPU-b")]])

    assert allocated_uuids({ALLOCATED_KEY: text}) == ((), ("GPU-a", "GPU-b"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "{}",
        "[",
        "[{}]",
        "[[{}]]",
        '[["GPU-a"]]',
        '[[{"uuid":7}]]',
        "[[[]]]",
        "[" * 5000,
        '[[{"uuid":"a","compute":"60"}]]',
        '[[{"uuid":"a","vRam":1.5}]]',
    ],
)
def test_a_malformed_annotation_names_no_gpu(text: str) -> None:
    """A tenant may have written it."""
    assert allocated_uuids({ALLOCATED_KEY: text}) == ()
