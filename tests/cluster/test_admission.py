"""Pods that a real API server sends through our webhook: what is asked, and what is stored."""

from collections.abc import Mapping

import pytest

from allocator.request.quantity import canonical
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
from tests.cluster.api import Json, wait_for
from tests.cluster.installation import PODS, Installation, sample

OURS = "vgpu-admission.io/"


def modes(found: Json) -> tuple[str, str]:
    """Return the mode that a pod carries, wherever it stands, and how it came about."""
    annotations = found["metadata"]["annotations"]
    mode = annotations.get(MODE) or annotations[f"{OURS}mode"]
    return mode, annotations[f"{OURS}mode-source"]


@pytest.mark.parametrize(
    ("name", "mode", "source"),
    [
        # 1 slot of 8 withholds less than 3000 of 15360 MiB.
        pytest.param("01-three-gigabytes", "mig", "best", id="unnamed"),
        pytest.param("02-soft-slice", "hami-core", "named", id="hami-core"),
        pytest.param("03-hardware-slice", "mig", "named", id="mig"),
        pytest.param("04-two-gpus", "hami-core", "only", id="two-gpus-volcano"),
        pytest.param("05-half-a-gpu", "mig", "only", id="percentage-filtered"),
        pytest.param("06-gpushare", "memory-only", "only", id="gpushare"),
    ],
)
def test_a_request_leaves_with_a_mode(
    gpu_site: Installation, opted_in: str, *, name: str, mode: str, source: str
) -> None:
    """What is best, or what the pod says, is on the pod that is stored, with its injection."""
    found = gpu_site.stored(opted_in, sample(name))

    env = variables(found)
    assert modes(found) == (mode, source)
    assert env["NVIDIA_VISIBLE_DEVICES"] == f"metadata.annotations['{OURS}c0.visible']"
    assert found["metadata"]["annotations"][f"{OURS}decision"]


def test_vc_scheduler_stays_free_to_choose(gpu_site: Installation, opted_in: str) -> None:
    """It takes its own annotation as a must, so a mode that may be revised stands beside it."""
    wanted = sample("01-three-gigabytes")
    wanted["spec"]["schedulerName"] = "volcano"
    annotations = gpu_site.stored(opted_in, wanted)["metadata"]["annotations"]

    assert annotations[f"{OURS}mode"] == "mig"
    assert MODE not in annotations


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        pytest.param("V100", "hami-core", id="five-fields"),
        pytest.param("A30", "mig", id="six-fields"),
    ],
)
def test_a_register_annotation_is_inventory(
    gpu_site: Installation, opted_in: str, *, model: str, mode: str
) -> None:
    """What Volcano's plugin says of a node decides about pods as our agent's word does."""
    wish = pod(annotations={"nvidia.com/use-gputype": model})

    assert modes(gpu_site.stored(opted_in, wish)) == (mode, "only")


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({NUMBER: 1, MEMORY: 3000}, id="thousands"),
        pytest.param({NUMBER: "1", MEMORY: "3e3"}, id="exponent"),
        pytest.param({NUMBER: 2, MEMORY: 3000, CORES: 50}, id="all-three"),
        pytest.param({MEMORY: 3000}, id="no-number"),
        pytest.param({NUMBER: 1, PERCENT: 50}, id="percentage"),
        pytest.param({GPU_MEM: 2}, id="gpushare"),
    ],
)
def test_amounts_stay_what_was_asked(
    gpu_site: Installation, opted_in: str, limits: Mapping[str, object]
) -> None:
    """Requests equal limits, nothing that was asked for is gone, and the slot is there."""
    found = gpu_site.stored(opted_in, pod(container(limits=limits)))

    resources = found["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    asked = {k: canonical(v) if isinstance(v, int) else v for k, v in limits.items()}
    assert resources["limits"] == {NUMBER: "1", **asked}


def test_a_limit_is_written_in_mib(gpu_site: Installation, opted_in: str) -> None:
    """The API server says 3k, and the interception library reads 3000m."""
    found = gpu_site.stored(opted_in, sample("02-soft-slice"))

    assert found["spec"]["containers"][0]["resources"]["limits"][MEMORY] == "3k"
    limits = {k: v for k, v in variables(found).items() if "LIMIT" in k}
    assert limits == {
        "CUDA_DEVICE_MEMORY_LIMIT": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "50",
        "CUDA_DEVICE_SM_LIMIT_0": "50",
    }


def test_init_containers_are_injected_too(gpu_site: Installation, opted_in: str) -> None:
    """Each kind of container reads annotations of its own."""
    asking = container("first", {NUMBER: 1, MEMORY: 1000})
    sidecar = container("aside", {NUMBER: 1, MEMORY: 1000}, restartPolicy="Always")

    found = gpu_site.stored(opted_in, pod(container(), init=[asking, sidecar]))

    read = [
        variables(found, name, kind)["NVIDIA_VISIBLE_DEVICES"]
        for kind, name in (
            ("initContainers", "first"),
            ("initContainers", "aside"),
            ("containers", "main"),
        )
    ]
    keys = [f"metadata.annotations['{OURS}{key}.visible']" for key in ("i0", "i1")]
    assert read == [*keys, "void"]


def test_who_asks_for_nothing_sees_nothing(gpu_site: Installation, opted_in: str) -> None:
    """GPUs are hidden from a pod without a request, and nothing else is done to it."""
    found = gpu_site.stored(opted_in, sample("10-no-gpu"))

    assert variables(found) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert "annotations" not in found["metadata"]
    assert found["spec"]["containers"][0]["resources"] == {}


def test_init_containers_of_a_pod_without_request_see_nothing(
    gpu_site: Installation, opted_in: str
) -> None:
    """They run beside others' GPUs as its containers do."""
    found = gpu_site.stored(opted_in, pod(container(), init=[container("first")]))

    assert variables(found, "first", "initContainers") == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_volume_of_our_name_is_ours_by_its_path(gpu_site: Installation, opted_in: str) -> None:
    """A tenant who calls a folder of the node as we call ours is refused."""
    folder = {"name": "vgpu-library", "hostPath": {"path": "/usr/local"}}

    text = gpu_site.refusal(opted_in, pod(annotations={MODE: "hami-core"}, volumes=[folder]))

    assert 'volume "vgpu-library" has a name reserved for vGPU volumes' in text


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_pod_security_admits_a_slice(gpu_site: Installation, level: str) -> None:
    """Where hostPath is forbidden the agent mounts the library, so the pod has no volume of it."""
    where = gpu_site.namespace(
        {"vgpu-admission.io/inject": "enabled", "pod-security.kubernetes.io/enforce": level}
    )
    strict = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    asking = container(limits={NUMBER: 1, MEMORY: 3000}, securityContext=strict)

    found = gpu_site.stored(where, pod(asking, annotations={MODE: "hami-core"}))

    assert "volumes" not in found["spec"]
    assert variables(found)["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


def test_elsewhere_the_library_is_mounted(gpu_site: Installation, opted_in: str) -> None:
    """Once the namespace is known to admit hostPath, the pod brings the library along."""
    soft = sample("02-soft-slice")
    volumes = wait_for(
        lambda: gpu_site.create(opted_in, soft, dryRun="All").body["spec"].get("volumes")
    )

    found = gpu_site.stored(opted_in, soft)

    assert found["spec"]["volumes"] == volumes
    paths = [mount["mountPath"] for mount in found["spec"]["containers"][0]["volumeMounts"]]
    assert "/etc/ld.so.preload" in paths
    assert "volumeMounts" not in found["spec"]["containers"][1]


def test_a_namespace_has_preferences_of_its_own(gpu_site: Installation) -> None:
    """Its annotation decides between modes that both serve."""
    where = gpu_site.namespace()
    dense = {"metadata": {"annotations": {f"{OURS}prefer": "density"}}}
    wish = pod(annotations={"nvidia.com/use-gputype": "A100,V100"})
    before = modes(gpu_site.create(where, wish, dryRun="All").body)

    gpu_site.api.patch(f"/api/v1/namespaces/{where}", dense)

    assert before == ("mig", "best")
    wait_for(
        lambda: modes(gpu_site.create(where, wish, dryRun="All").body) == ("hami-core", "best")
    )


def test_an_admitted_pod_can_be_labelled(gpu_site: Installation, opted_in: str) -> None:
    """An update is nobody's business here."""
    found = gpu_site.stored(opted_in, pod())
    path = f"{PODS.format(opted_in)}/{found['metadata']['name']}"

    labelled = gpu_site.api.patch(path, {"metadata": {"labels": {"team": "a"}}}).body

    assert labelled["metadata"]["labels"] == {"team": "a"}
    assert labelled["spec"] == found["spec"]


@pytest.mark.parametrize("amount", ["1", "0"])
def test_a_request_without_limit_is_refused_by_either(
    gpu_site: Installation, opted_in: str, amount: str
) -> None:
    """The API server refuses it whatever we say; in our words it names what to write."""
    written = pod(container(resources={"requests": {MEMORY: amount}}))

    ours = gpu_site.refusal(opted_in, written)
    theirs = gpu_site.refusal(gpu_site.namespace({}), written)

    assert f"the API server wants a limit for it; set {MEMORY} in limits" in ours
    assert "Limit must be set for non overcommitable resources" in theirs


def test_what_may_go_wrong_later_is_said_when_the_pod_is_created(
    gpu_site: Installation, opted_in: str
) -> None:
    """A real API server hands each warning on whole."""
    written = pod(
        annotations={"volcano.sh/vgpu-mod": "mig"},
        resourceClaims=[{"name": "nic", "resourceClaimName": "nic-0"}],
    )

    warnings = gpu_site.create(opted_in, written, dryRun="All").warnings

    assert any(text.endswith("asks our extender, or remove resourceClaims") for text in warnings)
    misspelt = "vgpu: pod: annotation volcano.sh/vgpu-mod is not read; use volcano.sh/vgpu-mode"
    assert misspelt in warnings
