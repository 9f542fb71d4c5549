"""Volcano Jobs: their tasks get what they ask for, and the one with the highest priority first."""

import pytest

from allocator.model.request import Mode
from tests.builders.model import A100_40, T4, nodes_of
from tests.builders.pods import MEMORY, MODE, NUMBER
from tests.cluster.api import Json, wait_for
from tests.cluster.volcano_site import POD_GROUPS, ROOM, SERVED_WITHIN, Rig

JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
PRIORITIES = {"high": 100, "med": 50, "low": 10}
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def job(name: str, spec: Json, *, annotations: Json | None = None, **more: object) -> Json:
    """Write a Job of three tasks as the practice guide does."""
    template: Json = {"spec": spec}
    if annotations:
        template["metadata"] = {"annotations": annotations}
    return {
        **JOB,
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": 3,
            "tasks": [{"replicas": 3, "name": "test", "template": template}],
            **more,
        },
    }


def running(resources: Json, **spec: object) -> Json:
    """Write the pod of the guide's tasks, asking for *resources*."""
    container = {
        "image": "swr.cn-east-3.myhuaweicloud.com/lomtom-common/alpine:3.20",
        "command": ["/bin/sh", "-c", "sleep 1000"],
        "imagePullPolicy": "IfNotPresent",
        "name": "running",
        "resources": resources,
    }
    return {"containers": [container], **spec}


def test_a_job_of_instances(rig: Rig) -> None:
    """Each of three tasks gets an instance of its own, and the Job runs."""
    rig.serve(nodes_of(1, A100_40, mode=Mode.MIG, name="jobs"))
    team = rig.site.namespace()
    pod = running({"limits": {NUMBER: 1, MEMORY: 8000}}, nodeSelector={"pool": "jobs"})

    rig.job(team, job("train", pod, annotations={MODE: "mig"}))
    wait_for(lambda: rig.jobs(team)["train"] == "Running", within=SERVED_WITHIN)

    devices = {rig.devices(team, f"train-test-{number}") for number in range(3)}
    assert devices == {f"GPU-jobs-0[group2-{number}],NVIDIA,8000,0:" for number in range(3)}


@pytest.fixture(scope="module")
def classes(rig: Rig) -> None:
    """Create the priority classes of the guide."""
    for name, value in PRIORITIES.items():
        body = {"metadata": {"name": f"{name}-priority"}, "value": value, "globalDefault": False}
        rig.site.api.create(CLASSES, {**body, "kind": "PriorityClass"} | _version())


def _version() -> Json:
    return {"apiVersion": "scheduling.k8s.io/v1"}


def _settled(rig: Rig, team: str, phases: dict[str, str]) -> None:
    wait_for(lambda: rig.jobs(team) == phases, within=SERVED_WITHIN)


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize("what", ["cpu", "vgpu"])
def test_the_job_with_the_highest_priority_runs_first(rig: Rig, what: str) -> None:
    """Three Jobs want all there is: the high one runs, and when it is deleted the med one does."""
    node = f"rank-{what}"
    team = rig.site.namespace()
    cpu, vgpu = {"requests": {"cpu": "2"}}, {"limits": {NUMBER: 1, MEMORY: 5000}}
    # Only the guide's own Job is written as it is there: it knows of one node, and so of no pool.
    pod = running(cpu) if what == "cpu" else running(vgpu, nodeSelector={"pool": node})

    for name in PRIORITIES:
        rig.job(team, job(f"priority-{name}", pod, priorityClassName=f"{name}-priority"))
    # Nothing is taken away from a Job that runs: Volcano must know all three before there is room.
    groups = POD_GROUPS.format(team)
    wait_for(lambda: len(rig.site.api.get(groups)["items"]) == len(PRIORITIES))
    rig.serve(nodes_of(1, T4, name=node), ROOM | {"cpu": "6"} if what == "cpu" else ROOM)
    _settled(
        rig,
        team,
        {"priority-high": "Running", "priority-med": "Pending", "priority-low": "Pending"},
    )

    rig.delete_job(team, "priority-high")
    if what == "vgpu":
        rig.release(node)
    _settled(rig, team, {"priority-med": "Running", "priority-low": "Pending"})
