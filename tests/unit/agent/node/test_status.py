"""What an agent says of its node is read back as it was meant, and only changes when it matters."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.driver.driver import Device, MigMode
from agent.node.status import (
    MEMORY_STEP,
    Hardware,
    Identity,
    NodeAccount,
    RealisedInstance,
    awaits_admission,
    document,
    model_label,
    rounded_memory,
    served_gpus,
)
from allocator.config.device_config import DeviceConfig, NodeConfig
from allocator.ledger.decode import decode
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import MiB
from manifests.generator.gpunode import gpunode
from tests.builders import model as builders
from tests.builders.gpunodes import NOON, entry, ledger
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.builders.model import A100_40, T4, mig_grant, placed, soft_grant

IDENTITY = Identity(name="n", uid="node-1", boot="boot-1")
ON, OFF = MigMode(current=True, pending=True), MigMode(current=False, pending=False)


def device(product: str = A100_40, index: int = 0, mig: MigMode | None = None) -> Device:
    known = builders.device(product, index=index, mig=mig)
    return replace(known, links=("GPU-9",), link_counts=(2,), switch="0000:f0:00.0")


def status_of(
    hardware: Hardware, *, node: NodeConfig | None = None, before: Ledger | None = None
) -> dict[str, Any]:
    gpus = served_gpus(hardware, DeviceConfig(), node, before=before)
    return document(
        NodeAccount(identity=IDENTITY, gpus=gpus, instances=hardware.instances, generation=3)
    )


def ledger_of(status: Mapping[str, object]) -> Ledger:
    return parse_ledger(
        {"metadata": {"name": "n", "uid": "u", "generation": 3}, "spec": {}, "status": status}
    )


def test_the_control_plane_reads_what_the_agent_writes() -> None:
    """GPUs, modes, instances and the identity, without a single problem."""
    small = placed("1g.5gb", 6)
    hardware = Hardware(
        devices=(device(index=1), device(index=0, mig=ON)),
        instances=(RealisedInstance(gpu="GPU-0", placed=small, uuid="MIG-1"),),
    )

    status = status_of(hardware)

    decoded = decode({"metadata": {"name": "n"}, "status": status})
    assert decoded.problems == ()
    first, second = decoded.node.gpus
    assert (first.uuid, first.mode, first.instances) == ("GPU-0", Mode.MIG, (small,))
    assert (second.uuid, second.mode, second.board) == ("GPU-1", Mode.HAMI_CORE, None)
    known = ledger_of(status)
    assert (known.boot, known.node_uid, known.observed_generation) == ("boot-1", "node-1", 3)
    assert known.closed == ""


def test_it_survives_the_way_through_json() -> None:
    """So that what is wanted can be compared with what is stored."""
    status = status_of(Hardware(devices=(device(mig=ON), device(T4, 1))))

    assert json.loads(json.dumps(status)) == status
    assert status["gpus"][0]["pci"] == "0000:00:00.0"
    assert (status["gpus"][0]["links"], status["gpus"][0]["linkCounts"]) == (["GPU-9"], [2])
    assert status["gpus"][0]["switch"] == "0000:f0:00.0"


@pytest.mark.parametrize(
    ("mig", "wanted", "mode", "healthy"),
    [
        pytest.param(ON, None, Mode.MIG, True, id="unlisted-cut"),
        pytest.param(OFF, None, Mode.HAMI_CORE, True, id="unlisted-whole"),
        pytest.param(ON, Mode.MIG, Mode.MIG, True, id="as-configured"),
        pytest.param(ON, Mode.HAMI_CORE, Mode.MIG, False, id="cut-against-the-configuration"),
        pytest.param(OFF, Mode.MIG, Mode.HAMI_CORE, False, id="whole-against-the-configuration"),
        pytest.param(None, Mode.MIG, Mode.HAMI_CORE, True, id="cannot-be-cut"),
    ],
)
def test_the_operating_mode_of_a_node_is_honoured(
    mig: MigMode | None, wanted: Mode | None, mode: Mode, *, healthy: bool
) -> None:
    """A GPU in another mode than configured is closed, and says how to switch it."""
    node = None if wanted is None else NodeConfig(name="n", mode=wanted)

    (gpu,) = status_of(Hardware(devices=(device(mig=mig),)), node=node)["gpus"]

    assert (gpu["mode"], gpu["healthy"]) == (mode, healthy)
    assert ("nvidia-smi" in gpu.get("reason", "")) is not healthy


@pytest.mark.parametrize(
    ("grant", "mig", "reason"),
    [
        pytest.param(mig_grant("1g.5gb", 0), ON, "", id="instances-where-there-can-be"),
        pytest.param(mig_grant("1g.5gb", 0), OFF, "MIG instances are promised", id="mode-lost"),
        pytest.param(soft_grant(1000), OFF, "", id="shares-where-there-can-be"),
        pytest.param(soft_grant(1000), ON, "shares without MIG are promised", id="mode-taken-on"),
    ],
)
def test_a_gpu_has_one_mode_as_long_as_it_is_promised(
    grant: Grant, mig: MigMode, reason: str
) -> None:
    """A GPU whose mode changed under its promises takes no others, and says why."""
    before = ledger_of(status_of(Hardware(devices=(device(mig=ON),))))
    (known,) = before.node.gpus
    promised = replace(before, node=replace(before.node, gpus=(replace(known, grants=(grant,)),)))

    (gpu,) = status_of(Hardware(devices=(device(mig=mig),)), before=promised)["gpus"]

    assert gpu["healthy"] is not bool(reason)
    assert reason in gpu.get("reason", "")


@pytest.mark.parametrize(
    ("split", "mig", "slots"), [(None, None, 10), (4, None, 4), (4, ON, 7), (None, ON, 7)]
)
def test_as_many_may_share_a_gpu_as_the_site_says(
    split: int | None, mig: MigMode | None, slots: int
) -> None:
    """Except where instances do: a board takes as many as it takes."""
    node = NodeConfig(name="n", mode=Mode.MIG if mig else Mode.HAMI_CORE, split_count=split)

    (gpu,) = status_of(Hardware(devices=(device(mig=mig),)), node=node)["gpus"]

    assert gpu["slots"] == slots


def test_where_a_node_is_to_be_cut_a_reboot_closes_no_hopper() -> None:
    """It is switched on for the first promise; closed, it would never get one."""
    there = replace(device(mig=OFF), ampere_or_older=False)

    (gpu,) = status_of(Hardware(devices=(there,)), node=NodeConfig(name="n", mode=Mode.MIG))["gpus"]

    assert (gpu["mode"], gpu["healthy"]) == (Mode.MIG, True)


def test_a_gpu_that_is_filtered_out_is_nobodys() -> None:
    """By UUID or by index."""
    node = NodeConfig(
        name="n", excluded_uuids=frozenset({"GPU-0"}), excluded_indexes=frozenset({2})
    )
    hardware = Hardware(devices=tuple(device(T4, i) for i in range(4)))

    gpus = status_of(hardware, node=node)["gpus"]

    assert [gpu["uuid"] for gpu in gpus] == ["GPU-1", "GPU-3"]


def test_a_sick_gpu_stays_with_its_reason() -> None:
    """Its promises have to be seen; nothing more is promised on it."""
    (gpu,) = status_of(Hardware(devices=(device(T4),), unhealthy={"GPU-0": "Xid 79"}))["gpus"]

    assert (gpu["healthy"], gpu["reason"]) == (False, "Xid 79")


def test_a_gpu_that_tells_no_memory_spoils_nothing() -> None:
    """The API server would refuse the whole status, and with it every start on the node."""
    without_memory = replace(device(T4), memory=MiB(0))

    (gpu,) = status_of(Hardware(devices=(without_memory,)))["gpus"]

    assert (gpu["memoryMiB"], gpu["healthy"]) == (1, False)


def test_a_board_that_nobody_knows_closes_the_gpu() -> None:
    """Rather than an object that cannot be read."""
    strange = replace(device(mig=ON), model="NVIDIA Unheard-of", board=None)

    status = status_of(Hardware(devices=(strange,)))

    assert decode({"metadata": {"name": "n"}, "status": status}).problems == ()
    assert status["gpus"][0]["healthy"] is False


def test_who_leaves_takes_no_commit_any_more() -> None:
    """A commit tests the inventory."""
    gpus = served_gpus(Hardware(devices=(device(T4),)), DeviceConfig(), None, before=None)

    status = document(NodeAccount(identity=IDENTITY, gpus=gpus, no_inventory="it leaves"))

    assert ledger_of(status).closed


@pytest.mark.parametrize(
    ("age", "held", "awaits"),
    [
        pytest.param(0, (), True, id="just-bound"),
        pytest.param(3.9, (), True, id="on-its-way"),
        pytest.param(4, (), False, id="decided"),
        pytest.param(0, ("p",), False, id="started"),
        pytest.param(0, ("q",), True, id="another-started"),
        pytest.param(-3600, (), True, id="clock-behind"),
    ],
)
def test_an_agent_waits_for_pods_on_their_way(
    age: float, held: tuple[str, ...], awaits: bool
) -> None:
    """Kubelet has admitted a pod that is held, and has decided about one that is old enough."""
    told = ledger(builders.node("n", builders.gpu(T4)), [entry("p")], held=held)

    assert awaits_admission(told, NOON + timedelta(seconds=age)) is awaits


def test_where_something_unknown_runs_nothing_is_promised() -> None:
    """Doubt costs capacity, not safety; and the reason is told of every GPU."""
    gpus = served_gpus(
        Hardware(devices=(device(T4), device(T4, 1))), DeviceConfig(), None, before=None
    )

    status: dict[str, Any] = document(NodeAccount(identity=IDENTITY, gpus=gpus, closed="why not"))

    assert [(g["healthy"], g["reason"]) for g in status["gpus"]] == [(False, "why not")] * 2


def _closed(*devices: Device, node: NodeConfig | None = None, **account: object) -> object:
    gpus = served_gpus(Hardware(devices=devices), DeviceConfig(), node, before=None)
    account_of_node: Any = {"identity": IDENTITY, "gpus": gpus, **account}
    return document(NodeAccount(**account_of_node)).get("closed")


@pytest.mark.parametrize(
    "why", ["", "any container may", "é" * 300, "a\nb", "\x1b[31m", "x" * 5000]
)
def test_an_exposed_node_says_why(why: str) -> None:
    """In a field of its own, as the schema accepts it; nothing else of the status changes."""
    gpus = served_gpus(Hardware(devices=(device(T4),)), DeviceConfig(), None, before=None)
    plain = document(NodeAccount(identity=IDENTITY, gpus=gpus))

    status: dict[str, Any] = document(NodeAccount(identity=IDENTITY, gpus=gpus, exposed=why))

    said = status.pop("exposed", "")
    assert status == plain
    assert bool(said) is bool(why)
    assert re.fullmatch("[ -~]{0,256}", said)


def test_a_node_none_of_whose_gpus_can_be_used_says_why() -> None:
    """One line for the node, where a reader of GPUNodes looks first."""
    mixed = NodeConfig(name="n", mode=Mode.MIG)
    ready, wrong = device(mig=ON), device(index=1, mig=OFF)

    assert _closed(ready) is None
    assert _closed(ready, wrong, node=mixed) is None
    assert str(_closed(wrong, node=mixed)).startswith("operatingmode is mig, but MIG is off")
    assert _closed(ready, closed="another plugin") == "another plugin"
    assert _closed() == "its agent has found no GPU"
    assert _closed(ready, no_inventory="it leaves") == "it leaves"
    assert _closed(no_inventory="it leaves", closed="another plugin") == "it leaves"


@pytest.mark.parametrize("why", ["é" * 300, "a\nb", "\x1b[31m", "\u202e", "x" * 5000])
def test_what_closes_a_node_is_accepted_by_the_schema(why: str) -> None:
    """It wants printable ASCII, and refuses the whole status otherwise."""
    pattern = gpunode()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = pattern["properties"]["status"]["properties"]["closed"]
    text = str(_closed(device(), closed=why))

    assert re.fullmatch(rules["pattern"].strip("^$"), text)
    assert len(text) <= rules["maxLength"]


@pytest.mark.parametrize("why", [*HOSTILE_TEXTS.values(), "é" * 300, "x" * 5000])
def test_why_a_gpu_is_not_used_is_accepted_by_the_policy(why: str) -> None:
    """The text of a driver may hold anything."""
    hardware = Hardware(devices=(device(),), unhealthy={"GPU-0": why})
    gpus = served_gpus(hardware, DeviceConfig(), None, before=None)
    written: Any = document(NodeAccount(identity=IDENTITY, gpus=gpus))

    assert re.fullmatch("[ -~]{1,256}", written["gpus"][0]["reason"])


@given(st.lists(st.integers(0, 60_000), min_size=1))
def test_memory_of_others_is_told_in_steps(amounts: list[int]) -> None:
    """Never less than it is, at most two steps more, and not at every change."""
    before = MiB(0)
    for amount in map(MiB, amounts):
        now = rounded_memory(before, amount)
        assert now % MEMORY_STEP == 0
        assert amount <= now < amount + 3 * MEMORY_STEP
        assert rounded_memory(now, amount) == now
        assert (now == 0) == (amount == 0)
        before = now


def test_memory_of_others_does_not_flap() -> None:
    """A process that grows and shrinks by less than a step is told of once."""
    first = rounded_memory(MiB(0), MiB(1000))

    assert {rounded_memory(first, MiB(amount)) for amount in range(700, 1024)} == {first}


@pytest.mark.parametrize(
    ("models", "label"),
    [
        pytest.param([], None, id="none"),
        pytest.param([""], None, id="empty"),
        pytest.param(["Tesla T4", "Tesla T4"], "Tesla-T4", id="one"),
        pytest.param(["Tesla T4", "NVIDIA A30"], "several", id="two"),
        pytest.param(["NVIDIA H100 80GB HBM3"], "NVIDIA-H100-80GB-HBM3", id="spaces"),
        pytest.param(["x" * 500], "x" * 63, id="long"),
        pytest.param(["x" * 62 + " y"], "x" * 62, id="cut-at-a-dash"),
        pytest.param(["../../etc/passwd"], "etc-passwd", id="path"),
        pytest.param(["A\nB: c"], "A-B-c", id="line"),
        pytest.param(["\x00\u202e"], None, id="control"),
        pytest.param(["é GPU"], "GPU", id="letters"),
        pytest.param(["-_."], None, id="marks"),
    ],
)
def test_a_model_becomes_a_label_that_kubernetes_takes(
    models: list[str], label: str | None
) -> None:
    """Whatever a driver calls it; GPUs that differ are not named by one of them."""
    assert model_label(models) == label
