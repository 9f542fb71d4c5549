"""Workloads on a real API server: whoever applies one that never fits reads why at once."""

import pytest
import yaml

from tests.builders.pods import MEMORY, Json, container
from tests.cluster.api import APPLY, wait_for
from tests.cluster.installation import Installation

VOLCANO = "batch.volcano.sh"
MATCHED = {"app": "w"}
CRD = f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: jobs.{VOLCANO}
spec:
  group: {VOLCANO}
  names:
    kind: Job
    plural: jobs
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources:
      status: {{}}
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
"""


def template(memory: int | None, *, restart: str = "Always") -> Json:
    limits = {} if memory is None else {MEMORY: memory}
    spec = {"containers": [container(limits=limits, image="none")], "restartPolicy": restart}
    return {"metadata": {"labels": MATCHED}, "spec": spec}


def deployment(memory: int | None, **spec: object) -> Json:
    selected = {"selector": {"matchLabels": MATCHED}, "template": template(memory)}
    meta = {"metadata": {"name": "w"}, "spec": {**selected, **spec}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", **meta}


def job(memory: int | None) -> Json:
    return {"spec": {"template": template(memory, restart="Never")}}


def shapes(memory: int | None) -> dict[str, Json]:
    """Return a workload of each kind, by the path of its collection."""
    selected = deployment(memory)["spec"]
    named = {"metadata": {"name": "w"}}
    cron = {"schedule": "0 0 * * *", "jobTemplate": job(memory)}
    tasks = {"tasks": [{"replicas": 2, "template": template(memory)}]}
    volcano = {"apiVersion": f"{VOLCANO}/v1alpha1", "kind": "Job"}
    return {
        "apps/v1/deployments": deployment(memory),
        "apps/v1/statefulsets": {**named, "spec": {**selected, "serviceName": "w"}},
        "apps/v1/daemonsets": {**named, "spec": selected},
        "batch/v1/jobs": {**named, **job(memory)},
        "batch/v1/cronjobs": {**named, "spec": cron},
        f"{VOLCANO}/v1alpha1/jobs": {**volcano, **named, "spec": tasks},
    }


def collection(path: str, namespace: str) -> str:
    group, version, plural = path.split("/")
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}"


@pytest.fixture(scope="module", autouse=True)
def volcano(gpu_site: Installation) -> None:
    """Serve jobs as Volcano does, for the registration to match."""
    gpu_site.api.request(
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        yaml.safe_load(CRD),
    )
    wait_for(lambda: gpu_site.api.get(f"/apis/{VOLCANO}/v1alpha1"))


def counted(site: Installation, result: str) -> float:
    return site.first.metric(f'vgpu_workload_reviews_total{{result="{result}"}}')


@pytest.mark.parametrize("path", shapes(None))
def test_who_applies_a_workload_that_never_fits_reads_why(
    gpu_site: Installation, opted_in: str, path: str
) -> None:
    """It is created all the same, and as it was written."""
    before = counted(gpu_site, "warned")

    reply = gpu_site.api.create(collection(path, opted_in), shapes(90000)[path])

    (warning,) = (text for text in reply.warnings if text.startswith("vgpu: "))
    assert 'container "main": asks for 90000 MiB on one GPU; the largest has' in warning
    assert warning.endswith("[GpuMemoryShort]")
    assert len(warning) <= 256
    assert "vgpu-admission.io" not in str(reply.body["spec"])
    assert counted(gpu_site, "warned") == before + 1


@pytest.mark.parametrize("path", shapes(None))
@pytest.mark.parametrize("memory", [None, 3000])
def test_nothing_is_said_about_one_that_fits(
    gpu_site: Installation, opted_in: str, path: str, *, memory: int | None
) -> None:
    """A workload that asks for no GPU is not even sent to us."""
    before = counted(gpu_site, "silent")

    reply = gpu_site.api.create(collection(path, opted_in), shapes(memory)[path])

    assert reply.warnings == ()
    assert counted(gpu_site, "silent") == before + (memory is not None)


def test_only_a_change_of_its_spec_is_judged_again(gpu_site: Installation, opted_in: str) -> None:
    """What controllers annotate is nobody's to be warned of."""
    path = collection("apps/v1/deployments", opted_in)
    gpu_site.api.create(path, deployment(3000))

    noted = gpu_site.api.patch(f"{path}/w", {"metadata": {"annotations": {"a": "b"}}})
    changed = gpu_site.api.patch(f"{path}/w", deployment(90000), kind=APPLY)
    again = gpu_site.api.patch(f"{path}/w", {"metadata": {"annotations": {"a": "c"}}})
    scaled = gpu_site.api.patch(f"{path}/w", {"spec": {"replicas": 3}}, dryRun="All")

    assert [len(reply.warnings) for reply in (noted, changed, again, scaled)] == [0, 1, 0, 1]


def test_namespaces_that_did_not_opt_in_hear_nothing(gpu_site: Installation) -> None:
    """Nor does ours decide about their pods."""
    elsewhere = gpu_site.namespace({})

    reply = gpu_site.api.create(collection("apps/v1/deployments", elsewhere), deployment(90000))

    assert [text for text in reply.warnings if text.startswith("vgpu: ")] == []


def test_the_certificate_reaches_this_registration(gpu_site: Installation) -> None:
    """Without it the API server could not call us, and nobody would notice."""
    assert len(gpu_site.bundles()) == 1


def test_a_pod_leads_on_to_who_wrote_its_template(gpu_site: Installation, opted_in: str) -> None:
    """By the uids of its owners: its ReplicaSet's record names its Deployment, whose record a user.

    A ReplicaSet of a controller is not warned of, and a dry run leaves no record.
    """
    deployments, sets = (
        collection(f"apps/v1/{name}", opted_in) for name in ("deployments", "replicasets")
    )
    gpu_site.api.create(deployments, deployment(90000), dryRun="All")
    owner = gpu_site.api.create(deployments, deployment(90000)).body["metadata"]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "controller": True}
    reference |= {"name": "w", "uid": owner["uid"]}
    made = deployment(90000)
    made |= {"kind": "ReplicaSet", "metadata": {"name": "w-1", "ownerReferences": [reference]}}
    reply = gpu_site.api.create(sets, made)

    def recorded() -> list[Json]:
        lines = gpu_site.first.lines()
        here = [line for line in lines if line.get("namespace") == opted_in]
        return [line for line in here if line.get("kind") == "workload"]

    wait_for(lambda: recorded()[1:])
    first, second = recorded()
    assert (first["operation"], first["user"]) == ("CREATE", "admin")
    assert first["object"] == {"kind": "Deployment", "name": "w", "uid": owner["uid"]}
    assert second["object"]["uid"] == reply.body["metadata"]["uid"]
    assert second["owners"][0]["uid"] == owner["uid"]
    assert first["template"] == second["template"]
    assert [text for text in reply.warnings if text.startswith("vgpu: ")] == []
