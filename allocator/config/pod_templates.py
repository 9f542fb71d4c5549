"""Where objects keep their pod templates, and how many pods of each must run at the same time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from allocator.config.document import DocumentTable

ACCEPTED: Final = (
    "a Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, PodTemplate, "
    "Job, CronJob, JobSet, a Job of Volcano or Kubeflow, a Notebook, RayCluster, RayJob, Argo "
    "Workflow, or another object with spec.template, spec.podTemplate or "
    "spec.jobTemplate.spec.template"
)
VOLCANO: Final = "batch.volcano.sh"
_KUBEFLOW: Final = "kubeflow.org"
_RAY: Final = "ray.io"
_ARGO: Final = "argoproj.io"
_MOST: Final = 2**31 - 1  # Kubernetes counts pods in int32
_TEMPLATE: Final = ("spec", "template")
_JOB_TEMPLATE: Final = ("spec", "jobTemplate", *_TEMPLATE)
# A path leads to a pod template. A step in brackets goes through a list, one in braces through
# the values of a mapping.
_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a kind keeps its pod templates."""

    paths: tuple[_Path, ...]  # where there are several, an object may lack some of them
    job: bool = False  # the mapping around a template is the spec of a Job
    argo: bool = False  # a template of Argo: one container, not a pod template


def _ray(*steps: str) -> _Layout:
    head, workers = ("headGroupSpec", "template"), ("[workerGroupSpecs]", "template")
    return _Layout(((*steps, *head), (*steps, *workers)))


_PLAIN: Final = _Layout((_TEMPLATE,))
_LAYOUTS: Final[Mapping[tuple[str, str], _Layout]] = {
    ("", "Pod"): _Layout(((),)),
    ("", "PodTemplate"): _Layout((("template",),)),
    ("", "ReplicationController"): _PLAIN,
    ("apps", "Deployment"): _PLAIN,
    ("apps", "StatefulSet"): _PLAIN,
    ("apps", "DaemonSet"): _PLAIN,
    ("apps", "ReplicaSet"): _PLAIN,
    ("batch", "Job"): _Layout((_TEMPLATE,), job=True),
    ("batch", "CronJob"): _Layout((_JOB_TEMPLATE,), job=True),
    (VOLCANO, "Job"): _Layout((("spec", "[tasks]", "template"),)),
    ("jobset.x-k8s.io", "JobSet"): _Layout(
        (("spec", "[replicatedJobs]", "template", *_TEMPLATE),), job=True
    ),
    **{
        (_KUBEFLOW, kind): _Layout((("spec", f"{{{field}}}", "template"),))
        for kind, field in (
            ("PyTorchJob", "pytorchReplicaSpecs"),
            ("TFJob", "tfReplicaSpecs"),
            ("MPIJob", "mpiReplicaSpecs"),
            ("XGBoostJob", "xgbReplicaSpecs"),
            ("PaddleJob", "paddleReplicaSpecs"),
            ("JAXJob", "jaxReplicaSpecs"),
        )
    },
    (_KUBEFLOW, "Notebook"): _PLAIN,
    (_RAY, "RayCluster"): _ray("spec"),
    (_RAY, "RayJob"): _ray("spec", "rayClusterSpec"),
    (_RAY, "RayService"): _ray("spec", "rayClusterConfig"),
    (_ARGO, "Workflow"): _Layout((("spec", "[templates]"),), argo=True),
    (_ARGO, "WorkflowTemplate"): _Layout((("spec", "[templates]"),), argo=True),
    (_ARGO, "ClusterWorkflowTemplate"): _Layout((("spec", "[templates]"),), argo=True),
    (_ARGO, "CronWorkflow"): _Layout((("spec", "workflowSpec", "[templates]"),), argo=True),
}
# Tried in this order for kinds that are not above.
_KNOWN_PATHS: Final[tuple[_Path, ...]] = (
    _TEMPLATE,
    _JOB_TEMPLATE,
    ("spec", "podTemplate"),
    ("template",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSite:
    """A pod template in an object: ``wanted`` pods are made of it at a time.

    ``needed`` of them must run at the same time, and ``together`` of all templates of the object.
    """

    table: DocumentTable
    wanted: int
    needed: int
    together: int = 0


def template_sites(owner: DocumentTable, group: str, kind: str) -> tuple[TemplateSite, ...] | None:
    """Return the pod templates of an object, ``None`` where its kind has none at a known path.

    Defects are noted in *owner*. A CronJob counts as one run of it, a DaemonSet as one pod.
    """
    layout = _LAYOUTS.get((group, kind)) or _generic_layout(owner)
    if layout is None:
        return None
    found = [site for path in layout.paths for site in _walk(owner, path, layout)]
    if layout.argo:
        found = [replace(site, table=table) for site in found if (table := _argo_pod(site.table))]
    return tuple(_with_minimum(found, _least(owner)))


def _generic_layout(owner: DocumentTable) -> _Layout | None:
    for path in _KNOWN_PATHS:
        value: object = owner.values
        for step in (*path, "spec", "containers"):
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, list):
            return _Layout((path,), job=path == _JOB_TEMPLATE)
    return None


def _walk(
    table: DocumentTable, path: _Path, layout: _Layout, *, count: int = 1
) -> Iterator[TemplateSite]:
    """Yield what *path* leads to; every mapping on the way may ask for several of what it holds."""
    count *= _number(table, "replicas", 1)
    if len(path) <= 1 and layout.job:
        count *= _pods_of_job(table)
    if path == ("template",):
        count *= _number(table, "numOfHosts", 1)
    needed = min(count, _number(table, "minAvailable", count))
    if not path:
        yield TemplateSite(table=table, wanted=1, needed=1)
        return
    for inner in _inner_tables(table, path[0], optional=len(layout.paths) > 1):
        if path[1:]:
            yield from _walk(inner, path[1:], layout, count=count)
        else:
            yield TemplateSite(table=inner, wanted=count, needed=needed)


def _inner_tables(table: DocumentTable, step: str, *, optional: bool) -> tuple[DocumentTable, ...]:
    key = step.strip("[]{}")
    if optional and table.values.get(key) is None:
        return ()
    if step.startswith("["):
        return table.tables(key, required=True)
    inner = DocumentTable.of(table.values.get(key), table.at(key), table.notes)
    if not step.startswith("{"):
        return (inner,)
    return tuple(
        DocumentTable.of(value, inner.at(name), table.notes) for name, value in inner.values.items()
    )


def _number(table: DocumentTable, key: str, default: int) -> int:
    return table.integer(key, default, low=0, high=_MOST)


def _pods_of_job(spec: DocumentTable) -> int:
    """Return how many pods a Job has at the same time; more than complete never start."""
    parallel = _number(spec, "parallelism", 1)
    return min(parallel, _number(spec, "completions", parallel))


def _least(owner: DocumentTable) -> int | None:
    """Return how many pods a gang of all templates has at least, as Volcano and Kubeflow say it."""
    values: object = owner.values.get("spec")
    path = "spec"
    for step in ("runPolicy", "schedulingPolicy", None):
        if not isinstance(values, dict):
            return None
        if "minAvailable" in values:
            return _number(DocumentTable(values, path, owner.notes), "minAvailable", 0)
        values, path = values.get(step), f"{path}.{step}"
    return None


def _with_minimum(found: Sequence[TemplateSite], least: int | None) -> Iterator[TemplateSite]:
    """Yield *found* with the minimum of the whole; one below those of its parts replaces them.

    So does Volcano: a task's minimum counts unless the job's is smaller than all of them together.
    """
    needed, wanted = sum(site.needed for site in found), sum(site.wanted for site in found)
    together = needed if least is None else min(least, wanted)
    for site in found:
        own = site.needed if together >= needed else together if len(found) == 1 else 0
        yield replace(site, needed=own, together=together)


def _argo_pod(template: DocumentTable) -> DocumentTable | None:
    """Return the pod of one template of Argo; ``None`` for one that only calls others."""
    values = template.values
    main = values.get("container") or values.get("script")
    if main is None:
        group = values.get("containerSet")
        if not isinstance(group, dict):
            return None
        containers = group.get("containers")
    elif isinstance(main, dict):
        sidecars = values.get("sidecars")
        containers = [{"name": "main", **main}, *(sidecars if isinstance(sidecars, list) else ())]
    else:
        containers = [main]
    spec = {"containers": containers, "initContainers": values.get("initContainers")}
    pod = {"metadata": values.get("metadata") or {}, "spec": spec}
    return DocumentTable(pod, template.path, template.notes)
