"""Workloads: by which names a person may ask, and what is said of those that have no such kind."""

import pytest

from console.cluster.workload import (
    KINDS,
    NamedObject,
    WorkloadKind,
    maker_of,
    parse_target,
    templates,
)
from tests.builders.pods import MEMORY, NUMBER, Json, container

DEPLOYMENT, REPLICA_SET, *_, CRON, JOB, VOLCANO_JOB = KINDS


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("web", None),
        ("pod/web", None),
        ("Pods/web", None),
        ("deploy/web", DEPLOYMENT),
        ("deployment.apps/web", DEPLOYMENT),  # as `kubectl get -o name` prints it
        ("rs/web", REPLICA_SET),
        ("job/web", JOB),
        ("jobs.batch/web", JOB),
        ("cronjobs/web", CRON),
        ("vcjob/web", VOLCANO_JOB),
        ("job.batch.volcano.sh/web", VOLCANO_JOB),
    ],
)
def test_kinds_have_the_names_they_have_for_kubectl(text: str, kind: WorkloadKind | None) -> None:
    """A job without its group is the one of Kubernetes, as for kubectl."""
    assert parse_target(text) == NamedObject(kind, "web")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("team-a/p1", NamedObject(None, "p1", "team-a")),
        ("pod/team-a/p1", NamedObject(None, "p1", "team-a")),
        ("deploy/team-a/web", NamedObject(KINDS[0], "web", "team-a")),
        ("Deployment/team-a/web", NamedObject(KINDS[0], "web", "team-a")),
        ("job/j", NamedObject(KINDS[5], "j")),  # a namespace of that name is named with its kind
        ("p1", NamedObject(None, "p1")),
    ],
)
def test_names_are_read_as_lists_print_them(text: str, expected: NamedObject) -> None:
    """What is copied from `get pods -A`, `layout` or an answer of `why` is understood."""
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["", "/", "/web", "deploy/", "a/deploy/web", "svc/web", "cm/x"])
def test_what_names_nothing_is_told(text: str) -> None:
    """With the text as it was written, and all that would do."""
    told = parse_target(text)

    assert isinstance(told, str)
    assert f'"{text}"' in told
    assert told.endswith("job/NAME, vcjob/NAME")


def test_pods_are_looked_for_by_labels_that_all_of_them_have() -> None:
    """Expressions narrow it down further, which owner references do as well."""
    expression = {"key": "tier", "operator": "Exists"}
    selector = {"matchLabels": {"app": "web", "run": "1"}, "matchExpressions": [expression]}
    found = maker_of({"metadata": {"name": "a"}, "spec": {"selector": selector, "replicas": 0}})

    assert (found.labels, found.replicas) == ("app=web,run=1", 0)
    assert maker_of({"metadata": {"name": "a"}, "spec": {"tasks": []}}).labels == ""


def test_templates_are_those_of_a_manifest() -> None:
    """A stored workload is read as `fit -f` reads a file; what cannot be read makes no pod."""
    inner = {"containers": [container(limits={NUMBER: 1, MEMORY: 3000})]}
    stored: Json = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a", "managedFields": [{"manager": "x"}]},
        "spec": {"template": {"metadata": {"creationTimestamp": None}, "spec": inner}},
        "status": {"replicas": 0},
    }

    (made,) = templates(stored, "team-a")

    assert (made.kind, made.namespace, made.name) == ("Deployment", "team-a", "web")
    assert templates({**stored, "spec": {}}, "team-a") == ()
