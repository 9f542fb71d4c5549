"""Binds of pods that Volcano scheduled: its list is a wish, and what it is told is true."""

import asyncio
from pathlib import Path

import pytest

from allocator.config.device_config import load_device_config
from allocator.config.settings import DEFAULTS
from allocator.mig.geometry import Geometries
from allocator.mig.positions import with_volcano_positions
from allocator.model.problem import Loaded
from allocator.model.request import Mode
from allocator.volcano.device_list import LIST_ANNOTATION
from kube.clock import Clock
from tests.builders.bindings import answered, applied, binding, review, stored
from tests.builders.gpunodes import Json, gpu_node
from tests.builders.model import A100_40, nodes_of, snapshot
from tests.builders.pods import MEMORY, MODE, NUMBER, admitted, container, pod, received
from tests.fakes.ledger_server import LedgerServer
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler

TABLES = Path(__file__).parents[3] / "golden" / "volcano"
NODE = nodes_of(1, A100_40, mode=Mode.MIG)


def shipped(name: str) -> Geometries:
    loaded = load_device_config((TABLES / f"device-config-{name}.yaml").read_text())
    assert isinstance(loaded, Loaded)
    return loaded.value.geometries


def told(table: str, *picked: str, memory: int = 3000) -> list[str]:
    """Bind pods with these lists at once and return what each is told."""
    around = AdmissionContext(
        settings=DEFAULTS,
        snapshot=snapshot(with_volcano_positions(NODE)),
        geometries=shipped(table),
    )
    asking = pod(
        container(limits={NUMBER: 1, MEMORY: memory}),
        annotations={MODE: "mig"},
        schedulerName="volcano",
    )
    names = [f"p{number}" for number in range(len(picked))]
    pods = {
        name: stored(admitted(received(asking), around), name=name, uid=f"uid-{name}")
        for name in names
    }
    server = LedgerServer(gpu_node=gpu_node(NODE), pods=pods)
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: around,
        nodes_with_entry=lambda _: frozenset(),
        clock=Clock(random=lambda: 0),
        patience=5,
    )
    written: list[Json] = [
        binding(annotations={LIST_ANNOTATION: text}, name=name)
        for name, text in zip(names, picked, strict=True)
    ]

    async def together() -> list[bytes]:
        reviews = (review(one, name=one["metadata"]["name"]) for one in written)
        return await asyncio.gather(*map(binder.bind, reviews))

    answers = map(answered, asyncio.run(together()))
    return [
        str(applied(one, answer["patch"])["metadata"]["annotations"][LIST_ANNOTATION])
        for one, answer in zip(written, answers, strict=True)
    ]


@pytest.mark.parametrize("table", ["a", "b"])
def test_v1_one_instance_picked_for_three_is_three(table: str) -> None:
    """As its scheduler does it in one cycle, with either of the tables it was shipped with."""
    lists = told(table, *["GPU-n0-0[group1-0],NVIDIA,3000,0:"] * 3)

    assert lists[0] == "GPU-n0-0[group1-0],NVIDIA,3000,0:"
    assert len(set(lists)) == 3
    assert all(text.startswith("GPU-n0-0[group1-") for text in lists)


@pytest.mark.parametrize(
    "picked",
    [
        pytest.param("", id="none"),
        pytest.param("GPU-other[group2-0],NVIDIA,8000,0:", id="no-such-gpu"),
        pytest.param("GPU-n0-0[group2--1],NVIDIA,8000,0:", id="negative"),
        pytest.param("GPU-n0-0[group2-4294967296],NVIDIA,8000,0:", id="beyond-32-bits"),
        pytest.param("GPU-n0-0[group2-1],NVIDIA,-8000,0:", id="negative-memory"),
        pytest.param("GPU-n0-0[[group2-1]],NVIDIA,8000,0:", id="two-brackets"),
    ],
)
def test_v9_h2_a_list_that_cannot_be_meant_changes_nothing(picked: str) -> None:
    """It is no more than a wish, and one that nobody understands is none."""
    assert told("b", picked, memory=8000) == told("b", "", memory=8000)
