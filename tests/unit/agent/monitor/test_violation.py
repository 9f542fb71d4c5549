"""Violations: found where use and promise differ, and nowhere else."""

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.driver.driver import Instance, Process
from agent.monitor.violation import (
    CONTEXT_ALLOWANCE,
    MOST_CONTEXTS,
    LocalPod,
    LocatedProcess,
    ObservedUse,
    Violation,
    ViolationKind,
    foreign_memory,
    reached_devices,
    violation_changes,
    violations,
)
from agent.node.cgroup import PodCgroup
from agent.share import Owner, Share
from allocator.config.settings import Enforcement
from allocator.model.allocation import Grant
from allocator.model.units import MiB
from tests.builders.model import mig_grant, soft_grant

MAIN, SIDE = "a" * 64, "b" * 64
HOME = PodCgroup("u1", MAIN)
POD = LocalPod(
    uid="u1",
    namespace="team-a",
    name="train-0",
    containers=MappingProxyType({MAIN: "main", SIDE: "side"}),
)
INSTANCES = (
    Instance(gpu="GPU-0", id=1, profile=19, start=0, compute=0, uuid="MIG-own"),
    Instance(gpu="GPU-0", id=2, profile=19, start=1, compute=0, uuid="MIG-other"),
)


def share(*grants: Grant, uid: str = "u1", container: str = "main") -> Share:
    owner = Owner(uid=uid, namespace="team-a", pod="train-0", containers=(container,))
    return Share(owner=owner, grants=grants, key="c0")


def located_process(
    memory: int | None = 1000,
    *,
    gpu: str = "GPU-0",
    instance: str | None = None,
    cgroup: PodCgroup | None = HOME,
) -> LocatedProcess:
    amount = None if memory is None else MiB(memory)
    return LocatedProcess(Process(pid=7, gpu=gpu, memory=amount, instance=instance), cgroup)


def observed(
    *processes: LocatedProcess, shares: tuple[Share, ...] = (), pod: LocalPod = POD
) -> ObservedUse:
    return ObservedUse(processes=processes, shares=shares, pods={pod.uid: pod}, instances=INSTANCES)


def violation_kinds(observed_use: ObservedUse) -> list[ViolationKind]:
    return [violation.kind for violation in violations(observed_use)]


SOFT = (share(soft_grant(8000)),)
OWN = (share(mig_grant("1g.5gb", 0)),)


@pytest.mark.parametrize(
    ("process", "shares", "kind"),
    [
        pytest.param(located_process(8000), SOFT, None, id="all-of-it"),
        pytest.param(
            located_process(8000 + 160 + CONTEXT_ALLOWANCE), SOFT, None, id="with-its-context"
        ),
        pytest.param(
            located_process(8001 + 160 + CONTEXT_ALLOWANCE), SOFT, ViolationKind.MEMORY, id="more"
        ),
        pytest.param(located_process(None), SOFT, None, id="the-driver-does-not-tell"),
        pytest.param(located_process(gpu="GPU-1"), SOFT, ViolationKind.DEVICE, id="another-gpu"),
        pytest.param(
            located_process(cgroup=PodCgroup("u1", SIDE)),
            SOFT,
            ViolationKind.DEVICE,
            id="another-container",
        ),
        pytest.param(
            located_process(cgroup=PodCgroup("u1", None)),
            SOFT,
            None,
            id="who-knows-which-container",
        ),
        pytest.param(
            located_process(9000, cgroup=PodCgroup("u1", None)),
            SOFT,
            ViolationKind.MEMORY,
            id="nor-could-any",
        ),
        pytest.param(located_process(instance="MIG-own"), OWN, None, id="own-instance"),
        pytest.param(located_process(instance=None), OWN, None, id="instance-not-told"),
        pytest.param(
            located_process(instance="MIG-other"), OWN, ViolationKind.DEVICE, id="anothers-instance"
        ),
        pytest.param(
            located_process(instance="MIG-new"), OWN, None, id="an-instance-not-looked-at-yet"
        ),
        pytest.param(
            located_process(instance="MIG-own"),
            SOFT,
            ViolationKind.DEVICE,
            id="an-instance-of-nobody",
        ),
        pytest.param(located_process(), (), ViolationKind.UNPROMISED, id="no-promise"),
        pytest.param(
            located_process(),
            (share(soft_grant(1), uid="u2"),),
            ViolationKind.UNPROMISED,
            id="not-its-own",
        ),
        pytest.param(located_process(cgroup=None), (), None, id="not-a-pod"),
        pytest.param(
            located_process(cgroup=PodCgroup("u9", MAIN)), (), None, id="a-pod-that-nobody-knows"
        ),
    ],
)
def test_use_is_held_against_the_promise(
    process: LocatedProcess, shares: tuple[Share, ...], kind: ViolationKind | None
) -> None:
    """Memory with an allowance for what the library cannot count, devices by their names."""
    assert violation_kinds(observed(process, shares=shares)) == ([kind] if kind else [])


def test_processes_of_one_container_add_up() -> None:
    """Each below the promise, and together above it."""
    assert violation_kinds(observed(located_process(5000), located_process(5000), shares=SOFT)) == [
        ViolationKind.MEMORY
    ]
    twice = (share(soft_grant(8000)), share(soft_grant(8000), container="side"))
    assert (
        violation_kinds(
            observed(
                located_process(5000),
                located_process(5000, cgroup=PodCgroup("u1", SIDE)),
                shares=twice,
            )
        )
        == []
    )


@given(count=st.integers(1, 64))
def test_an_allowance_does_not_grow_with_processes(count: int) -> None:
    """Who forks a hundred processes gains four contexts."""
    most = 8000 + 160 + MOST_CONTEXTS * CONTEXT_ALLOWANCE
    crowd = [located_process(-(-(most + 1) // count)) for _ in range(count)]

    assert violation_kinds(observed(*crowd, shares=SOFT)) == [ViolationKind.MEMORY]


def test_foreign_is_what_nobody_was_promised_there() -> None:
    """The node's own processes, unknown pods, and pods on GPUs that others were promised."""
    looked_at = observed(
        located_process(10, cgroup=None),
        located_process(200, cgroup=PodCgroup("u9", MAIN)),
        located_process(3000),
        located_process(40000, gpu="GPU-1"),
        located_process(None, cgroup=None),
        located_process(5, gpu="GPU-9", cgroup=None),
        shares=SOFT,
    )

    assert foreign_memory(looked_at, ("GPU-0", "GPU-1")) == {"GPU-0": 210, "GPU-1": 40000}


def test_what_is_told_as_unpromised_is_not_counted_twice() -> None:
    """It is taken as if promised; on a GPU that is not told of, it is foreign as before."""
    looked_at = replace(
        observed(located_process(3000), located_process(50, gpu="GPU-1")),
        unpromised={("u1", "GPU-0"): MiB(3000)},
    )

    assert foreign_memory(looked_at, ("GPU-0", "GPU-1")) == {"GPU-0": 0, "GPU-1": 50}


def test_what_an_unpromised_pod_holds_beyond_its_charge_is_foreign() -> None:
    """Nobody limits it, so what it holds more than a share of that size may is there for nobody."""
    charged = {("u1", "GPU-0"): MiB(1000)}
    allowed = 1000 + 20 + CONTEXT_ALLOWANCE

    within, beyond = (
        foreign_memory(
            replace(observed(located_process(used), located_process(0)), unpromised=charged),
            ("GPU-0",),
        )
        for used in (allowed + CONTEXT_ALLOWANCE, allowed + CONTEXT_ALLOWANCE + 7000)
    )

    assert (within, beyond) == ({"GPU-0": 0}, {"GPU-0": 7000})


def test_devices_are_reached_by_who_has_no_share() -> None:
    """A GPU in MIG mode by its instance; not by processes outside pods, nor by who has an entry."""
    looked_at = observed(
        located_process(10, cgroup=PodCgroup("u8", MAIN)),
        located_process(10, cgroup=PodCgroup("u8", MAIN), gpu="GPU-1"),
        located_process(10, cgroup=PodCgroup("u9", None), instance="MIG-own"),
        located_process(10, gpu="GPU-1"),
        located_process(10, cgroup=None),
        shares=SOFT,
    )

    assert reached_devices(looked_at) == {"u8": {"GPU-0", "GPU-1"}, "u9": {"MIG-own"}}


def violation(
    kind: ViolationKind = ViolationKind.MEMORY, *, exempt: bool = False, note: str = ""
) -> Violation:
    pod = LocalPod(uid="u1", namespace="a", name="b", exempt=exempt)
    return Violation(kind=kind, pod=pod, container="main", gpu="GPU-0", note=note)


@pytest.mark.parametrize(
    ("one", "enforcement", "due"),
    [
        pytest.param(violation(), Enforcement.EVICT, True, id="evicted"),
        pytest.param(violation(), Enforcement.REPORT, False, id="only-reported"),
        pytest.param(violation(exempt=True), Enforcement.EVICT, False, id="would-come-back"),
        pytest.param(violation(ViolationKind.LIMITS), Enforcement.EVICT, False, id="was-put-right"),
        pytest.param(violation(ViolationKind.DISK), Enforcement.EVICT, True, id="fills-the-disk"),
    ],
)
def test_the_first_look_tells_and_the_second_evicts(
    one: Violation, enforcement: Enforcement, due: bool
) -> None:
    """A violation begins once, whatever its numbers do, and is acted on where it lasts."""
    first = violation_changes([], [one], enforcement)
    later = violation(one.kind, exempt=one.pod.exempt, note="other numbers")
    second = violation_changes([one], [later], enforcement)

    assert (first.begun, first.to_evict) == ((one,), ())
    assert second.begun == ()
    assert second.to_evict == ((later,) if due else ())
