"""A fleet that is written down is read again as it was, but for names."""

import re
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from allocator.config.document import MAX_BYTES
from allocator.config.fleet_document import fleet_document
from allocator.config.fleet_file import load_fleet
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Loaded
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.choose import PlacementPolicy
from allocator.report.copies import Copies, place_copies
from tests.builders.model import (
    A30,
    A100_40,
    H100,
    T4,
    ask,
    gpu,
    mig_grant,
    node,
    nodes_of,
    placed,
    pod,
    snapshot,
    soft_grant,
)

MIXED = node(
    "gpu-a",
    gpu(A100_40, index=0, mode=Mode.MIG, grants=[mig_grant("3g.20gb", 4), mig_grant("1g.5gb", 0)]),
    gpu(A100_40, index=1, mode=Mode.MIG, instances=[placed("2g.10gb", 0)]),
    replace(gpu(A100_40, index=2, mode=Mode.MIG), healthy=False),
    replace(gpu(T4, index=3, grants=[soft_grant(8000, 60)] * 1), foreign=MiB(2000), slots=3),
)


def written(*nodes: Node) -> str:
    found = fleet_document(nodes)
    assert found.left_out == ()
    return yaml.safe_dump(orjson.loads(orjson.dumps(found.content)))


def again(*nodes: Node) -> tuple[Node, ...]:
    found = load_fleet(written(*nodes))
    assert isinstance(found, Loaded), str(found)
    return found.value


def bare(one: Gpu) -> Gpu:
    """Return a GPU without what a fleet file does not say."""
    grants = [msgspec.structs.replace(grant, gpu="", cores=0) for grant in one.grants]
    promised = [grant.placed for grant in grants if grant.placed is not None]
    live = {*one.instances, *promised}
    return replace(
        one,
        uuid="",
        links=(),
        grants=tuple(sorted(grants, key=str)),
        instances=tuple(sorted(live, key=str)),
    )


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([MIXED], id="everything"),
        pytest.param([nodes_of(8, H100, mode=Mode.MIG), nodes_of(4, T4, name="t")], id="empty"),
        pytest.param([nodes_of(2, A30), MIXED], id="several"),
    ],
)
def test_what_is_written_is_read_again(nodes: Sequence[Node]) -> None:
    """GPUs in their order, what is on them, and what does not work."""
    found = again(*nodes)

    assert [one.name for one in found] == [one.name for one in nodes]
    for read, original in zip(found, nodes, strict=True):
        assert list(map(bare, read.gpus)) == list(map(bare, original.gpus))


@given(
    placed_before=st.lists(st.sampled_from([1000, 4864, 9000, 15000, 30000]), max_size=8),
    asked=st.sampled_from([1500, 4864, 19968]),
)
def test_as_many_pods_fit_as_did(placed_before: list[int], asked: int) -> None:
    """That is what it is for."""
    fleet = snapshot(nodes_of(2, mode=Mode.MIG), nodes_of(2, T4, name="t"))
    policy, one = PlacementPolicy(), Copies()
    for memory in placed_before:
        _, fleet = place_copies(pod(ask(memory)), fleet, policy, copies=one, first="n0")
    twin = snapshot(*again(*fleet.nodes.values()))

    many = Copies(wanted=99, needed=99)
    found, _ = place_copies(pod(ask(asked)), fleet, policy, copies=many, first="n0")
    copied, _ = place_copies(pod(ask(asked)), twin, policy, copies=many, first="n0")

    assert copied == found


def test_it_names_nobody() -> None:
    """Neither a pod nor a UUID nor a link is in it; names of nodes and models are."""
    linked = replace(MIXED, gpus=(replace(MIXED.gpus[0], links=("GPU-secret",)), *MIXED.gpus[1:]))

    text = written(linked)

    assert not re.search(r"GPU-|secret|uuid|pod|namespace", text)
    assert set(re.findall(r"[a-z]+(?=:)", text)) <= {
        *("nodes", "name", "gpus", "count", "model", "memory", "mode", "slots"),
        *("busy", "idle", "foreign", "unhealthy", "gpu", "profile", "start", "cores"),
    }


def test_what_is_promised_twice_is_written_once() -> None:
    """A file may hold no more than a GPU has; what is beyond would make all of it unusable."""
    over = gpu(T4, grants=[soft_grant(9000, 70), soft_grant(9000, 70), soft_grant(100)])
    cut = gpu(
        A100_40,
        mode=Mode.MIG,
        index=1,
        grants=[mig_grant("3g.20gb", 4), mig_grant("3g.20gb", 4), mig_grant("1g.5gb", 5)],
    )

    (found,) = again(node("n", replace(over, foreign=MiB(5000), slots=1), cut))

    shared, sliced = found.gpus
    assert [grant.memory for grant in shared.grants] == [9000, 6360]
    assert [grant.cores for grant in shared.grants] == [70, 30]
    assert shared.foreign == 0
    assert [grant.placed for grant in sliced.grants] == [placed("3g.20gb", 4)]


@pytest.mark.parametrize("name", ["A100", "Tesla", "NVIDIA", "Some new GPU", "x: [", "T4\n", ""])
def test_a_model_that_is_unknown_keeps_its_name(name: str) -> None:
    """It is not taken for part of the name of another."""
    odd = replace(gpu(T4), model=name, memory=MiB(7000))

    document = fleet_document([node("n", odd)])

    if document.left_out:
        assert not name
        return
    found = load_fleet(yaml.safe_dump(document.content))
    assert isinstance(found, Loaded), str(found)
    assert found.value[0].gpus[0].model in {name, f"{name} (as reported)"}


def test_a_node_that_cannot_be_written_is_named() -> None:
    """A board that the catalogue does not know has no profiles there; others stay."""
    odd = replace(gpu(A100_40, mode=Mode.MIG), model="Unknown")
    nothing = node("none")

    found = fleet_document([node("odd", odd), nothing, nodes_of(1, T4)])

    assert [table["name"] for table in found.content["nodes"]] == ["n0"]
    (sentence,) = found.left_out
    assert sentence.startswith("node odd is left out: nodes[0].gpus[0].mode: ")


def test_a_large_fleet_is_read() -> None:
    """A file of a cluster is larger than one that a person writes."""
    busy = [
        node(
            f"gpu-{number}",
            *(gpu(T4, index=i, grants=[soft_grant(2000, 10)] * 4) for i in range(8)),
        )
        for number in range(500)
    ]
    text = orjson.dumps(fleet_document(busy).content).decode()

    found = load_fleet(text)

    assert len(text) > MAX_BYTES
    assert isinstance(found, Loaded)
    assert len(found.value) == 500
