"""Capacity: sums by model, and a memory that never differs from a fresh look."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from allocator.model.request import Mode
from console.cluster.snapshot import ClusterView
from console.get.gpu_rows import gpu_rows
from console.pages.fleet.capacity import FleetMemory, fleet_summary
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import A100_40, T4, gpu, mig_grant, node, soft_grant
from tests.unit.console.sites import machine, site


def test_sums_are_those_of_the_rows_of_gpus() -> None:
    """``kubectl vgpu get gpus`` says the same, GPU by GPU."""
    view = site()
    kinds = fleet_summary(view).kinds
    rows = list(gpu_rows(view))

    assert set(kinds) == {(row.model, row.mode) for row in rows}
    for (model, mode), kind in kinds.items():
        mine = [row for row in rows if (row.model, row.mode) == (model, mode)]
        assert kind.gpus == len(mine)
        assert kind.memory == sum(row.memory_mib for row in mine)
        assert kind.promised == sum(row.promised_mib for row in mine)
        assert kind.fits == max(row.fits_mib for row in mine if row.fits_mib is not None)
        assert kind.unusable == sum(row.health != "ok" for row in mine)


def test_what_is_wrong_is_named() -> None:
    nodes = fleet_summary(site()).nodes

    assert nodes["gpu-a"].broken == (("GPU-gpu-a-2", 2, "XID 79: it has fallen off the bus"),)
    assert nodes["gpu-c"].closed_reason == "its agent has not reported its GPUs yet"
    assert "gpu-b" not in nodes


CHANGES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("pcdr")), max_size=12)


def view_of(state: dict[int, str]) -> ClusterView:
    documents, machines = [], []
    for number, what in state.items():
        name = f"n{number}"
        mig = number % 2 == 1
        made = node(name, gpu(A100_40 if mig else T4, mode=Mode.MIG if mig else Mode.HAMI_CORE))
        grant = (
            mig_grant("3g.20gb", 0, gpu=f"GPU-{name}-0")
            if mig
            else soft_grant(5000, gpu=f"GPU-{name}-0")
        )
        documents.append(gpu_node(made, [entry("p", grant)] if what == "p" else []))
        machines.append(machine(name, cordoned=what == "c"))
    return site(documents, machines)


@given(CHANGES)
def test_a_memory_says_what_a_fresh_look_would(changes: list[tuple[int, str]]) -> None:
    """Pods come and go, nodes are cordoned, removed and come back."""
    memory, state = FleetMemory(), dict.fromkeys(range(4), "d")
    kept = view_of(state)
    for number, what in changes:
        if what == "r":
            state.pop(number, None)
        else:
            state[number] = what
        fresh = view_of(state)
        same = {
            n: kept.ledgers[n] for n in fresh.ledgers if kept.ledgers.get(n) == fresh.ledgers[n]
        }
        kept = replace(fresh, ledgers={**fresh.ledgers, **same})

        assert memory.summary(kept) == fleet_summary(fresh)
