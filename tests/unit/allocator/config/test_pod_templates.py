"""Where objects keep pod templates, and how many pods of each run at the same time."""

from collections.abc import Sequence

import pytest
import yaml

from allocator.config.manifest import ManifestPod, pods_in
from allocator.model.problem import Loaded, Rejected
from tests.builders.pods import Json
from webhook.review.pod_schema import Pod

CONTAINERS = [{"name": "main", "resources": {"limits": {"volcano.sh/vgpu-memory": 3000}}}]
TEMPLATE: Json = {"spec": {"containers": CONTAINERS}}
JOB: Json = {"spec": {"parallelism": 3, "completions": 2, "template": TEMPLATE}}


def written(version: str, kind: str, spec: Json) -> str:
    return yaml.safe_dump(
        {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    )


def made(version: str, kind: str, spec: Json) -> Sequence[ManifestPod[Pod]]:
    found = pods_in(written(version, kind, spec), Pod)
    assert isinstance(found, Loaded), str(found)
    assert not found.warnings
    return found.value


def task(replicas: int | None, minimum: int | None = None) -> Json:
    counts = {"replicas": replicas, "minAvailable": minimum}
    return {"template": TEMPLATE} | {key: n for key, n in counts.items() if n is not None}


@pytest.mark.parametrize(
    ("version", "kind", "spec", "wanted"),
    [
        pytest.param("apps/v1", "Deployment", task(3), [3], id="deployment"),
        pytest.param("apps/v1", "StatefulSet", task(None), [1], id="default"),
        pytest.param("apps/v1", "ReplicaSet", task(0), [0], id="scaled-down"),
        pytest.param("apps/v1", "DaemonSet", task(None), [1], id="daemon-set"),
        pytest.param("batch/v1", "Job", {"parallelism": 4, "template": TEMPLATE}, [4], id="job"),
        pytest.param("batch/v1", "Job", JOB["spec"], [2], id="never-more-than-complete"),
        pytest.param(
            "batch/v1", "Job", {"completions": 9, "template": TEMPLATE}, [1], id="one-by-one"
        ),
        pytest.param(
            "batch/v1",
            "CronJob",
            {"concurrencyPolicy": "Allow", "jobTemplate": JOB},
            [2],
            id="one-run-of-a-cron-job",
        ),
        pytest.param(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"replicas": 5, "template": JOB}, {"template": JOB}]},
            [10, 2],
            id="job-set",
        ),
        pytest.param(
            "kubeflow.org/v1",
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": task(None), "Worker": task(7)}},
            [1, 7],
            id="pytorch",
        ),
        pytest.param(
            "kubeflow.org/v1",
            "TFJob",
            {"tfReplicaSpecs": {"Worker": task(2)}},
            [2],
            id="tensorflow",
        ),
        pytest.param(
            "kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {"W": task(2)}}, [2], id="mpi"
        ),
        pytest.param("kubeflow.org/v1", "Notebook", {"template": TEMPLATE}, [1], id="notebook"),
        pytest.param(
            "ray.io/v1",
            "RayCluster",
            {
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [{**task(3), "numOfHosts": 2}, task(0)],
            },
            [1, 6, 0],
            id="ray",
        ),
        pytest.param(
            "ray.io/v1", "RayCluster", {"headGroupSpec": {"template": TEMPLATE}}, [1], id="head"
        ),
        pytest.param(
            "ray.io/v1",
            "RayJob",
            {"rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}},
            [1],
            id="ray-job",
        ),
        pytest.param("argoproj.io/v1alpha1", "Rollout", task(4), [4], id="rollout"),
        pytest.param("example.com/v1", "Server", {"podTemplate": TEMPLATE}, [1], id="any-kind"),
        pytest.param("example.com/v1", "Timer", {"jobTemplate": JOB}, [2], id="any-timer"),
    ],
)
def test_pods_are_counted(version: str, kind: str, *, spec: Json, wanted: list[int]) -> None:
    """As many as run at the same time, for each template in the order of the object."""
    found = made(version, kind, spec)

    assert [one.wanted for one in found] == wanted
    assert [one.needed for one in found] == wanted
    assert {one.together for one in found} == {sum(wanted)}
    assert {one.object for one in found} == {"document 1"}


def test_what_argo_runs_is_a_container() -> None:
    """A template that only calls others makes no pod."""
    spec = {
        "entrypoint": "all",
        "parallelism": 9,
        "templates": [
            {"name": "all", "steps": [[{"name": "a", "template": "train"}]]},
            {"name": "train", "container": {"image": "a", "resources": CONTAINERS[0]["resources"]}},
            {"name": "code", "script": {"source": "x"}, "sidecars": [{"name": "side"}]},
            {"name": "set", "containerSet": {"containers": CONTAINERS}},
        ],
    }

    found = made("argoproj.io/v1alpha1", "Workflow", spec)

    names = [[container.name for container in one.pod.spec.containers] for one in found]
    assert names == [["main"], ["main", "side"], ["main"]]
    assert [one.place.rpartition(" ")[2] for one in found] == [
        "spec.templates[1]",
        "spec.templates[2]",
        "spec.templates[3]",
    ]
    assert [one.wanted for one in found] == [1, 1, 1]


@pytest.mark.parametrize(
    ("tasks", "least", "expected"),
    [
        pytest.param([task(4)], None, [(4, 4)], id="all"),
        pytest.param([task(4, 2)], None, [(2, 2)], id="of-a-task"),
        pytest.param([task(4)], 3, [(3, 3)], id="of-the-job"),
        pytest.param([task(4), task(2)], 3, [(0, 3), (0, 3)], id="of-all-tasks-together"),
        pytest.param([task(4, 1), task(2, 1)], 3, [(1, 3), (1, 3)], id="of-both"),
        pytest.param([task(2)], 9, [(2, 2)], id="more-than-there-are"),
    ],
)
def test_a_gang_needs_its_minimum(
    tasks: list[Json], least: int | None, expected: list[tuple[int, int]]
) -> None:
    """By task, and for the job as a whole; that of the job replaces larger ones of its tasks."""
    spec: Json = {"tasks": tasks} | ({} if least is None else {"minAvailable": least})

    found = made("batch.volcano.sh/v1alpha1", "Job", spec)

    assert [(one.needed, one.together) for one in found] == expected


def test_a_gang_of_kubeflow_says_it_elsewhere() -> None:
    """Kubeflow hands this number to the scheduler of gangs."""
    spec = {
        "runPolicy": {"schedulingPolicy": {"minAvailable": 2}},
        "pytorchReplicaSpecs": {"Master": task(1), "Worker": task(7)},
    }

    assert {one.together for one in made("kubeflow.org/v1", "PyTorchJob", spec)} == {2}


@pytest.mark.parametrize(
    "number", ["3", -1, 2**31, 1.5, True, [], {}, "x", 10**12, "1e3", -0.5], ids=repr
)
@pytest.mark.parametrize("key", ["replicas", "parallelism", "completions"])
def test_a_number_that_is_none_is_told(key: str, number: object) -> None:
    """The place and what would be accepted; nothing is guessed."""
    job = {"template": TEMPLATE, key: number}

    found = pods_in(written("batch/v1", "Job", job), Pod)

    assert isinstance(found, Rejected), str(found)
    assert f"document 1: spec.{key}: " in str(found)


@pytest.mark.parametrize("hostile", [None, 3, "x", [], {}, {"spec": 3}, {"spec": None}, [[]]])
@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        ("kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs"),
        ("jobset.x-k8s.io/v1", "JobSet", "replicatedJobs"),
        ("ray.io/v1", "RayCluster", "headGroupSpec"),
        ("argoproj.io/v1", "Workflow", "templates"),
        ("example.com/v1", "Odd", "template"),
    ],
)
def test_hostile_shapes_end_in_words(
    version: str, kind: str, spec: str, *, hostile: object
) -> None:
    """None of them makes a pod, and none crashes."""
    found = pods_in(written(version, kind, {spec: hostile}), Pod)

    assert isinstance(found, Rejected)
    assert str(found).startswith(("document 1", "manifest: no document found"))
