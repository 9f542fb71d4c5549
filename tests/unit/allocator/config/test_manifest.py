"""What manifests make: pods as a hook would receive them, or what is wrong and where."""

import json

import pytest

from allocator.config.document import MAX_BYTES
from allocator.config.manifest import MOST_DOCUMENTS, ManifestPod, pods_in
from allocator.model.problem import Loaded, Rejected
from webhook.review.pod_schema import Pod

CONTAINERS = "containers: [{name: main, resources: {limits: {volcano.sh/vgpu-memory: 3000}}}]"
POD = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{{CONTAINERS}}}\n"
TEMPLATE = f"template: {{metadata: {{annotations: {{a: b}}}}, spec: {{{CONTAINERS}}}}}"


def made(text: str) -> tuple[ManifestPod[Pod], ...]:
    found = pods_in(text, Pod)
    assert isinstance(found, Loaded), str(found)
    return found.value


def only(text: str) -> ManifestPod[Pod]:
    (found,) = made(text)
    return found


def wrong(text: str) -> str:
    """Return all that is wrong, one problem a line."""
    found = pods_in(text, Pod)
    assert isinstance(found, Rejected)
    return str(found)


def object_of(version: str, kind: str, spec: str) -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: w, namespace: n}}\n{spec}\n"


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        pytest.param("v1", "PodTemplate", TEMPLATE, id="pod-template"),
        pytest.param("v1", "ReplicationController", f"spec: {{{TEMPLATE}}}", id="controller"),
        pytest.param("apps/v1", "Deployment", f"spec: {{{TEMPLATE}}}", id="deployment"),
        pytest.param("apps/v1", "StatefulSet", f"spec: {{{TEMPLATE}}}", id="stateful-set"),
        pytest.param("apps/v1", "DaemonSet", f"spec: {{{TEMPLATE}}}", id="daemon-set"),
        pytest.param("apps/v1", "ReplicaSet", f"spec: {{{TEMPLATE}}}", id="replica-set"),
        pytest.param("batch/v1", "Job", f"spec: {{{TEMPLATE}}}", id="job"),
        pytest.param(
            "batch/v1", "CronJob", f"spec: {{jobTemplate: {{spec: {{{TEMPLATE}}}}}}}", id="cron-job"
        ),
        pytest.param(
            "batch.volcano.sh/v1alpha1", "Job", f"spec: {{tasks: [{{{TEMPLATE}}}]}}", id="volcano"
        ),
    ],
)
def test_workloads_make_pods(version: str, kind: str, spec: str) -> None:
    """The pod is the template's, in the workload's namespace, under a name yet to be generated."""
    found = only(object_of(version, kind, spec))

    assert (found.kind, found.name, found.namespace) == (kind, "w", "n")
    assert found.pod.metadata.annotations == {"a": "b"}
    assert (found.pod.metadata.name, found.pod.metadata.generate_name) == (None, "w-")
    assert found.sent["kind"] == "Pod"


def test_amounts_are_canonical_and_requests_defaulted() -> None:
    """As the API server hands a pod to a hook: what is written and what is received differ."""
    limits = "{a: 3000, b: '10240', c: 8Gi, d: 1.5, e: 2.0}"
    resources = f"resources: {{limits: {limits}, requests: {{a: 1}}}}"
    text = POD.replace("resources: {limits: {volcano.sh/vgpu-memory: 3000}}", resources)

    found = only(text).pod.spec.containers[0].resources

    assert found is not None
    assert found.limits == {"a": "3k", "b": "10240", "c": "8Gi", "d": "1.5", "e": "2"}
    assert found.requests == found.limits | {"a": "1"}


def test_a_volcano_job_is_scheduled_by_volcano() -> None:
    """Each of its tasks makes pods, and the job's scheduler is theirs unless they name one."""
    own = TEMPLATE.replace("spec: {", "spec: {schedulerName: own, ")
    spec = f"spec: {{tasks: [{{{TEMPLATE}}}, {{{own}}}]}}"

    found = made(object_of("batch.volcano.sh/v1alpha1", "Job", spec))

    assert [one.pod.spec.scheduler_name for one in found] == ["volcano", "own"]
    assert [one.place for one in found] == [
        "document 1: spec.tasks[0].template",
        "document 1: spec.tasks[1].template",
    ]


def test_documents_and_lists_are_taken_apart() -> None:
    """JSON is YAML too, empty documents count but hold nothing, other kinds are passed over."""
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
    inner: dict[str, object] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}}
    inner |= {"spec": {"containers": [{"name": "a"}]}}
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [inner]})

    found = pods_in(f"# first\n---\n---\n{POD}---\n{service}---\n{listed}", Pod)

    assert isinstance(found, Loaded)
    assert [one.place for one in found.value] == ["document 2", "document 4: items[0]"]
    assert [warning.path for warning in found.warnings] == ["document 3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "no document found; accepted: a Pod, Deployment", id="nothing"),
        pytest.param("---\n# only\n---\n", "no document found", id="comments"),
        pytest.param("- 1", "document 1: a list found; accepted: a mapping", id="list"),
        pytest.param("metadata: {name: a}", "document 1: apiVersion: missing", id="no-kind"),
        pytest.param(
            "apiVersion: v1\nkind: Deploymnet", '"Deploymnet" of "v1" is not a kind', id="kind"
        ),
        pytest.param("a: &x [*x]", "the alias *x has no complete anchor", id="anchor"),
        pytest.param("1: 2", "not expressible in JSON: Dict key must be str", id="key"),
        pytest.param(f"{POD}---\n\na: [", "document 2: while parsing a flow node", id="broken"),
        pytest.param(f"{POD}---\n\na: [", "line 8, column 1", id="line-of-the-file"),
        pytest.param("a: " + "[" * 40, "nested more than 32 levels deep", id="deep"),
    ],
)
def test_a_text_that_makes_no_pod_is_told_where_it_goes_wrong(text: str, said: str) -> None:
    """Each message has the document, the value, and what would be accepted."""
    found = wrong(text)

    assert said in found
    assert "; accepted: " in found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("name: p", "x: 1", "document 1: metadata.name: missing", id="no-name"),
        pytest.param(
            "name: p",
            "name: p, annotations: {a: b, c/d: 7}",
            'document 1: metadata.annotations["c/d"]: 7 found; accepted: a string',
            id="annotation",
        ),
        pytest.param(
            "name: main, ",
            "",
            "spec.containers[0].name: missing; accepted: a string",
            id="container",
        ),
        pytest.param(
            "name: main",
            "name: main, env: {a: b}",
            "spec.containers[0].env: a mapping found; accepted: a list",
            id="env",
        ),
        pytest.param(
            "3000",
            "true",
            'limits["volcano.sh/vgpu-memory"]: true found; accepted: a whole number or a string',
            id="amount",
        ),
        pytest.param(
            CONTAINERS, "containers: []", "spec.containers: a list found; accepted: a", id="empty"
        ),
        pytest.param(f"{{{CONTAINERS}}}", "7", "spec: 7 found; accepted: a mapping", id="spec"),
        pytest.param(
            CONTAINERS,
            f"containers: [{'{name: a}, ' * 600}]",
            "spec.containers: expected `array` of length <= 512",
            id="many",
        ),
    ],
)
def test_a_pod_that_is_none_is_told_what_is_wrong_with_it(old: str, new: str, said: str) -> None:
    """The path is the one in the user's own document."""
    assert said in wrong(POD.replace(old, new))


def test_the_path_of_a_workload_leads_into_its_template() -> None:
    """A path as the hook sees it would be none of the user's."""
    template = TEMPLATE.replace("name: main", "name: 7")

    found = wrong(object_of("apps/v1", "Deployment", f"spec: {{{template}}}"))

    place = "document 1: spec.template.spec.containers[0].name"
    assert found == f"{place}: 7 found; accepted: a string"


def test_size_and_number_are_bounded() -> None:
    """A file is read whole, so what it may hold is limited."""
    assert "too large" in wrong("#" * (MAX_BYTES + 1))
    assert "too many documents" in wrong("---\n" * (MOST_DOCUMENTS + 1))
