"""Pods in mode mps: what a container gets, and what a tenant may neither set nor mount."""

import pytest

from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import FleetScope, Prefer, Settings
from allocator.model.decision import Reason
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import Mode
from tests.builders.model import A100_40, nodes_of, snapshot
from tests.builders.pods import (
    CORES,
    MEMORY,
    MODE,
    NUMBER,
    Json,
    admitted,
    container,
    decided,
    pod,
    received,
    typed,
    variables,
)
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.outcome import Outcome, Refused, Rewritten

CONTEXT = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)
MPS = {MODE: "mps"}
SHARE: dict[str, object] = {NUMBER: 1, MEMORY: 3000, CORES: 30}
FORGED = "metadata.annotations['vgpu-admission.io/{}']"


def asking(annotations: dict[str, str] = MPS, **more: list[Json]) -> Json:
    return pod(container(limits=SHARE) | more, annotations=annotations)


def reason(outcome: Outcome) -> Reason | None:
    return outcome.findings.first.reason if isinstance(outcome, Refused) else None


def test_a_container_gets_its_limits_and_nothing_of_the_library() -> None:
    """Memory and compute of each process are those that were asked for."""
    found = variables(admitted(received(asking()), CONTEXT))

    assert found["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3000M"
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert found["CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"] == "0"
    assert "LD_PRELOAD" not in found


def test_memory_that_is_not_known_yet_is_read_at_the_bind() -> None:
    """All memory, or a percentage of it, is an amount only once the GPU is known."""
    found = variables(
        admitted(received(pod(container(limits={NUMBER: 1}), annotations=MPS)), CONTEXT)
    )

    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == FORGED.format("c0.mps-memory")


def test_without_cores_there_is_no_cap() -> None:
    """0 percent would let no process run."""
    found = variables(
        admitted(received(pod(container(limits={NUMBER: 1, CORES: 0}), annotations=MPS)), CONTEXT)
    )

    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"


def test_what_we_wrote_passes_again() -> None:
    """A second pass finds its own variables, and changes none."""
    once = admitted(received(asking()), CONTEXT)

    assert variables(admitted(once, CONTEXT)) == variables(once)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mine"),
        ("CUDA_MPS_PIPE_DIRECTORY", ""),
        ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps/"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps\n"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3000G"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3001M"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3000M,0=80G"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1=3000M"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=$(LIMIT)M"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "030"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30 "),
        ("CUDA_MPS_CLIENT_PRIORITY", "0"),
        ("CUDA_MPS_CLIENT_PRIORITY", "-1"),
        ("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "1"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
    ],
)
def test_no_tenant_sets_a_variable_of_the_mode(name: str, value: str) -> None:
    """Limits, priority and daemon are ours, in whatever words another value comes."""
    written = asking(env=[{"name": name, "value": value}])

    assert reason(decided(written, CONTEXT)) is Reason.RESERVED_VARIABLE


@pytest.mark.parametrize(
    "path",
    [
        FORGED.format("c0.visible"),
        FORGED.format("c0.memory-0"),
        FORGED.format("c0.cores"),
        FORGED.format("i0.mps-memory"),
        FORGED.format("c0.mps-memory") + "x",
        FORGED.format("c0.mps-memory.x"),
        FORGED.format("c0.MPS-MEMORY"),
        FORGED.format("c0.nobody-writes"),
        "metadata.annotations['mps-memory']",
        "metadata.annotations['vgpu-admission.io/c0.mps-memory",
        "metadata.uid",
        "metadata.labels['mine']",
    ],
)
def test_the_memory_limit_reads_its_own_annotation_only(path: str) -> None:
    """Any other text is no limit that the driver takes, or another container's."""
    field = {"valueFrom": {"fieldRef": {"fieldPath": path}}}
    for name in ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"):
        written = asking(env=[{"name": name, **field}])
        assert reason(decided(written, CONTEXT)) is Reason.RESERVED_VARIABLE


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/nvidia-mps",
        "/tmp/nvidia-mps/",
        "/tmp//nvidia-mps",
        "//tmp/nvidia-mps",
        "/tmp/./nvidia-mps",
        "/tmp/x/../nvidia-mps",
        "/tmp/nvidia-mps/control",
        "/../tmp/nvidia-mps",
        "tmp/nvidia-mps",
        "/dev/shm",
        "/dev/shm/",
        "/dev/shm/x",
        "/dev/../dev/shm",
        "/dev//shm",
        "dev/shm",
    ],
)
def test_no_tenant_mounts_where_the_daemon_is_reached(path: str) -> None:
    """A folder of the tenant there would hide the daemon, and in other modes it is nobody's."""
    mounted = [{"name": "v", "mountPath": path}]
    soft = asking({MODE: "hami-core"}, volumeMounts=mounted)
    written = asking(volumeMounts=mounted)
    for one in (soft, written):
        one["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]

    assert reason(decided(written, CONTEXT)) is Reason.RESERVED_MOUNT
    assert reason(decided(soft, CONTEXT)) is None


@pytest.mark.parametrize("path", ["/tmp", "/tmp/nvidia-mps2", "/tmp/nvidia", "/dev/shmem", "/run"])
def test_a_mount_beside_the_daemon_is_the_tenants(path: str) -> None:
    """Folders at ``/tmp`` are common, and ours is mounted above them."""
    written = asking(volumeMounts=[{"name": "v", "mountPath": path}])
    written["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]

    assert reason(decided(written, CONTEXT)) is None


@pytest.mark.parametrize(
    "path",
    ["/usr/local/vgpu", "/usr/local/vgpu/mps", "/usr/local/vgpu/mps/GPU-1/pipe", "/usr/local/"],
)
def test_no_tenant_mounts_a_daemon_of_the_node(path: str) -> None:
    """Whoever reaches the folders of a daemon reaches the GPU of other pods."""
    written = asking()
    written["spec"]["volumes"] = [{"name": "v", "hostPath": {"path": path}}]

    assert reason(decided(written, CONTEXT)) is Reason.RESERVED_MOUNT


@pytest.mark.parametrize(
    ("name", "value"),
    [("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mine"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")],
)
def test_other_modes_leave_the_variables_to_the_tenant(name: str, value: str) -> None:
    """A daemon of the tenant's own shares what the pod has, and no more."""
    written = asking({MODE: "hami-core"}, env=[{"name": name, "value": value}])

    assert reason(decided(written, CONTEXT)) is None


@pytest.mark.parametrize("count", ["2", "8"])
def test_a_container_gets_one_gpu(count: str) -> None:
    """A process reaches the daemon of one GPU, and would run without limits on the others."""
    written = pod(container(limits={NUMBER: count, MEMORY: 3000}), annotations=MPS)

    assert reason(decided(written, CONTEXT)) is Reason.CONFLICTING


@pytest.mark.parametrize(
    ("level", "refused"),
    [("memory-only", False), ("hami-core", False), ("mig", True), ("mps", True), ("", True)],
)
def test_a_namespace_admits_the_mode_like_hami_core(level: str, refused: bool) -> None:
    """It is as strong, and weaker than mig; a demand that nobody can read admits nothing."""
    context = AdmissionContext(
        settings=Settings(),
        snapshot=Snapshot(version="1"),
        host_paths=True,
        namespace=NamespacePolicy(min_isolation=level),
    )

    assert reason(decided(asking(), context)) is (Reason.ISOLATION if refused else None)


IN_MPS = nodes_of(8, A100_40, mode=Mode.MPS, name="mps")


@pytest.mark.parametrize("prefer", list(Prefer))
@pytest.mark.parametrize("nodes", [(IN_MPS,), (IN_MPS, nodes_of(1, A100_40, name="soft"))])
def test_no_pod_becomes_mps_by_itself(prefer: Prefer, nodes: tuple[Node, ...]) -> None:
    """Whatever is preferred and whatever there is, a person has to name the mode."""
    settings = Settings(prefer=prefer, fleet=FleetScope.CLOSED)
    context = AdmissionContext(settings=settings, snapshot=snapshot(*nodes), host_paths=True)
    outcome = decide(typed(received(asking({}))), context)
    assert not isinstance(outcome, Rewritten) or outcome.choice.mode is not Mode.MPS
