"""Every Node with GPUs has one GPUNode, which outlives it for as long as it promises anything."""

import json
from dataclasses import replace
from typing import Any

import pytest

from allocator.ledger.ledger import Ledger, parse_ledger, parse_ledger_text
from allocator.ledger.lifecycle import GpuNodeAction, NodeIdentity, Step, WriteStatus, due_step
from tests.builders.gpunodes import entry, gpu_node, ledger
from tests.builders.model import T4, nodes_of, soft_grant

NODE = nodes_of(2, T4)
PLAIN = NodeIdentity(name="n0", uid="u", boot="boot-1")
OURS = replace(PLAIN, agent=True)
ANNOUNCED = replace(PLAIN, registered=NODE)
EMPTY = ledger(NODE, nodeUID="u")
PROMISING = ledger(NODE, (entry("a", soft_grant(100, gpu="GPU-n0-0")),), nodeUID="u")
REPORTED = replace(PROMISING, driver="upstream")
UNREAD = replace(EMPTY, entry_uids=("",))  # an entry of somebody's that cannot be read
USED = replace(EMPTY, inventory="", unpromised=PROMISING.entries)  # in use without an entry
BARE = replace(EMPTY, inventory="", boot="", node_uid="")


@pytest.mark.parametrize(
    ("machine", "node_ledger", "step"),
    [
        pytest.param(OURS, None, GpuNodeAction.CREATE, id="agent"),
        pytest.param(ANNOUNCED, None, GpuNodeAction.CREATE, id="register"),
        pytest.param(PLAIN, None, None, id="no-gpus"),
        pytest.param(None, None, None, id="nothing"),
        pytest.param(OURS, BARE, None, id="waits-for-its-agent"),
        pytest.param(OURS, PROMISING, None, id="as-it-should-be"),
        pytest.param(replace(OURS, boot="boot-2"), PROMISING, GpuNodeAction.CLOSE, id="rebooted"),
        pytest.param(replace(OURS, uid="v"), PROMISING, GpuNodeAction.CLOSE, id="joined-anew"),
        pytest.param(OURS, REPORTED, GpuNodeAction.CLOSE, id="served-by-another-before"),
        pytest.param(
            PLAIN, REPORTED, GpuNodeAction.CLOSE, id="served-by-another-before-and-nobody-now"
        ),
        pytest.param(OURS, replace(REPORTED, inventory=""), None, id="shut-already"),
        pytest.param(None, PROMISING, GpuNodeAction.CLOSE, id="gone"),
        pytest.param(None, replace(PROMISING, inventory=""), None, id="gone-and-promising"),
        pytest.param(None, replace(UNREAD, inventory=""), None, id="gone-and-unreadable"),
        pytest.param(None, BARE, GpuNodeAction.DELETE, id="gone-and-empty"),
        pytest.param(PLAIN, BARE, GpuNodeAction.DELETE, id="withdrawn-and-empty"),
        pytest.param(PLAIN, EMPTY, None, id="open-without-a-label"),
        pytest.param(PLAIN, replace(PROMISING, inventory=""), None, id="withdrawn-and-promising"),
        pytest.param(PLAIN, replace(UNREAD, inventory=""), None, id="withdrawn-and-unreadable"),
        pytest.param(PLAIN, USED, None, id="withdrawn-and-in-use"),
        pytest.param(None, USED, None, id="gone-and-in-use"),
        pytest.param(None, replace(BARE, deleting=True), None, id="kept-by-another"),
    ],
)
def test_what_is_due(
    machine: NodeIdentity | None, node_ledger: Ledger | None, step: Step | None
) -> None:
    """A GPUNode comes with its Node, is shut when that changes its identity, and goes last."""
    assert due_step(machine, node_ledger, upstream=False) is step


@pytest.mark.parametrize("machine", [None, PLAIN, OURS], ids=["gone", "withdrawn", "served"])
@pytest.mark.parametrize("kept", [BARE, EMPTY, PROMISING, REPORTED, UNREAD, USED])
@pytest.mark.parametrize("deleting", [False, True])
def test_the_finalizer_of_an_earlier_release_goes_first(
    machine: NodeIdentity | None, kept: Ledger, *, deleting: bool
) -> None:
    """Entries do not keep it: where the product is being uninstalled, nobody is left to wait."""
    found = replace(kept, deleting=deleting, has_former_finalizer=True)

    for upstream in (False, True):
        assert due_step(machine, found, upstream=upstream) is GpuNodeAction.REMOVE_FINALIZER


@pytest.mark.parametrize(
    ("finalizers", "found"),
    [
        pytest.param(["vgpu-admission.io/ledger"], True, id="ours"),
        pytest.param(["a", "vgpu-admission.io/ledger"], True, id="with-another"),
        pytest.param(["vgpu-admission.io/ledgers"], False, id="another"),
        pytest.param([], False, id="empty"),
        pytest.param(None, False, id="null"),
    ],
)
def test_the_finalizer_is_read(finalizers: list[str] | None, *, found: bool) -> None:
    """From a parsed object and from its text."""
    stored = gpu_node(NODE)
    stored["metadata"]["finalizers"] = finalizers

    assert parse_ledger(stored).has_former_finalizer is found
    assert parse_ledger_text(json.dumps(stored).encode())[0].has_former_finalizer is found


def reported(machine: NodeIdentity, node_ledger: Ledger) -> Any:  # noqa: ANN401 -- a status
    step = due_step(machine, node_ledger, upstream=True)
    assert isinstance(step, WriteStatus)
    return step.status


def test_a_register_becomes_a_status() -> None:
    """It carries what a commit tests, and whose it is."""
    status = reported(ANNOUNCED, BARE)

    assert (status["nodeUID"], status["bootID"]) == ("u", "boot-1")
    assert status["driver"] == "upstream"
    assert status["inventory"] == EMPTY.inventory
    assert [gpu["uuid"] for gpu in status["gpus"]] == ["GPU-n0-0", "GPU-n0-1"]


def test_a_status_is_written_on_material_change_only() -> None:
    """A register that says the same costs no write; health, a reboot and a new Node do."""
    ill = replace(NODE, gpus=(replace(NODE.gpus[0], healthy=False), NODE.gpus[1]))

    assert due_step(ANNOUNCED, replace(EMPTY, driver="upstream"), upstream=True) is None
    assert reported(ANNOUNCED, EMPTY)["driver"] == "upstream"
    assert reported(replace(ANNOUNCED, registered=ill), EMPTY)["inventory"] != EMPTY.inventory
    assert reported(replace(ANNOUNCED, boot="boot-2"), EMPTY)["bootID"] == "boot-2"
    assert reported(replace(ANNOUNCED, uid="v"), EMPTY)["nodeUID"] == "v"


def test_a_node_whose_register_went_takes_no_commit() -> None:
    """The plugin that would hand the device to the container is gone."""
    assert due_step(PLAIN, PROMISING, upstream=True) is GpuNodeAction.CLOSE
    assert due_step(PLAIN, replace(PROMISING, inventory=""), upstream=True) is None
