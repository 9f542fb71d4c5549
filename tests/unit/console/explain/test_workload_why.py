"""Workloads explained: pods that stand alike once, and what one would find where there is none."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from allocator.report.terminal_lines import WIDTH, plain_text, printed_lines
from console.cluster.event import EventView, creation_refusal, events_of
from console.cluster.pod import PodState, PodView
from console.cluster.workload import KINDS, Workload, maker_of, templates
from console.explain.fit import fit, refused_fit
from console.explain.why import PodFacts, why
from console.explain.workload_why import (
    MOST_GROUPS,
    ExplainedGroup,
    WorkloadWhy,
    document,
    group_pods,
    lines,
)
from console.get.listing import OutputFormat
from console.get.listing import document as printed
from tests.builders.pods import MEMORY, MODE, NUMBER, Json, container, pod
from tests.unit.console.sites import NOW, plain, site, stored

Golden = Callable[[str, str], str]
DEPLOYMENT = KINDS[0]
REFUSED = events_of(
    [
        {
            "type": "Warning",
            "reason": "FailedCreate",
            "message": 'Error creating: admission webhook "vgpu" denied the request: no GPU here',
            "source": {"component": "replicaset-controller"},
            "count": 14,
            "lastTimestamp": "2026-11-21T12:30:00Z",
        }
    ]
)


def asking(memory: int, mode: str = "") -> Json:
    limits = {NUMBER: 1, MEMORY: memory}
    return pod(container(limits=limits), annotations={MODE: mode} if mode else None)


def deployment(memory: int, replicas: int | None = 3) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a", "uid": "uid-web"},
        "spec": {"replicas": replicas, "template": {"spec": asking(memory)["spec"]}},
    }


def told(
    pods: Sequence[PodView], made: Json | None = None, events: tuple[EventView, ...] = ()
) -> WorkloadWhy:
    """Return what is told of a Deployment that has *pods*, or none."""
    written = made or deployment(3000)
    refusal = creation_refusal(events)
    found = site()
    made_from = () if pods else templates(written, "team-a")
    groups = group_pods(pods, found)
    return WorkloadWhy(
        workload=Workload(
            kind=DEPLOYMENT,
            maker=maker_of(written),
            pods=tuple(pods),
            events=events,
            templates=made_from,
            refusal=refusal,
        ),
        now=NOW,
        groups=groups,
        explained=tuple(
            ExplainedGroup(group, why(PodFacts(pod=group.pods[0], site=found)))
            for group in groups[:MOST_GROUPS]
        ),
        fits=tuple(
            refused_fit(fit(one, found), refusal.text) if refusal else fit(one, found)
            for one in made_from
        ),
    )


def text(found: WorkloadWhy) -> str:
    shown = list(map(plain_text, printed_lines(lines(found))))
    assert max(map(len, shown)) <= WIDTH
    return "".join(f"{line}\n" for line in shown)


RUNNING = stored("train-0", asking(18000), node="gpu-a", phase="Running", minutes=40)
WAITING = [stored(f"big-{i}", asking(9000, mode="hami-core")) for i in range(6)]
WORKLOADS = {
    "mixed": told([RUNNING, *WAITING], deployment(9000, 8)),
    "none": told([], deployment(5000), REFUSED),
    "large": told([], deployment(90000, None)),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_explained_as_reviewed(name: str, golden: Golden) -> None:
    """The texts stand in tests/golden; --update-golden writes them anew."""
    shown = text(WORKLOADS[name])

    assert shown == golden(f"kubectl-why-workload-{name}.txt", shown)


@pytest.mark.parametrize("name", ["mixed", "none"])
def test_documents_are_what_docs_promise(name: str, golden: Golden) -> None:
    """Keys are public: they are only ever added."""
    shown = printed(document(WORKLOADS[name]), OutputFormat.JSON)

    assert f"{shown}\n" == golden(f"kubectl-why-workload-{name}.json", f"{shown}\n")
    assert json.loads(shown)["kind"] == "WhyList"


def test_every_pod_is_in_one_group() -> None:
    """By its state and what it asks for; those that wait come first."""
    smaller = stored("a-0", asking(1000, mode="hami-core"))
    bypassed = stored("late-0", asking(3000, mode="hami-core"), node="gpu-b")
    ended = stored("z-0", asking(3000), node="gpu-b", phase="Succeeded")

    groups = group_pods([RUNNING, ended, *WAITING, plain("web-0"), bypassed, smaller], site())

    assert [(group.state, len(group.pods)) for group in groups] == [
        (PodState.WAITING, 1),
        (PodState.WAITING, 6),
        (PodState.WAITING, 1),
        (PodState.BYPASSED, 1),
        (PodState.RUNNING, 1),
        (PodState.ENDED, 1),
    ]


def test_a_gated_pod_is_not_like_one_that_is_not() -> None:
    """It waits for somebody else."""
    spec = msgspec.structs.replace(WAITING[0].spec, scheduling_gates=({"name": "team/quota"},))
    gated = msgspec.structs.replace(WAITING[0], spec=spec)

    assert len(group_pods([gated, WAITING[1]], site())) == 2


def test_groups_beyond_the_first_are_counted() -> None:
    """Nobody reads a hundred explanations."""
    pods = [stored(f"p-{i}", asking(1000 + i)) for i in range(MOST_GROUPS + 2)]

    shown = text(told(pods))

    assert "more      2 more groups of pods; ask about one of their pods\n" in shown
    assert shown.count("pod       team-a/p-") == MOST_GROUPS
    assert shown.count("WAITING   ") == MOST_GROUPS


def test_a_workload_that_wants_no_pod_is_told_so() -> None:
    """Nought is wanted, which is not the same as not known."""
    assert "pods      none; 3 wanted\n" in text(told([]))
    assert "pods      none\n" in text(told([], deployment(3000, 0)))
    assert "pods      none\n" in text(told([], deployment(3000, None)))


def test_states_are_counted_of_all_pods() -> None:
    """Also of those that are not explained."""
    found = WORKLOADS["mixed"]

    assert found.states == {PodState.WAITING: 6, PodState.RUNNING: 1}
    assert replace(found, explained=()).states == found.states
