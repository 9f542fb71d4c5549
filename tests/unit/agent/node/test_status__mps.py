"""The mode of a GPU on a node that is to be in mode mps."""

from dataclasses import replace

import pytest

from agent.driver.driver import Device, MigMode
from agent.node.status import UNDIVIDED, UNFOLLOWED, Hardware, served_gpus, wants_mps
from allocator.config.device_config import DeviceConfig, NodeConfig
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Grant
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from allocator.placement.fit import hardware as hardware_mode
from tests.builders import model as builders
from tests.builders.gpunodes import ledger
from tests.builders.model import A100_40, mig_grant

TO_BE_MPS = NodeConfig(name="n", mode=Mode.MPS)
ON, OFF = MigMode(current=True, pending=True), MigMode(current=False, pending=False)
TO_BE_SOFT = NodeConfig(name="n", mode=Mode.HAMI_CORE)
TO_BE_CUT = NodeConfig(name="n", mode=Mode.MIG)


def device(mig: MigMode | None = None, *, mps: bool = True) -> Device:
    return replace(builders.device(A100_40, mig=mig), mps=mps)


def served(
    found: Device, node: NodeConfig | None = TO_BE_MPS, *, before: Ledger | None = None
) -> tuple[Mode, bool, str]:
    hardware = Hardware(devices=(found,), cuda="12.8")
    (one,) = served_gpus(hardware, DeviceConfig(), node, before=before)
    return one.gpu.mode, one.gpu.healthy, one.reason


def promised(mode: Mode) -> Ledger:
    """Return the ledger of a node on whose GPU a pod in *mode* has an entry."""
    grant = Grant(gpu="GPU-0", mode=mode, memory=MiB(1000), cores=CorePercent(0))
    if mode is Mode.MIG:
        grant = mig_grant("1g.5gb", 0)
    gpu = builders.gpu(mode=hardware_mode(mode), grants=[grant])
    known = ledger(Node(name="n", gpus=(gpu,), fresh=True))
    return replace(known, node=replace(known.node, gpus=(gpu,)))


@pytest.mark.parametrize(
    ("found", "node", "mode", "healthy"),
    [
        pytest.param(device(), TO_BE_MPS, Mode.MPS, True, id="as-configured"),
        pytest.param(device(), TO_BE_SOFT, Mode.HAMI_CORE, True, id="as-not-configured"),
        pytest.param(device(), None, Mode.HAMI_CORE, True, id="unlisted"),
        pytest.param(device(mps=False), TO_BE_MPS, Mode.HAMI_CORE, False, id="older-than-volta"),
        pytest.param(device(OFF), TO_BE_MPS, Mode.MPS, True, id="could-be-cut"),
        pytest.param(device(ON), TO_BE_MPS, Mode.MIG, False, id="is-cut"),
    ],
)
def test_a_gpu_is_in_the_mode_only_where_its_node_says_so(
    found: Device, node: NodeConfig | None, mode: Mode, *, healthy: bool
) -> None:
    """One that cannot be takes no new pods, and says why."""
    served_mode, is_healthy, reason = served(found, node)

    assert (served_mode, is_healthy) == (mode, healthy)
    assert bool(reason) is not healthy


ITS_UUID, ITS_INDEX = frozenset({"GPU-0"}), frozenset({0})


@pytest.mark.parametrize(
    ("found", "node", "mode", "healthy"),
    [
        pytest.param(
            device(), replace(TO_BE_SOFT, mps_uuids=ITS_UUID), Mode.MPS, True, id="by-uuid"
        ),
        pytest.param(
            device(), replace(TO_BE_SOFT, mps_indexes=ITS_INDEX), Mode.MPS, True, id="by-index"
        ),
        pytest.param(
            device(), replace(TO_BE_SOFT, mps_indexes=frozenset({1})), Mode.HAMI_CORE, True, id="no"
        ),
        pytest.param(
            device(OFF), replace(TO_BE_CUT, mps_uuids=ITS_UUID), Mode.MPS, True, id="beside-mig"
        ),
        pytest.param(
            device(ON), replace(TO_BE_CUT, mps_uuids=ITS_UUID), Mode.MIG, False, id="is-cut"
        ),
        pytest.param(
            device(mps=False),
            replace(TO_BE_SOFT, mps_indexes=ITS_INDEX),
            Mode.HAMI_CORE,
            False,
            id="older-than-volta",
        ),
    ],
)
def test_one_gpu_of_a_node_may_be_in_the_mode(
    found: Device, node: NodeConfig, mode: Mode, *, healthy: bool
) -> None:
    """The others keep the mode of the node; where this one cannot be, the reason names the key."""
    served_mode, is_healthy, reason = served(found, node)

    assert (served_mode, is_healthy) == (mode, healthy)
    assert reason.startswith("mpsdevices names it for mode mps") is not healthy
    assert wants_mps(found, node) is (mode is Mode.MPS)


def test_a_gpu_that_the_node_filters_out_is_not_in_the_mode() -> None:
    """Whoever else serves it must not meet a daemon of ours."""
    node = replace(TO_BE_SOFT, mps_indexes=ITS_INDEX, excluded_uuids=ITS_UUID)

    assert not wants_mps(device(), node)


@pytest.mark.parametrize(
    ("held", "node", "mode"),
    [
        (Mode.HAMI_CORE, TO_BE_MPS, Mode.HAMI_CORE),
        (Mode.MEMORY_ONLY, TO_BE_MPS, Mode.HAMI_CORE),
        (Mode.MPS, TO_BE_SOFT, Mode.MPS),
        (Mode.MPS, None, Mode.MPS),
    ],
)
def test_a_gpu_keeps_its_mode_until_its_last_entry_has_ended(
    held: Mode, node: NodeConfig | None, mode: Mode
) -> None:
    """Nobody new comes meanwhile, and no pod finds itself on a GPU of another mode."""
    served_mode, is_healthy, reason = served(device(), node, before=promised(held))

    assert (served_mode, is_healthy) == (mode, False)
    assert f"pods in mode {mode} have yet to end on it" in reason


def test_a_gpu_with_instances_promised_takes_nobody_in_the_mode() -> None:
    """Its MIG mode is off, for example since a reboot, but a pod still waits for its instance."""
    _, is_healthy, reason = served(device(OFF), before=promised(Mode.MIG))

    assert not is_healthy
    assert "MIG instances are promised" in reason


@pytest.mark.parametrize(
    ("cuda", "seen", "split", "slots"),
    [("12.8", 0, 200, 48), ("13.1", 0, 200, 60), ("12.8", 55, 200, 55), ("13.1", 0, 10, 10)],
)
def test_no_more_pods_share_a_gpu_than_the_driver_takes(
    cuda: str, seen: int, split: int, *, slots: int
) -> None:
    """The pod beyond that would be bound, and its processes would fail."""
    hardware = Hardware(devices=(device(),), cuda=cuda, mps_clients=seen)
    node = replace(TO_BE_MPS, split_count=split)
    (one,) = served_gpus(hardware, DeviceConfig(), node, before=None)

    assert one.gpu.slots == slots
    full = replace(hardware, mps_limits={"GPU-0": 8})
    (few,) = served_gpus(full, DeviceConfig(), node, before=None)
    assert few.gpu.slots == 8
    (soft,) = served_gpus(full, DeviceConfig(), replace(node, mode=Mode.HAMI_CORE), before=None)
    assert soft.gpu.slots == split


def test_a_gpu_whose_daemon_nobody_looks_after_takes_no_pod() -> None:
    """It is so for a moment after the start; kubelet fails a pod for good that comes then."""
    hardware = Hardware(devices=(device(),), mps_followed=frozenset())
    (early,) = served_gpus(hardware, DeviceConfig(), TO_BE_MPS, before=None)
    assert (early.gpu.mode, early.gpu.healthy, early.reason) == (Mode.MPS, False, UNFOLLOWED)

    shared = replace(TO_BE_MPS, mode=Mode.HAMI_CORE)
    (other,) = served_gpus(hardware, DeviceConfig(), shared, before=None)
    assert other.gpu.healthy

    followed = replace(hardware, mps_followed=frozenset({"GPU-0"}))
    (later,) = served_gpus(followed, DeviceConfig(), TO_BE_MPS, before=None)
    assert later.gpu.healthy


STATIC = replace(TO_BE_MPS, static=True)


def static_gpu(
    node: NodeConfig | None, *, before: Ledger | None = None, **told: object
) -> tuple[int, int, str]:
    """Return chunks and their size as reported, and why the GPU takes nobody."""
    found = replace(device(), capability=(8, 0))
    hardware = replace(Hardware(devices=(found,), cuda="13.1"), **told)  # type: ignore[arg-type]
    (one,) = served_gpus(hardware, DeviceConfig(), node, before=before)
    return one.gpu.chunks, one.gpu.chunk_sms, one.reason


def divided(known: Ledger, chunks: int) -> Ledger:
    """Return *known* with its GPU divided."""
    (gpu,) = known.node.gpus
    return replace(known, node=replace(known.node, gpus=(replace(gpu, chunks=chunks),)))


def test_a_gpu_is_divided_as_its_daemon_says() -> None:
    """Before that nobody gets it: nobody knows how much fits."""
    assert static_gpu(STATIC, mps_chunks={"GPU-0": 27}) == (27, 4, "")
    assert static_gpu(STATIC) == (0, 0, UNDIVIDED)
    assert static_gpu(TO_BE_MPS, mps_chunks={"GPU-0": 27}) == (0, 0, "")
    assert static_gpu(replace(TO_BE_SOFT, static=True), mps_chunks={"GPU-0": 27}) == (0, 0, "")


@pytest.mark.parametrize(("chunks", "slots"), [(7, 7), (27, 10)])
def test_no_more_containers_share_a_gpu_than_it_has_chunks(chunks: int, slots: int) -> None:
    """Each takes one at least, also where its owner allows more containers."""
    found = replace(device(), capability=(8, 0))
    hardware = Hardware(devices=(found,), cuda="13.1", mps_chunks={"GPU-0": chunks})
    (one,) = served_gpus(hardware, DeviceConfig(), STATIC, before=None)

    assert one.gpu.slots == slots


def test_a_gpu_stays_divided_while_its_agent_is_new() -> None:
    """Its pods go on counting as the chunks that they have."""
    known = divided(promised(Mode.MPS), 27)
    assert static_gpu(STATIC, before=known) == (27, 4, "")


@pytest.mark.parametrize(
    ("node", "chunks"), [(STATIC, 0), (TO_BE_MPS, 27), (TO_BE_SOFT, 27), (None, 27)]
)
def test_a_gpu_keeps_its_partitioning_until_its_last_entry_has_ended(
    node: NodeConfig | None, chunks: int
) -> None:
    """Shares are counted in one way at a time, and nobody new comes meanwhile."""
    known = divided(promised(Mode.MPS), chunks)
    reported, _, reason = static_gpu(node, before=known, mps_chunks={"GPU-0": 27})

    assert reported == chunks
    assert "have yet to end on it" in reason
