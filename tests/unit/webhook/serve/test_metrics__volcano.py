"""Promises are exported as Volcano's scheduler names them, spelled and counted as it does."""

from collections.abc import Callable
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.model.request import Mode, Stage
from allocator.volcano.scheduler_samples import SchedulerSample, samples_of
from tests.builders.gpunodes import entry, held, ledger, several
from tests.builders.model import A100_40, T4, gpu, mig_grant, node, soft_grant
from webhook.serve.metrics import Deviceshare

ENTRIES = (
    entry("train-0", soft_grant(3000, 50, gpu="GPU-n0-0")),
    entry("train-1", soft_grant(4000, 25, gpu="GPU-n0-0")),
    entry("infer", mig_grant("2g.10gb", 0, gpu="GPU-n0-1")),
)


def busy() -> Node:
    """Build a node with a GPU that two pods share, one that is cut, and an idle one."""
    grants = [g for e in ENTRIES for held in e.containers for g in held.grants]
    return node(
        "n0",
        gpu(T4, index=0, grants=grants[:2]),
        gpu(A100_40, index=1, mode=Mode.MIG, grants=grants[2:]),
        gpu(T4, index=2),
    )


def exposed(found: Deviceshare) -> str:
    registry = CollectorRegistry()
    registry.register(found)
    return generate_latest(registry).decode()


def test_the_page_reads_as_theirs(golden: Callable[[str, str], str]) -> None:
    """The whole text, as reviewed; --update-golden writes it anew."""
    found = Deviceshare()
    found.samples = list(samples_of(busy(), ENTRIES, factor=1))

    text = exposed(found)

    assert text == golden("volcano/metrics.txt", text)


def test_nothing_is_exported_unasked() -> None:
    """The names belong to its scheduler where that runs."""
    assert exposed(Deviceshare()) == ""


def test_memory_is_in_the_units_of_the_site() -> None:
    """As it is registered and requested."""
    found = {(s.family.name, s.labels): s.value for s in samples_of(busy(), ENTRIES, factor=10)}

    assert found["volcano_vgpu_device_allocated_memory", ("GPU-n0-0", "n0")] == 700
    assert found["volcano_vgpu_device_memory_limit", ("GPU-n0-0", "n0")] == 1536


def test_containers_that_take_turns_count_once() -> None:
    """A pod is not shown with more than its GPU has."""
    grant = soft_grant(9000, gpu="GPU-n0-0")
    one = several("p", held(Stage.INIT, grant), held(Stage.APP, grant))
    standing = ledger(node("n0", gpu(T4)), (one,)).node

    found = {s.family.name: s.value for s in samples_of(standing, [one], factor=1)}

    assert found["volcano_vgpu_device_shared_number"] == 1
    assert found["volcano_vgpu_device_allocated_memory"] == 9000
    assert found["volcano_vgpu_device_memory_allocation_for_a_certain_pod"] == 9000


def test_pods_of_one_name_are_added_up() -> None:
    """The label has no namespace, and a page with one series twice is no page."""
    twins: list[Entry] = [replace(found, pod="same") for found in ENTRIES[:2]]

    of_pods: list[SchedulerSample] = [
        s for s in samples_of(busy(), twins, factor=1) if len(s.labels) == 3
    ]

    assert [(s.labels[2], s.value) for s in of_pods] == [("same", 7000), ("same", 75)]
