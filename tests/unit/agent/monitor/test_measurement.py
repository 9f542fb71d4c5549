"""Measurement: whose a process is, and what is not known where nobody can say."""

from types import MappingProxyType

from agent.monitor.measurement import measure_shares
from agent.monitor.samples import MeasuredUse
from agent.monitor.violation import LocalPod
from agent.node.cgroup import PodCgroup
from tests.builders.model import soft_grant
from tests.unit.agent.monitor.test_violation import (
    MAIN,
    POD,
    SIDE,
    located_process,
    observed,
    share,
)

BOTH = (share(soft_grant(8000)), share(soft_grant(4000), container="side"))
HALF_TOLD = LocalPod(
    uid="u1",
    namespace="team-a",
    name="train-0",
    containers=MappingProxyType({MAIN: "main"}),
)


def host_memory(pod: LocalPod) -> dict[str, int | None]:
    """Return the driver's bytes by container of a pod, each of which has a process."""
    looked_at = observed(
        located_process(1), located_process(2, cgroup=PodCgroup("u1", SIDE)), shares=BOTH, pod=pod
    )
    measured = measure_shares(looked_at, (), answered={"GPU-0"})
    return {container: one.host for (_, container, _), one in measured.items()}


def test_each_process_counts_for_its_container() -> None:
    """As the control groups tell them apart."""
    assert host_memory(POD) == {"main": 1 << 20, "side": 2 << 20}


def test_where_a_process_may_be_anybodys_nothing_is_known_of_the_pod() -> None:
    """The API server has not told all containers' ids yet: a 0 would say that it was measured."""
    assert host_memory(HALF_TOLD) == {"main": None, "side": None}


def test_a_silent_gpu_leaves_what_it_holds_unknown() -> None:
    """While one that answers, and lists nobody, holds nothing of anybody."""
    looked_at = observed(shares=(share(soft_grant(1), soft_grant(1, gpu="GPU-1")),))
    measured = measure_shares(looked_at, (), answered={"GPU-0"})

    assert measured["u1", "main", "GPU-0"] == MeasuredUse(host=0, cores=0)
    assert measured["u1", "main", "GPU-1"] == MeasuredUse()
