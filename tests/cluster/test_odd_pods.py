"""Odd and large pods: whatever the API server would store, our patch does not spoil."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders.pods import (
    CORES,
    GPU_MEM,
    MEMORY,
    MODE,
    NUMBER,
    PERCENT,
    container,
    pod,
    variables,
)
from tests.cluster.api import Json
from tests.cluster.installation import PODS, Installation

OURS = 'vgpu-admission.io" denied the request: '

amounts = st.sampled_from([0, 1, 2, 17, 3000, "3k", "3e3", "3Gi", "1500m", "0", "80", "100000"])
limits = st.dictionaries(
    st.sampled_from([NUMBER, MEMORY, PERCENT, CORES, GPU_MEM, "cpu", "example.com/nic"]),
    amounts,
    max_size=4,
)
values: st.SearchStrategy[Mapping[str, object]] = st.sampled_from(
    [
        {"value": ""},
        {"value": "a~1/b\n\u2028%$(A)"},
        {},
        {"value": None},
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a/b']"}}},
        {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
)
names = st.sampled_from(
    ["A", "B", "PATH", "LD_PRELOAD", "NVIDIA_VISIBLE_DEVICES", "CUDA_TASK_PRIORITY", "NVIDIA_X"]
)
env = st.lists(st.builds(lambda name, value: {"name": name, **value}, names, values), max_size=4)
mounts = st.lists(
    st.builds(
        lambda name, path: {"name": name, "mountPath": path},
        st.sampled_from(["v", "vgpu-library"]),
        st.sampled_from(["/data", "/data/", "/tmp", "/tmp/vgpu", "/etc/ld.so.preload", "/usr"]),
    ),
    max_size=2,
)
# Null and empty are told apart from absent: each is a different parent to a patch.
odd = {
    "resources": st.one_of(
        st.builds(lambda found: {"limits": found}, limits),
        st.builds(lambda found: {"limits": found, "requests": found}, limits),
        st.sampled_from([None, {}, {"limits": None}, {"limits": {}, "requests": None}]),
    ),
    "env": st.one_of(st.none(), env),
    "envFrom": st.sampled_from([None, [], [{"prefix": "P_", "configMapRef": {"name": "c"}}]]),
    "volumeMounts": st.one_of(st.none(), mounts),
    "securityContext": st.sampled_from([None, {}, {"privileged": True}, {"runAsUser": 7}]),
}


def containers(prefix: str, least: int) -> st.SearchStrategy[list[Json]]:
    one = st.fixed_dictionaries({}, optional=odd)
    return st.lists(one, min_size=least, max_size=3).map(
        lambda found: [container(f"{prefix}{i}", **item) for i, item in enumerate(found)]
    )


annotations = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from([MODE, "a/b", "nvidia.com/use-gputype", "vgpu-admission.io/asked", "x"]),
        st.sampled_from(["mig", "hami-core", "", "A100", "~1", "{}", "\u00e9\U0001f600"]),
        max_size=3,
    ),
)
volumes = st.sampled_from(
    [
        None,
        [],
        [{"name": "v", "emptyDir": {}}],
        [{"name": "v", "configMap": {"name": "c"}}, {"name": "vgpu-library", "emptyDir": {}}],
        [{"name": "v", "hostPath": {"path": "/dev/shm"}}],
    ]
)


@st.composite
def pods(draw: st.DrawFn) -> Json:
    found = pod(*draw(containers("c", 1)), init=draw(containers("i", 0)))
    found["metadata"] = {
        **draw(st.sampled_from([{"name": "p"}, {"generateName": "p-"}])),
        "annotations": draw(annotations),
        "labels": draw(st.sampled_from([None, {}, {"a": "b"}])),
    }
    found["spec"] |= {"volumes": draw(volumes), "schedulerName": draw(st.sampled_from(SCHEDULERS))}
    return found


SCHEDULERS = ["", "volcano", "default-scheduler"]


@pytest.fixture(scope="module")
def namespaces(gpu_site: Installation) -> tuple[str, str]:
    """Return a namespace that opted in and one that did not."""
    return gpu_site.namespace(), gpu_site.namespace({})


@settings(
    max_examples=200,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # each pod is two calls of an API server
)
@given(written=pods())
def test_no_patch_of_ours_spoils_a_pod(
    gpu_site: Installation, namespaces: tuple[str, str], written: Json
) -> None:
    """A pod that may exist elsewhere exists here too, or we say why not; nothing in between."""
    opted_in, elsewhere = namespaces

    here, there = gpu_site.refusal(opted_in, written), gpu_site.refusal(elsewhere, written)

    assert here == "" or OURS in here or there != ""
    assert "nternal error" not in here


def test_forty_containers_of_sixteen_gpus(gpu_site: Installation, opted_in: str) -> None:
    """The largest patch that a request can ask for is applied whole."""
    asking = [container(f"c{i}", {NUMBER: 16, MEMORY: 500, CORES: 5}) for i in range(40)]

    found = gpu_site.stored(opted_in, pod(*asking, annotations={MODE: "hami-core"}))

    counts = {len(variables(found, f"c{i}")) for i in range(40)}
    assert len(counts) == 1
    assert variables(found, "c39")["CUDA_DEVICE_MEMORY_LIMIT_15"] == "500m"
    assert variables(found, "c39")["NVIDIA_VISIBLE_DEVICES"].endswith("/c39.visible']")


def test_ten_thousand_variables(gpu_site: Installation, opted_in: str) -> None:
    """What its user brought stays, in order, and ours come last so that they win."""
    brought = [{"name": f"V{i}", "value": "x" * 20} for i in range(2500)]
    asking = [container(f"c{i}", {NUMBER: 1, MEMORY: 500}, env=brought) for i in range(4)]

    found = gpu_site.create(opted_in, pod(*asking), dryRun="All").body

    for item in found["spec"]["containers"]:
        assert item["env"][:2500] == brought
        assert item["env"][2500]["name"] == "NVIDIA_VISIBLE_DEVICES"


def test_more_variables_than_anybody_needs(gpu_site: Installation, opted_in: str) -> None:
    """A pod that would only keep us busy is refused, in words, and not by a failure."""
    brought = [{"name": f"V{i}"} for i in range(5000)]

    refusal = gpu_site.refusal(opted_in, pod(container(limits={NUMBER: 1}, env=brought)))

    assert OURS in refusal
    assert "[UnreadablePod]" in refusal
    assert gpu_site.api.get(PODS.format(opted_in))["items"] == []
