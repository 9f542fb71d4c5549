"""Every reason that keeps a node closed has a sentence, and an open node has none."""

import itertools
from dataclasses import replace

import pytest

from allocator.ledger.closed import (
    NO_NODE,
    closed_reason,
    stale_reason,
    withdrawn_resources,
)
from allocator.ledger.ledger import LONGEST_STATED, Ledger, parse_ledger
from allocator.ledger.lifecycle import NodeIdentity, status_is_current
from tests.builders.gpunodes import gpu_node, ledger
from tests.builders.model import T4, node, nodes_of

OPEN = ledger(nodes_of(1, T4), nodeUID="u", driver="570.1")
MACHINE = NodeIdentity(name="n0", uid="u", boot="boot-1", agent=True)
SILENT = replace(OPEN, inventory="", stated="")


@pytest.mark.parametrize(
    ("stored", "machine", "words"),
    [
        pytest.param(OPEN, MACHINE, "", id="open"),
        pytest.param(OPEN, None, NO_NODE, id="gone"),
        pytest.param(SILENT, None, NO_NODE, id="gone-and-closed"),
        pytest.param(
            replace(OPEN, deleting=True), MACHINE, "its GPUNode is being deleted", id="deleted"
        ),
        pytest.param(
            SILENT, MACHINE, "its agent is starting, stopping or being replaced", id="silent"
        ),
        pytest.param(replace(SILENT, stated="why"), MACHINE, "why", id="closed-by-its-agent"),
        pytest.param(replace(OPEN, stated="why"), MACHINE, "why", id="no-gpu-can-be-used"),
        pytest.param(
            OPEN,
            replace(MACHINE, boot="boot-2"),
            'its GPUs were reported in the boot "boot-1", but its Node is in the boot "boot-2"',
            id="another-boot",
        ),
        pytest.param(
            OPEN,
            replace(MACHINE, uid="v"),
            "its GPUs were reported before its Node was created anew",
            id="another-node",
        ),
        pytest.param(
            replace(OPEN, driver="upstream"),
            MACHINE,
            "its GPUs were registered by another device plugin, and no agent has reported them",
            id="another-plugin",
        ),
        pytest.param(
            ledger(node("n0")), MACHINE, "its agent has not reported its GPUs yet", id="no-gpus"
        ),
    ],
)
def test_a_closed_node_says_why(stored: Ledger, machine: NodeIdentity | None, words: str) -> None:
    assert closed_reason(stored, machine, upstream=False) == words


def test_a_node_without_a_device_plugin_says_so_unless_it_says_more() -> None:
    """Kubelet keeps the resource at 0 when its plugin has ended; other resources do not count."""
    gone = replace(MACHINE, withdrawn=frozenset({"volcano.sh/vgpu-number"}))

    assert "kubelet has no volcano.sh/vgpu-number" in closed_reason(OPEN, gone, upstream=False)
    assert closed_reason(OPEN, gone, upstream=False, slot="acme.com/gpu") == ""
    assert closed_reason(SILENT, gone, upstream=False).startswith("its agent is starting")


@pytest.mark.parametrize(
    ("allocatable", "expected"),
    [
        ({"volcano.sh/vgpu-number": "0", "cpu": "0"}, {"volcano.sh/vgpu-number"}),
        ({"volcano.sh/vgpu-number": "40", "memory": "0"}, set()),
        ({"volcano.sh/vgpu-number": "00", "a/b": "0k", "": "0"}, set()),
        ({}, set()),
    ],
)
def test_extended_resources_at_zero(allocatable: dict[str, str], expected: set[str]) -> None:
    """As kubelet writes it, and no other spelling."""
    assert withdrawn_resources(allocatable) == expected


def test_a_reason_is_given_exactly_where_a_commit_would_fail() -> None:
    """The sentence and the rule of the commits agree, whatever is compared."""
    values = ("", "a", "b")
    for parts in itertools.product(values, values, values, values, ("570.1", "upstream"), (0, 1)):
        node_uid, boot, uid, reported, driver, upstream = parts
        stored = replace(OPEN, node_uid=node_uid, boot=boot, driver=driver)
        machine = NodeIdentity(name="n0", uid=uid, boot=reported)
        current = status_is_current(stored, node_uid=uid, boot=reported, upstream=bool(upstream))

        assert (stale_reason(stored, machine, upstream=bool(upstream)) == "") is current


@pytest.mark.parametrize(
    "text",
    ["a\x1b[31m", "a\nb", "\u202eabc", "x" * 10_000, "\x00", "\x7f", "\u2028", "", "é", "ok"],
)
def test_what_an_agent_states_is_shown_safely(text: str) -> None:
    """It may be hostile, and reaches terminals and answers to schedulers."""
    stated = parse_ledger(gpu_node(nodes_of(1, T4), closed=text)).stated

    assert stated.isprintable()
    assert len(stated) <= LONGEST_STATED
