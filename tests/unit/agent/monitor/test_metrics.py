"""What a scrape gets: names, units and labels as promised, and nothing that is not known."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from agent.driver.driver import Fault, Instance, MigMode, Usage
from agent.monitor.drift import HardwareDrift
from agent.monitor.metric_names import OLD, OURS, MetricFamily
from agent.monitor.metrics import AgentMetrics
from agent.monitor.samples import MeasuredUse, MonitorSnapshot
from agent.monitor.violation import LocalPod, Violation, ViolationKind
from agent.share import Owner, Share
from allocator.ledger.drift import DriftKind as Differs
from allocator.model.allocation import Grant
from allocator.model.request import Stage
from allocator.model.units import MiB
from tests.builders.model import A100_40, device, mig_grant, placed, soft_grant
from tests.harness.mig_agent import Desk

SOFT, CUT, MPS = "GPU-soft", "GPU-cut", "GPU-mps"
PLAIN = replace(device(), uuid=SOFT)
IN_MPS = replace(device(index=2), uuid=MPS)
IN_MIG = replace(
    device(A100_40, index=1, mig=MigMode(current=True, pending=True)), uuid=CUT, memory=MiB(40960)
)


def share(name: str, *grants: Grant) -> Share:
    owner = Owner(uid=f"uid-{name}", namespace="team-a", pod=name, containers=("main",))
    return Share(owner=owner, grants=grants, key="c0")


def snapshot_of(
    *shares: Share, measured: Mapping[tuple[str, str, str], MeasuredUse]
) -> MonitorSnapshot:
    return MonitorSnapshot(
        node="gpu-1",
        now=1_790_000_030.0,
        devices=(PLAIN, IN_MIG, IN_MPS),
        shares=shares,
        instances=(
            Instance(gpu=CUT, id=1, profile=19, start=0, compute=0, uuid="MIG-a"),
            Instance(gpu=CUT, id=2, profile=14, start=2, compute=0, uuid="MIG-b"),
            Instance(gpu=CUT, id=3, profile=19, start=6),
        ),
        usage={SOFT: Usage(memory=MiB(4000), utilization=37)},
        foreign={SOFT: MiB(700)},
        reached={},
        unhealthy={CUT: "Xid 79: it has been silent for 12 s"},
        stuck={CUT: 1},
        measured=measured,
        violations=(),
        drifts=(),
        held_back=frozenset(),
        faults=0,
        mps_clients={MPS: 3},
    )


WORKING = share("train-0", soft_grant(8192, 30, gpu=SOFT))
WAITING = share("train-1", soft_grant(4096, gpu=SOFT))
CUT_OUT = share("tune-0", mig_grant("1g.5gb", 0, gpu=CUT))
MISSING = share("tune-1", mig_grant("1g.5gb", 1, gpu=CUT))
BUSY = snapshot_of(
    *(WORKING, WAITING, CUT_OUT, MISSING),
    measured=MappingProxyType(
        {
            ("uid-train-0", "main", SOFT): MeasuredUse(
                memory=3 << 30, host=4 << 30, cores=37, last_kernel=1_790_000_000
            ),
            ("uid-tune-0", "main", CUT): MeasuredUse(memory=1 << 30, host=1 << 30),
        }
    ),
)
WRONG = replace(
    BUSY,
    violations=(
        Violation(
            kind=ViolationKind.MEMORY,
            pod=LocalPod(uid="uid-train-0", namespace="team-a", name="train-0"),
            container="main",
            gpu=SOFT,
            note="uses 9000 of 8192 MiB",
        ),
    ),
    drifts=(
        HardwareDrift(kind=Differs.MISSING, gpu=CUT, what="pod is promised what is not there"),
    ),
    held_back=frozenset({("uid-train-1", "main")}),
    faults=2,
)


def exposition(snapshot: MonitorSnapshot | None, *, old: bool = True) -> str:
    metrics = AgentMetrics(
        version="0.1.0", snapshot=lambda: snapshot, hung=lambda: 0.0, old=lambda: old
    )
    kind, body = metrics.exposition()
    assert kind.startswith("text/plain")
    assert b"_created" not in body
    return body.decode()


def test_a_scrape_reads_as_ever(golden: Callable[[str, str], str]) -> None:
    """Names, texts, labels and units are public API."""
    text = exposition(WRONG)

    assert text == golden("agent-metrics.txt", text)


def test_a_promise_is_there_before_anything_runs() -> None:
    """Its limit is known since the bind; what it uses is not, and is not 0 either."""
    text = exposition(BUSY)
    lines = [line for line in text.splitlines() if "train-1" in line]

    assert sorted(line.partition("{")[0] for line in lines) == [
        "vGPU_device_memory_limit_in_bytes",
        "vgpu_container_memory_limit_bytes",
    ]


def test_what_no_driver_tells_is_absent() -> None:
    """A silent GPU keeps its promises and loses its measurements."""
    silent = replace(BUSY, usage={}, foreign={}, measured={})
    gone = {line.partition("{")[0] for line in exposition(BUSY).splitlines()} - {
        line.partition("{")[0] for line in exposition(silent).splitlines()
    }

    assert {name for name in gone if not name.startswith("#")} == {
        "HostGPUMemoryUsage",
        "HostCoreUtilization",
        "vGPU_device_memory_usage_in_bytes",
        "Device_memory_desc_of_container",
        "Device_utilization_desc_of_container",
        "Device_last_kernel_of_container",
        "vgpu_container_cores_used_ratio",
        "vgpu_container_host_memory_bytes",
        "vgpu_container_last_kernel_timestamp_seconds",
        "vgpu_container_memory_used_bytes",
        "vgpu_device_cores_used_ratio",
        "vgpu_device_foreign_memory_bytes",
        "vgpu_device_memory_used_bytes",
    }


def test_old_names_can_be_left_out() -> None:
    """A site that has moved its dashboards pays for one set of series."""
    text = exposition(BUSY, old=False)

    assert [family.name for family in OLD if family.name in text] == []


def test_before_the_first_look_counters_are_there() -> None:
    """An increase from nothing would not be seen."""
    text = exposition(None)

    assert 'vgpu_isolation_violations_total{kind="memory"} 0.0' in text
    assert "vgpu_evictions_total 0.0" in text
    assert "vgpu_driver_hung_seconds 0.0" in text
    assert 'vgpu_mig_reconfigurations_total{outcome="failed"} 0.0' in text
    assert "vgpu_device" not in text


def test_no_labels_come_twice() -> None:
    """A pod that follows one of its name, two grants on one GPU, a GPU that is gone."""
    twice = share("train-0", soft_grant(1, gpu=SOFT), soft_grant(2, gpu=SOFT))
    (wrong,) = WRONG.violations
    after = replace(wrong, pod=replace(wrong.pod, uid="uid-of-its-successor"))
    gone = replace(PLAIN, uuid="GPU-gone")  # whose index the driver has given to another
    crowded = replace(
        WRONG,
        shares=(WORKING, twice),
        violations=(wrong, after),
        devices=(*WRONG.devices, gone),
    )
    series = [
        line.rpartition(" ")[0] for line in exposition(crowded).splitlines() if line[0] != "#"
    ]

    assert len(series) == len(set(series))
    assert 'vgpu_device_memory_bytes{device="GPU-gone",node="gpu-1"}' in series


def test_hostile_names_stay_in_their_labels() -> None:
    """A name with quotes and line ends makes no series of its own."""
    sly = share('a"} 1\nvgpu_evil{x="', soft_grant(1, gpu=SOFT))
    text = exposition(snapshot_of(sly, measured={}))

    assert [line for line in text.splitlines() if line.startswith("vgpu_evil")] == []


def test_each_attempt_to_cut_a_gpu_counts(tmp_path: Path) -> None:
    """One that failed and the one that made up for it."""
    metrics = AgentMetrics(
        version="0.1.0", snapshot=lambda: None, hung=lambda: 0.0, old=lambda: False
    )
    desk = Desk(tmp_path)
    desk.tools = replace(desk.tools, count_outcome=metrics.count_reconfiguration)
    desk.restart()
    desk.faults.at["create_instance", 1] = Fault.OTHER

    async def story() -> None:
        await desk.settle(placed("1g.5gb", 0))
        await desk.again()

    asyncio.run(story())

    text = metrics.exposition()[1].decode()
    assert 'vgpu_mig_reconfigurations_total{outcome="failed"} 1.0' in text
    assert 'vgpu_mig_reconfigurations_total{outcome="done"} 1.0' in text


@pytest.mark.parametrize("family", OURS, ids=lambda family: family.name)
def test_our_names_say_their_unit(family: MetricFamily) -> None:
    """As promtool wants it: our prefix, base units, lower case, a help text with a stop."""
    assert re.fullmatch(r"vgpu_[a-z_]+", family.name)
    assert family.about.endswith(".")
    assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
    for word, unit in (("memory", "_bytes"), ("cores", "_ratio"), ("timestamp", "_seconds")):
        assert word not in family.name or family.name.endswith(unit)


def test_a_scrape_is_well_formed() -> None:
    """Each name has HELP and TYPE before its samples, together in one place."""
    seen: list[str] = []
    declared: dict[str, set[str]] = {}
    for line in exposition(WRONG).splitlines():
        if line.startswith("#"):
            word, name = line.split()[1:3]
            declared.setdefault(name, set()).add(word)
            continue
        name = re.split(r"[{ ]", line)[0]
        if name not in declared:
            name = re.sub("_(bucket|count|sum)$", "", name)  # of a histogram
        assert declared[name] == {"HELP", "TYPE"}
        if not seen or seen[-1] != name:
            assert name not in seen
            seen.append(name)

    assert {family.name for family in OURS} <= set(seen)


def test_shares_of_containers_that_take_turns_count_once() -> None:
    """As the ledger counts them, or a GPU would look fuller than it can be."""
    owner = replace(WORKING.owner, containers=("init",))
    first = replace(WORKING, owner=owner, stage=Stage.INIT)

    text = exposition(snapshot_of(first, WORKING, measured={}))

    memory = re.search(r'vgpu_device_memory_promised_bytes\{device="0",node="gpu-1"\} (.*)', text)
    assert memory is not None
    assert float(memory[1]) == 8192 * 1024**2


def test_shares_of_one_gpu_add_up() -> None:
    """What the ledger promised, in bytes and as a share of compute."""
    text = exposition(snapshot_of(WORKING, WAITING, measured={}))
    place = r'\{device="0",node="gpu-1"\} (.*)'
    memory = re.search(f"vgpu_device_memory_promised_bytes{place}", text)
    cores = re.search(f"vgpu_device_cores_promised_ratio{place}", text)

    assert memory is not None
    assert float(memory[1]) == (8192 + 4096) * 1024**2
    assert cores is not None
    assert float(cores[1]) == 0.3
