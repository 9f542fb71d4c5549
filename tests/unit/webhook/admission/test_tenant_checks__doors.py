"""Ways to a GPU, a limit or another tenant's region that were open once, and stay closed."""

import copy
from typing import Any

import pytest

from allocator.config.settings import Settings
from allocator.model.decision import Reason
from allocator.model.gpu import Snapshot
from allocator.request.containers import MOST_FINDINGS
from tests.builders.pods import (
    GPU_MEM,
    MEMORY,
    MODE,
    Json,
    admitted,
    container,
    decided,
    pod,
    received,
    typed,
    variables,
)
from webhook.admission import ephemeral_containers
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Rewritten, Untouched

CONTEXT = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)
HAMI = {MODE: "hami-core"}
ASKING = pod(container(limits={MEMORY: 3000}), annotations=HAMI)
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def reason(outcome: Outcome) -> Reason | None:
    return outcome.findings.first.reason if isinstance(outcome, Refused) else None


def reading(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def own(key: str) -> str:
    return f"metadata.annotations['vgpu-admission.io/{key}']"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param(VISIBLE, own("c0.cores"), id="cores-as-an-index"),
        pytest.param(VISIBLE, own("c0.memory-0"), id="memory-as-an-index"),
        pytest.param(VISIBLE, own("c0.gpu-index"), id="index"),
        pytest.param(VISIBLE, own("c0.visible.x"), id="longer"),
        pytest.param(VISIBLE, own("c0.visibl"), id="shorter"),
        pytest.param(VISIBLE, own("c0.VISIBLE"), id="capital"),
        pytest.param(VISIBLE, own("c0.nobody-writes"), id="nobodys"),
        pytest.param(VISIBLE, "metadata.annotations['mine']", id="tenants"),
        pytest.param(VISIBLE, own("c0.visible") + "x", id="behind-the-bracket"),
        pytest.param(VISIBLE, "metadata.annotations['vgpu-admission.io/c0.visible", id="cut"),
        pytest.param(VISIBLE, "metadata.uid", id="a-field"),
        pytest.param("CUDA_DISABLE_CONTROL", own("c0.visible"), id="control"),
        pytest.param("CUDA_DISABLE_CONTROL", own("c0.nobody-writes"), id="control-nobodys"),
        pytest.param("VGPU_POD_UID", own("c0.visible"), id="uid"),
        pytest.param("VGPU_POD_UID", own("c0.nobody-writes"), id="uid-nobodys"),
        pytest.param("VGPU_PRELOAD", own("c0.cores"), id="preload"),
        pytest.param("VGPU_PRELOAD", own("c0.nobody-writes"), id="preload-nobodys"),
        pytest.param("LD_PRELOAD", own("c0.preload"), id="a-library"),
        pytest.param("CUDA_DEVICE_MEMORY_LIMIT_0", own("c0.memory-1"), id="another-gpus-limit"),
        pytest.param("CUDA_DEVICE_MEMORY_LIMIT_1", own("c0.memory-0"), id="the-first-gpus-limit"),
        pytest.param("CUDA_DEVICE_MEMORY_LIMIT_0", own("c0.nobody-writes"), id="no-limit"),
        pytest.param("CUDA_DEVICE_SM_LIMIT", own("c0.memory-0"), id="memory-as-compute"),
        pytest.param("CUDA_TASK_PRIORITY", own("c0.cores"), id="priority"),
    ],
)
@pytest.mark.parametrize("annotations", [HAMI, {}], ids=["hami-core", "open"])
def test_a_reserved_variable_reads_only_what_we_let_it_read(
    name: str, path: str, annotations: dict[str, str]
) -> None:
    """An annotation of ours means something else in another variable: 3 % is GPU 3 there."""
    once = admitted(
        received(pod(container(limits={MEMORY: 3000}), annotations=annotations)), CONTEXT
    )
    env = once["spec"]["containers"][0]["env"]
    env[:] = [variable for variable in env if variable["name"] != name]
    env.append(reading(name, path))

    assert reason(decide(typed(once), CONTEXT)) is Reason.RESERVED_VARIABLE


def test_a_copy_may_read_what_another_mode_reads() -> None:
    """It was open when it was admitted first; the Binding writes these annotations always."""
    written = pod(container(limits={MEMORY: 3000}), annotations=HAMI)
    env = [
        reading("CUDA_DEVICE_MEMORY_LIMIT_0", own("c0.memory-0")),
        reading(VISIBLE, own("c0.visible")),
    ]
    written["spec"]["containers"][0]["env"] = env

    assert isinstance(decided(written, CONTEXT), Rewritten)


MOUNTS: dict[str, Json] = {
    "regions-elsewhere": {"name": "vgpu-regions", "mountPath": "/data"},
    "regions-of-all": {"name": "vgpu-regions", "mountPath": "/tmp/vgpu"},
    "regions-of-another": {
        "name": "vgpu-regions",
        "mountPath": "/tmp/vgpu",
        "subPathExpr": "$(VGPU_POD_UID)_other",
    },
    "region-of-another": {
        "name": "vgpu-regions",
        "mountPath": "/tmp/cudevshr.cache",
        "subPathExpr": "$(VGPU_POD_UID)_other/vgpu.cache",
    },
    "region-by-its-directory": {
        "name": "vgpu-regions",
        "mountPath": "/tmp/vgpu",
        "subPathExpr": "$(VGPU_POD_UID)_main",
    },
    "regions-by-a-part": {"name": "vgpu-regions", "mountPath": "/data", "subPath": "uid_main"},
    "regions-upwards": {"name": "vgpu-regions", "mountPath": "/data", "subPath": "."},
    "library-elsewhere": {"name": "vgpu-library", "mountPath": "/data"},
    "library-writable": {
        "name": "vgpu-library",
        "mountPath": "/opt/libvgpu.so",
        "subPath": "libvgpu.so",
    },
    "library-read-only": {"name": "vgpu-library", "mountPath": "/data", "readOnly": True},
    "library-in-tmp": {"name": "vgpu-library", "mountPath": "/tmp", "readOnly": True},
    "library-crooked": {"name": "vgpu-library", "mountPath": "/data/../srv"},
    "library-at-an-empty-path": {"name": "vgpu-library", "mountPath": ""},
}


@pytest.mark.parametrize("mount", MOUNTS.values(), ids=MOUNTS)
@pytest.mark.parametrize("asking", [True, False], ids=["asking", "beside-it"])
def test_our_volumes_are_mounted_as_we_mount_them(mount: Json, *, asking: bool) -> None:
    """Whoever mounts the whole reads and writes every tenant's region on the node."""
    once = admitted(received(pod(container(limits={MEMORY: 3000}), annotations=HAMI)), CONTEXT)
    there = once["spec"]["containers"]
    if asking:
        there[0]["volumeMounts"].append(mount)
    else:
        there.append(container("side", volumeMounts=[mount]))

    outcome = decide(typed(once), CONTEXT)

    assert isinstance(outcome, Refused)
    assert mount["name"] in str(outcome.findings.first)
    assert outcome.findings.first.reason is Reason.RESERVED_MOUNT


@pytest.mark.parametrize("mount", MOUNTS.values(), ids=MOUNTS)
def test_a_debug_container_mounts_none_of_them(mount: Json) -> None:
    """It is added to a pod that has them already."""
    before = admitted(received(ASKING), CONTEXT)
    debug = {"name": "debug", "image": "example.com/d:1", "volumeMounts": [mount]}
    after = copy.deepcopy(before)
    after["spec"]["ephemeralContainers"] = [debug]

    outcome = ephemeral_containers.decide(typed(after), typed(before), CONTEXT)

    assert reason(outcome) is Reason.RESERVED_MOUNT


def test_a_volume_of_that_name_is_free_in_a_pod_without_vgpu() -> None:
    """There it is not ours."""
    mounted = container(volumeMounts=[{"name": "vgpu-library", "mountPath": "/data"}])

    found = pod(mounted, volumes=[{"name": "vgpu-library", "emptyDir": {}}])

    assert isinstance(decided(found, CONTEXT), GpusHidden)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"nvidia.com/none": "0"}, id="nothing-of-nvidias"),
        pytest.param({"nvidia.com/none": "1"}, id="something-of-nvidias"),
        pytest.param({"nvidia.com/hostdev": "1"}, id="nvidias-network-card"),
        pytest.param({"nvidia.com/rdma_shared_device_a": "1"}, id="nvidias-shared-card"),
        pytest.param({"nvidia.com/gpu": "0"}, id="no-gpu"),
        pytest.param({"nvidia.com/gpu": 0}, id="a-number"),
        pytest.param({"nvidia.com/gpu": "0.0"}, id="a-fraction"),
        pytest.param({"nvidia.com/gpu": "0k"}, id="no-thousand"),
        pytest.param({"nvidia.com/gpu": "-1"}, id="less-than-none"),
        pytest.param({"nvidia.com/gpu": ""}, id="empty"),
        pytest.param({"nvidia.com/gpu": "many"}, id="no-number"),
        pytest.param({"nvidia.com/mig-1g.5gb": "0"}, id="no-instance"),
        pytest.param({"volcano.sh/gpu-memory": "0"}, id="no-memory"),
        pytest.param({"koordinator.sh/rdma": "1"}, id="a-network-card"),
        pytest.param({"nvidia.com.example.com/gpu": "1"}, id="another-domain"),
        pytest.param({"example.com/nvidia.com": "1"}, id="somebody-elses"),
        pytest.param({"cpu": "1"}, id="a-processor"),
    ],
)
def test_only_who_gets_a_gpu_elsewhere_keeps_it(limits: Json) -> None:
    """An amount of nothing gives nothing, and an image may ask for all GPUs by itself."""
    found = admitted(received(pod(container(limits=limits))), CONTEXT)

    assert variables(found) == {VISIBLE: "void"}


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/gpu-light",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/gpumem",
        "volcano.sh/gpu-memory",
        "volcano.sh/gpu-number",
        "koordinator.sh/gpu",
        "koordinator.sh/gpu-core",
        "tencent.com/vcuda-core",
        "metax-tech.com/vfio-gpu",
    ],
)
def test_clients_of_other_plugins_keep_their_gpu(name: str) -> None:
    """Unless they name their node: kubelet ignores resources that the node does not have."""
    free = pod(container(limits={name: "1"}))
    placed = pod(container(limits={name: "1"}), nodeName="gpu-1")

    assert isinstance(decided(free, CONTEXT), Untouched)
    assert variables(admitted(received(placed), CONTEXT)) == {VISIBLE: "void"}


@pytest.mark.parametrize("path", ["/run", "/var/run", "/var", "/tmp", "/"])
def test_a_pod_without_vgpu_may_mount_above_the_device_lists(path: str) -> None:
    """As one with a read-only root does: nothing there names a GPU to the runtime."""
    mounted = container(volumeMounts=[{"name": "v", "mountPath": path}])
    volumes: list[Any] = [{"name": "v", "emptyDir": {}}]

    assert isinstance(decided(pod(mounted, volumes=volumes), CONTEXT), GpusHidden)


@pytest.mark.parametrize("limits", [{MEMORY: 3000}, {}], ids=["asking", "plain"])
@pytest.mark.parametrize(
    "path",
    [
        "/var/run/nvidia-container-devices/all",
        "/run/nvidia-container-devices/0",
        "/run/nvidia-container-devices",
        "/run//nvidia-container-devices/0",
        "/run/../run/nvidia-container-devices/GPU-1",
    ],
)
def test_a_mount_that_names_a_gpu_is_refused(path: str, limits: Json) -> None:
    """NVIDIA's runtime reads the list of GPUs from such mounts where it is told to."""
    mounted = container(limits=limits, volumeMounts=[{"name": "v", "mountPath": path}])

    assert reason(decided(pod(mounted), CONTEXT)) is Reason.RESERVED_MOUNT


@pytest.mark.parametrize(
    ("limits", "annotations", "refused"),
    [
        pytest.param({}, {}, False, id="no-gpu"),
        pytest.param({MEMORY: 3000}, {MODE: "mig"}, False, id="mig"),
        pytest.param({GPU_MEM: 2}, {}, False, id="memory-only"),
        pytest.param({MEMORY: 3000}, HAMI, True, id="hami-core"),
        pytest.param({MEMORY: 3000}, {}, True, id="open"),
    ],
)
def test_the_order_of_devices_matters_only_where_limits_are_numbered(
    limits: Json, annotations: dict[str, str], *, refused: bool
) -> None:
    """Limit k applies to the k-th device; without limits the order is the program's own."""
    env = [{"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"}]
    found = pod(container(limits=limits, env=env), annotations=annotations)

    assert (reason(decided(found, CONTEXT)) is Reason.RESERVED_VARIABLE) is refused


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"env": [{"name": "LD_PRELOAD", "value": "x"}] * 4000}, id="variables"),
        pytest.param(
            {
                "volumeMounts": [
                    {"name": "v", "mountPath": f"/etc/ld.so.preload/{i}"} for i in range(4000)
                ]
            },
            id="mounts",
        ),
    ],
)
def test_what_is_wrong_is_said_of_the_first_few(more: Json) -> None:
    """Thousands of sentences helped nobody, and everybody waited while they were written."""
    outcome = decided(pod(container(limits={MEMORY: 3000}, **more), annotations=HAMI), CONTEXT)

    assert isinstance(outcome, Refused)
    assert len(outcome.findings.all) == MOST_FINDINGS
