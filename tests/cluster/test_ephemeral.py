"""Debug containers that a real API server lets into pods: blind, or refused."""

import pytest

from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import STRATEGIC, ApiError, Json
from tests.cluster.installation import PODS, Installation

SEES_ALL = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


def debugged(site: Installation, namespace: str, *containers: Json) -> Json:
    """Do what `kubectl debug` does to the pod, and return its debug containers by name."""
    path = f"{PODS.format(namespace)}/p/ephemeralcontainers"
    change = {"spec": {"ephemeralContainers": list(containers)}}
    found = site.api.patch(path, change, kind=STRATEGIC).body["spec"]["ephemeralContainers"]
    return {item["name"]: item for item in found}


@pytest.mark.parametrize("limits", [{NUMBER: 1, MEMORY: 3000}, {}], ids=["vgpu", "no-gpu"])
def test_a_debug_container_is_blind(
    gpu_site: Installation, opted_in: str, limits: dict[str, int]
) -> None:
    """It sees no GPU, whether the pod it looks into has one or not, and neither does the next."""
    gpu_site.create(opted_in, pod(container(limits=limits)))

    debugged(gpu_site, opted_in, container("first"))
    found = debugged(gpu_site, opted_in, container("second", env=[{"name": "A", "value": "b"}]))

    void = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert found["first"]["env"] == [void]
    assert found["second"]["env"] == [{"name": "A", "value": "b"}, void]


@pytest.mark.parametrize(
    ("added", "words"),
    [
        pytest.param(container("d", {NUMBER: 1}), "cannot ask for GPUs", id="resources"),
        pytest.param(
            container("d", securityContext={"privileged": True}), "sees every GPU", id="privileged"
        ),
        pytest.param(container("d", env=SEES_ALL), "NVIDIA_VISIBLE_DEVICES is", id="sees-all"),
    ],
)
def test_a_debug_container_may_not_reach_for_gpus(
    gpu_site: Installation, opted_in: str, *, added: Json, words: str
) -> None:
    """What would see more than its pod was given is refused with a reason."""
    gpu_site.create(opted_in, pod(annotations={MODE: "hami-core"}))

    with pytest.raises(ApiError, match=words) as refused:
        debugged(gpu_site, opted_in, added)

    told = 'admission webhook "ephemeral.vgpu-admission.io" denied the request: ephemeral container'
    assert refused.value.message.startswith(told)


def test_a_pod_whose_init_container_asks_has_gpus(gpu_site: Installation, opted_in: str) -> None:
    """A privileged debug container would see what its init container was given."""
    asking = container("first", {NUMBER: 1, MEMORY: 3000})
    gpu_site.create(opted_in, pod(container(), init=[asking]))

    with pytest.raises(ApiError, match="sees every GPU"):
        debugged(gpu_site, opted_in, container("d", securityContext={"privileged": True}))


def test_a_debug_container_of_a_pod_without_gpu_may_not_see_all(
    gpu_site: Installation, opted_in: str
) -> None:
    """Such a pod may run beside others' GPUs; what else its debugger may do is not our concern."""
    gpu_site.create(opted_in, pod(container()))
    debugged(gpu_site, opted_in, container("d", securityContext={"privileged": True}))

    with pytest.raises(ApiError, match="NVIDIA_VISIBLE_DEVICES is reserved"):
        debugged(gpu_site, opted_in, container("e", env=SEES_ALL))
