"""Nodes of one class differ in their NUMA nodes, and the filter tells them apart."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from allocator.extender.index import IndexBuilder
from allocator.extender.reasons import TOO_FEW_ON_NUMA
from allocator.model.gpu import Node
from allocator.model.request import Filters, Mode, PodRequest
from tests.builders.gpunodes import entry
from tests.builders.model import ask, gpu, node, pod, soft_grant
from tests.unit.allocator.extender.test_filter import asking, index_of, verdicts

TWO = msgspec.structs.replace(pod(ask(1000, count=2)), one_numa=True)
A100S = msgspec.structs.replace(TWO, filters=Filters(models=("A100",)))
LAST_TWO = msgspec.structs.replace(TWO, filters=Filters(uuids=("GPU-n0-1", "GPU-n0-2")))


def machine(name: str, *numas: int, mode: Mode = Mode.HAMI_CORE) -> Node:
    gpus = (replace(gpu(index=i, mode=mode), numa=numa) for i, numa in enumerate(numas))
    return node(name, *gpus)


def test_a_node_without_enough_on_one_is_left_out() -> None:
    """It is equal to one that has them, and takes a pod that does not care."""
    index = index_of(machine("split", 0, 1), machine("joined", 1, 1))

    found = verdicts(index, asking(TWO), "split", "joined")

    assert (found.fitting, found.failures) == (["joined"], {"split": TOO_FEW_ON_NUMA})
    freely = msgspec.structs.replace(TWO, one_numa=False)
    assert verdicts(index, asking(freely), "split", "joined").fitting == ["split", "joined"]


def test_only_gpus_that_take_the_container_count() -> None:
    """A full one does not."""
    there = machine("n0", 0, 0, 1)
    full = replace(there.gpus[0], grants=(soft_grant(40000, gpu=there.gpus[0].uuid),))
    index = index_of(there)
    index_with = index_of(replace(there, gpus=(full, *there.gpus[1:])))

    assert verdicts(index, asking(TWO), "n0").fitting == ["n0"]
    assert verdicts(index_with, asking(TWO), "n0").failures == {"n0": TOO_FEW_ON_NUMA}


def test_one_gpu_is_on_one_numa_node() -> None:
    """Nothing is looked at for it."""
    one = msgspec.structs.replace(pod(ask(1000)), one_numa=True)

    assert verdicts(index_of(machine("n0", 0, 1)), asking(one), "n0").fitting == ["n0"]


def test_gpus_in_mig_mode_are_left_to_the_bind() -> None:
    """They count, whatever is cut of them."""
    index = index_of(machine("n0", 0, 0, mode=Mode.MIG), machine("n1", 0, 1, mode=Mode.MIG))

    found = verdicts(index, asking(TWO), "n0", "n1")

    assert found.fitting == ["n0"]


BOTH = msgspec.structs.replace(
    pod(ask(1000, count=2, name="a"), ask(1000, count=3, name="b")), one_numa=True
)


@pytest.mark.parametrize("names", [("split", "joined"), ("joined", "split")])
def test_a_node_that_has_too_few_says_nothing_of_its_equals(names: tuple[str, str]) -> None:
    """One of them is looked at for all, by everything but NUMA nodes; every container counts."""
    nodes = {"split": machine("split", 0, 0, 1, 1), "joined": machine("joined", 0, 0, 0, 1)}
    index = index_of(*(nodes[name] for name in names))

    found = verdicts(index, asking(BOTH), *names)

    assert (found.fitting, found.failures) == (["joined"], {"split": TOO_FEW_ON_NUMA})


def test_the_pods_own_entry_is_free_to_it() -> None:
    """A pod whose Binding failed after the commit is bound again."""
    builder = IndexBuilder()
    there = machine("n0", 0, 0, 1)
    grants = tuple(soft_grant(40000, gpu=one.uuid) for one in there.gpus[:2])
    full = tuple(replace(one, grants=(g,)) for one, g in zip(there.gpus, grants, strict=False))
    builder.put(replace(there, gpus=(*full, there.gpus[2])), [entry("u", *grants)])
    index = builder.index(version="1", complete=True)

    assert verdicts(index, asking(TWO), "n0", own_nodes={"n0"}).fitting == ["n0"]
    assert verdicts(index, asking(TWO, uid="v"), "n0").fitting == []


@pytest.mark.parametrize(
    ("change", "request_"),
    [
        pytest.param({"healthy": False}, TWO, id="unhealthy"),
        pytest.param({"model": "NVIDIA A30"}, A100S, id="another-model"),
        pytest.param({"mode": Mode.MPS}, TWO, id="another-mode"),
        pytest.param({}, LAST_TWO, id="not-named"),
    ],
)
def test_a_gpu_that_is_out_of_the_question_is_not_counted(
    change: dict[str, Any], request_: PodRequest
) -> None:
    """Two are left, which do not sit together."""
    there = machine("n0", 0, 0, 1)
    index = index_of(replace(there, gpus=(replace(there.gpus[0], **change), *there.gpus[1:])))

    freely = msgspec.structs.replace(request_, one_numa=False)
    assert verdicts(index, asking(freely), "n0").fitting == ["n0"]
    assert verdicts(index, asking(request_), "n0").failures == {"n0": TOO_FEW_ON_NUMA}
