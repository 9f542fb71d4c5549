"""Objects of the demo, as an API server makes them."""

import orjson

from demo.objects import (
    binding_object,
    creator,
    made_uid,
    owner_name,
    pod_object,
    replica_set_object,
    review,
    workload_object,
)
from demo.story import PodMaker, StoryWorkload
from webhook.review.admission_review import parse


def workload(kind: PodMaker) -> StoryWorkload:
    return StoryWorkload(
        at="00:00",
        person="mia@example.com",
        team="vision",
        namespace="vision",
        name="segment",
        kind=kind,
        limits={"volcano.sh/vgpu-number": 1},
        annotations={"a": "b"},
        env={"X": "1"},
        privileged=True,
    )


def test_uids_follow_from_what_they_name() -> None:
    """Each run of the demo has the same ones, and no two objects share one."""
    assert made_uid("a", 1) == made_uid("a", 1) != made_uid("a", 2)
    assert [len(part) for part in made_uid("a").split("-")] == [8, 4, 4, 4, 12]


def test_controllers_create_the_pods_of_workloads() -> None:
    """A pod of a Deployment is owned by its ReplicaSet, and that controller asks for it."""
    deployment = workload(PodMaker.DEPLOYMENT)

    pod = pod_object(deployment, "uid-1")

    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ReplicaSet", owner_name(deployment, "uid-1"))
    assert pod["metadata"]["generateName"] == f"{owner['name']}-"
    assert creator(deployment)["username"].endswith(":replicaset-controller")
    assert creator(workload(PodMaker.JOB))["username"].endswith(":job-controller")


def test_a_deployment_leads_from_the_pod_to_the_person() -> None:
    """Each object names the next one as its controller."""
    deployment = workload(PodMaker.DEPLOYMENT)

    (of_pod,) = pod_object(deployment, "uid-1")["metadata"]["ownerReferences"]
    replicas = replica_set_object(deployment, "uid-1")["metadata"]
    (of_replicas,) = replicas["ownerReferences"]

    assert of_pod["uid"] == replicas["uid"]
    assert of_replicas["uid"] == workload_object(deployment, "uid-1")["metadata"]["uid"]


def test_a_person_creates_a_pod_without_a_controller() -> None:
    """Then the pod has a name and no owner."""
    alone = workload(PodMaker.POD)

    pod = pod_object(alone, "uid-1")

    assert pod["metadata"]["name"] == "segment"
    assert "ownerReferences" not in pod["metadata"]
    assert creator(alone) == {
        "username": "mia@example.com",
        "groups": ["vision", "system:authenticated"],
    }


def test_a_template_holds_all_that_the_story_says() -> None:
    """What is refused is refused for what the story wrote."""
    (container,) = workload_object(workload(PodMaker.JOB), "u")["spec"]["template"]["spec"][
        "containers"
    ]

    assert container["env"] == [{"name": "X", "value": "1"}]
    assert container["securityContext"] == {"privileged": True}
    assert container["resources"]["limits"] == {"volcano.sh/vgpu-number": "1"}


def test_the_webhook_reads_the_reviews() -> None:
    """They are reviews as the API server sends them."""
    job = workload(PodMaker.JOB)
    kind = {"group": "", "version": "v1", "kind": "Pod"}

    read = parse(review(kind, pod_object(job, "u"), creator(job), uid="r-1")).request

    assert (read.uid, read.namespace, read.operation) == ("r-1", "vision", "CREATE")
    assert read.user_info.username.endswith(":job-controller")
    assert not read.dry_run


def test_a_binding_names_the_pod_with_its_uid() -> None:
    """A pod that was recreated under the name is not bound."""
    pod = {"metadata": {"name": "p", "namespace": "a", "uid": "u", "labels": {}}}

    found = binding_object(pod, "n0")

    assert found["metadata"] == {"name": "p", "namespace": "a", "uid": "u"}
    assert orjson.dumps(found["target"]) == b'{"apiVersion":"v1","kind":"Node","name":"n0"}'
