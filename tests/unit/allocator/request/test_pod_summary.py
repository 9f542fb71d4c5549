"""A few facts of a pod are all that decides about its promises."""

import json

import pytest

from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.request.pod_summary import MOST_RESOURCES, PodSummary, pod_summary
from tests.builders.gpunodes import Json
from tests.builders.pods import MEMORY, NUMBER, container, pod

SLICE = container(limits={NUMBER: 1, MEMORY: 3000, "cpu": "2"})


def read(written: Json) -> PodSummary:
    return pod_summary(json.dumps(written).encode())


def test_a_pod_is_read() -> None:
    """Who it is, where it is, whether it is over, what it asks for, and its assignment."""
    written = pod(SLICE, SLICE, nodeName="n0")
    annotations = {
        "vgpu-admission.io/assignment": "[]",
        "scheduling.k8s.io/group-name": "gang",
        "other": "x",
    }
    written["metadata"] |= {"uid": "a", "annotations": annotations, "deletionTimestamp": "now"}
    written["status"] = {"phase": "Failed"}

    assert read(written) == PodSummary(
        uid="a",
        namespace="team-a",
        name="p",
        node="n0",
        deleting=True,
        over=True,
        extended=(NUMBER, MEMORY),
        assignment_json="[]",
        group="gang",
    )


def test_little_is_enough() -> None:
    """A pod without spec or annotations is waiting for all we know."""
    assert read({"metadata": {"uid": "a"}}) == PodSummary(
        uid="a", node="", deleting=False, over=False
    )


@pytest.mark.parametrize(
    ("limits", "asks"),
    [
        pytest.param({NUMBER: 1}, True, id="ours"),
        pytest.param({"volcano.sh/vgpu-misspelt": 1}, True, id="our-prefix"),
        pytest.param({"nvidia.com/gpu": 1, "cpu": 1}, False, id="foreign"),
        pytest.param({}, False, id="nothing"),
        pytest.param({NUMBER: "0"}, False, id="none-of-ours"),
        pytest.param({NUMBER: 0}, False, id="none-as-a-number"),
        pytest.param({NUMBER: "0", MEMORY: "3000"}, True, id="none-with-memory"),
        pytest.param({NUMBER: "00"}, True, id="what-no-api-server-writes"),
    ],
)
def test_what_asks_for_vgpu(limits: Json, *, asks: bool) -> None:
    """The vocabularies of the cluster say so, for containers of either kind."""
    asking = container(limits=limits)

    assert read(_with_uid(pod(asking))).requests_gpus(VOCABULARIES) is asks
    assert read(_with_uid(pod(container(), init=[asking]))).requests_gpus(VOCABULARIES) is asks


def _with_uid(written: Json) -> Json:
    return written | {"metadata": {**written["metadata"], "uid": "a"}}


def test_little_is_kept_of_a_pod_that_names_much() -> None:
    """Thousands of such pods may wait for ever; the request is found among all that junk."""
    junk = {f"example.com/{'x' * 200}{number}": "1" for number in range(4000)}
    waiting = pod(container(limits=junk | {MEMORY: 3000}))
    waiting["metadata"] |= {"uid": "a", "annotations": {ASSIGNMENT_KEY: "x" * 200_000}}

    found = read(waiting)

    assert len(found.extended) == MOST_RESOURCES
    assert found.requests_gpus(VOCABULARIES)
    assert found.assignment_json == ""
    assert read(waiting | {"spec": {"nodeName": "n0"}}).assignment_json != ""
