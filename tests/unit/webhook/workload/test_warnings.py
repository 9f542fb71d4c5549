"""What is said about a workload when it is applied: the sentences of its pods, whole and few."""

from collections.abc import Sequence

import orjson
import pytest

from allocator.config.settings import FleetScope, Settings
from allocator.model.decision import Finding, Reason
from allocator.model.request import Mode
from tests.builders.model import T4, nodes_of, snapshot
from tests.builders.pods import MEMORY, NUMBER, Json, container, decided, received
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import Refused
from webhook.workload.warnings import LARGEST, LONGEST, MOST, warning_line, workload_warnings

AROUND = AdmissionContext(
    settings=Settings(fleet=FleetScope.CLOSED),
    snapshot=snapshot(nodes_of(8, T4)),
    host_paths=True,
)


def template(*limits: Json) -> Json:
    return {"spec": {"containers": [container(f"c{i}", limits=x) for i, x in enumerate(limits)]}}


def owner(version: str, kind: str, spec: Json) -> Json:
    meta = {"name": "w", "namespace": "team-a"}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def told(written: object, around: AdmissionContext = AROUND) -> Sequence[str]:
    found = workload_warnings(orjson.dumps(written).decode(), "team-a", around)
    assert all(len(line) <= LONGEST and line.isprintable() for line in found)
    assert len(found) <= MOST
    return found


BIG: Json = {MEMORY: 90000}
SHAPES = {
    "Deployment": owner("apps/v1", "Deployment", {"template": template(BIG)}),
    "StatefulSet": owner("apps/v1", "StatefulSet", {"template": template(BIG)}),
    "DaemonSet": owner("apps/v1", "DaemonSet", {"template": template(BIG)}),
    "Job": owner("batch/v1", "Job", {"template": template(BIG)}),
    "CronJob": owner("batch/v1", "CronJob", {"jobTemplate": {"spec": {"template": template(BIG)}}}),
    "vcjob": owner("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"template": template(BIG)}]}),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_the_sentence_is_that_of_the_pod(kind: str) -> None:
    """With all of its remedy, and the code that docs explain."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, **template(BIG)}
    outcome = decided(received(pod), AROUND)
    assert isinstance(outcome, Refused)
    (finding,) = outcome.findings.all

    assert told(SHAPES[kind]) == [f"vgpu: its pods will be refused: {finding} [GpuMemoryShort]"]


def test_an_open_fleet_admits_and_warns() -> None:
    """A controller creates the pod, so nobody sees the warning that it is admitted with."""
    around = AdmissionContext(
        settings=Settings(), snapshot=snapshot(nodes_of(8, T4)), host_paths=True
    )

    (line,) = told(SHAPES["Deployment"], around)

    assert line.startswith('vgpu: container "c0": ')
    assert line.endswith("[GpuMemoryShort]")


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, id="asks-nothing"),
        pytest.param({NUMBER: 1, MEMORY: 3000}, id="fits"),
    ],
)
def test_nothing_is_said_where_nothing_is_wrong(limits: Json) -> None:
    """A warning that always comes is one that nobody reads."""
    assert told(owner("apps/v1", "Deployment", {"template": template(limits)})) == []


def test_all_findings_are_told_and_where_they_are() -> None:
    """By task where a job has several; equal ones once."""
    tasks = [{"template": template(BIG)}, {"template": template({NUMBER: 1}, {MEMORY: "8Gi"})}]

    found = told(owner("batch.volcano.sh/v1alpha1", "Job", {"tasks": tasks}))

    assert len(found) == 2
    assert found[0].startswith("vgpu: its pods will be refused: spec.tasks[0].template: container ")
    assert found[1].startswith("vgpu: its pods will be refused: spec.tasks[1].template: container ")


def test_many_findings_are_counted() -> None:
    """Four lines at most, and the last says how many more there are."""
    found = told(owner("apps/v1", "Deployment", {"template": template(*[{MEMORY: "8Gi"}] * 9)}))

    assert len(found) == MOST
    assert found[-1] == "vgpu: and 6 more; kubectl vgpu fit -f FILE shows all"


def test_no_workload_keeps_other_reviews_waiting() -> None:
    """A job of thousands of tasks is judged in part: what is wrong with one is with the others."""
    tasks = [{"template": template({MEMORY: 90000 + i})} for i in range(500)]

    found = told(owner("batch.volcano.sh/v1alpha1", "Job", {"tasks": tasks}))

    assert found[-1] == "vgpu: and 29 more; kubectl vgpu fit -f FILE shows all"


def test_a_huge_workload_is_not_judged() -> None:
    """Its pods are, one by one."""
    padded = SHAPES["Job"] | {"x": "a" * LARGEST}

    assert told(SHAPES["Job"])
    assert told(padded) == []


@pytest.mark.parametrize("length", [1, 50, 100, 150, 200, 250, 5000])
@pytest.mark.parametrize("part", ["place", "what", "remedy"])
def test_a_remedy_is_whole_or_absent(part: str, length: int) -> None:
    """It is pasted: half of one would be wrong."""
    parts = {"place": "pod", "what": "it is too large", "remedy": "ask for at most 15360"}
    parts[part] = "ab" * length
    finding = Finding(reason=Reason.MEMORY_SHORT, field="", **parts)

    line = warning_line(finding, "its pods will be refused: ")

    assert len(line) <= LONGEST
    assert line.endswith("[GpuMemoryShort]")
    assert parts["remedy"] in line or line.startswith("vgpu: its pods get no GPU; kubectl vgpu fit")
    if len(parts[part]) < 100:
        assert str(finding) in line


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        3,
        "x",
        [],
        {},
        {"apiVersion": "apps/v1", "kind": "Deployment"},
        owner("apps/v1", "Deployment", {}),
        owner("apps/v1", "Deployment", {"template": {"spec": {"containers": [[]]}}}),
        owner("apps/v1", "Deployment", {"template": template({MEMORY: {}})}),
        owner("apps/v1", "Deployment", {"replicas": "x", "template": template(BIG)}),
        owner("v1", "Secret", {"template": 3}),
        owner("batch.volcano.sh/v1alpha1", "Job", {"tasks": [None, {}, 3]}),
        owner("apps/v1", "Deployment", {"template": template(BIG), "x": "y" * 600_000}),
    ],
    ids=range(13),
)
def test_what_cannot_be_read_is_left_to_others(hostile: object) -> None:
    """The API server has its own words for it."""
    assert told(hostile) == []


def test_a_mode_that_nobody_offers_is_told() -> None:
    """Everything that admission refuses, not only what is too large."""
    annotated = template(BIG) | {"metadata": {"annotations": {"volcano.sh/vgpu-mode": Mode.MIG}}}

    (line, *_) = told(owner("apps/v1", "Deployment", {"template": annotated}))

    assert "[ModeUnavailable]" in line


def test_a_line_break_in_a_name_does_not_hide_a_warning() -> None:
    """The API server drops a warning that no header can carry."""
    written = template(BIG)
    written["spec"]["containers"][0]["name"] = "a\nb\x7f"

    assert told(owner("apps/v1", "Deployment", {"template": written}))
