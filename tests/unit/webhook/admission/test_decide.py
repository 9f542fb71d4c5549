"""What a pod looks like after admission, and what keeps it from passing."""

import pytest

from allocator.catalog.vocabularies import VOLCANO, configure_vocabulary
from allocator.config.settings import (
    Injection,
    NodeAgent,
    SchedulerName,
    Settings,
    VolcanoMode,
    settings_of,
)
from allocator.model.decision import ModeSource, Reason
from allocator.model.gpu import Snapshot
from allocator.model.request import Mode
from tests.builders.model import T4, nodes_of, snapshot
from tests.builders.pods import (
    CORES,
    GPU_MEM,
    MEMORY,
    MODE,
    NUMBER,
    PERCENT,
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
from webhook.admission.decide import confirm
from webhook.admission.outcome import GpusHidden, Refused, Rewritten, Untouched
from webhook.admission.rewrite import OWN_SCHEDULER

UNKNOWN = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)
HAMI = {MODE: "hami-core"}
MIG = {MODE: "mig"}
C0 = "metadata.annotations['vgpu-admission.io/c0.{}']"


def around(settings: Settings) -> AdmissionContext:
    return AdmissionContext(settings=settings, snapshot=Snapshot(version="1"), host_paths=True)


def reason(outcome: object) -> Reason:
    assert isinstance(outcome, Refused)
    return outcome.findings.first.reason


def test_a_named_soft_slice_carries_literal_limits_and_late_devices() -> None:
    """What is known at CREATE is literal; what the Binding brings reads an annotation."""
    found = variables(
        admitted(
            received(pod(container(limits={NUMBER: 1, MEMORY: 3000, CORES: 50}), annotations=HAMI)),
            UNKNOWN,
        )
    )

    assert found["NVIDIA_VISIBLE_DEVICES"] == C0.format("visible")
    assert found["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    assert found["CUDA_DEVICE_SM_LIMIT"] == "50"


def test_an_open_mode_reads_every_amount_from_the_binding() -> None:
    """While hami-core and MIG are both possible no limit may be literal."""
    found = variables(admitted(received(pod()), UNKNOWN))

    assert found["CUDA_DEVICE_MEMORY_LIMIT_0"] == C0.format("memory-0")
    assert found["CUDA_DEVICE_SM_LIMIT"] == C0.format("cores")
    assert found["VGPU_PRELOAD"] == C0.format("preload")


def test_a_mig_slice_gets_no_interception_library() -> None:
    """Hardware isolates: only what is visible is injected."""
    found = admitted(received(pod(annotations=MIG)), UNKNOWN)

    assert variables(found)["NVIDIA_VISIBLE_DEVICES"] == C0.format("visible")
    assert not any(name.startswith("CUDA_") for name in variables(found))
    assert "volumes" not in found["spec"]


def test_each_device_of_a_container_has_limits_of_its_own() -> None:
    """Two GPUs, two memory limits, two compute limits."""
    limits = {NUMBER: 2, MEMORY: 3000}
    found = variables(admitted(received(pod(container(limits=limits), annotations=HAMI)), UNKNOWN))

    assert {f"CUDA_DEVICE_MEMORY_LIMIT_{k}" for k in range(2)} <= found.keys()
    assert "CUDA_DEVICE_MEMORY_LIMIT_2" not in found


def test_containers_without_gpu_are_blinded() -> None:
    """An image that asks the runtime for all GPUs gets none."""
    found = admitted(
        received(pod(container(limits={MEMORY: 3000}), container("log"), init=[container("i")])),
        UNKNOWN,
    )

    assert variables(found, "log") == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert variables(found, "i", "initContainers") == {"NVIDIA_VISIBLE_DEVICES": "void"}


@pytest.mark.parametrize(
    "fine",
    [
        pytest.param(
            container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]), id="blind"
        ),
        pytest.param(container(limits={"nvidia.com/gpu": 1}), id="another-plugin"),
    ],
)
def test_nobody_is_blinded_twice_or_in_anothers_care(fine: Json) -> None:
    """A container that is blind already, or that NVIDIA's plugin serves, is left alone."""
    assert isinstance(decided(pod(fine), UNKNOWN), Untouched)


def test_a_pod_without_request_is_only_blinded() -> None:
    """No annotation, no resource: one variable per container."""
    outcome = decided(pod(container()), UNKNOWN)

    assert isinstance(outcome, GpusHidden)
    assert not outcome.intent.annotations


def test_the_slot_is_added_where_only_memory_is_asked_for() -> None:
    """Without the slot resource no device plugin would be called."""
    found = admitted(received(pod(container(limits={MEMORY: 3000}))), UNKNOWN)

    assert found["spec"]["containers"][0]["resources"] == {
        "limits": {MEMORY: "3k", NUMBER: "1"},
        "requests": {MEMORY: "3k", NUMBER: "1"},
    }


def test_gpushare_keeps_its_names_and_gets_a_slot() -> None:
    """The second vocabulary is accounting only, and says so."""
    found = admitted(received(pod(container(limits={GPU_MEM: 2}))), UNKNOWN)

    limits = found["spec"]["containers"][0]["resources"]["limits"]

    assert limits == {GPU_MEM: "2", NUMBER: "1"}
    assert found["metadata"]["annotations"]["vgpu-admission.io/mode"] == "memory-only"
    assert variables(found)["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"


def test_gpushare_may_ask_for_isolation() -> None:
    """The annotation turns accounting into a limit that holds: 2 GiB are 2048 MiB."""
    written = pod(container(limits={GPU_MEM: 2}), annotations={"vgpu-admission.io/isolate": "true"})

    assert variables(admitted(received(written), UNKNOWN))["CUDA_DEVICE_MEMORY_LIMIT_0"] == "2048m"


@pytest.mark.parametrize("admits", [False, None])
def test_the_library_is_left_to_the_agent_where_host_paths_are_not_admitted(
    admits: bool | None,
) -> None:
    """Pod Security baseline refuses hostPath; so may a namespace that we do not know yet."""
    restricted = AdmissionContext(
        settings=Settings(), snapshot=Snapshot(version="1"), host_paths=admits
    )
    found = admitted(received(pod(annotations=HAMI)), restricted)

    assert "volumes" not in found["spec"]
    assert "volumeMounts" not in found["spec"]["containers"][0]
    assert "VGPU_POD_UID" not in variables(found)


def test_the_library_is_mounted_where_host_paths_are_admitted() -> None:
    """The region's directory carries the pod's UID, as the upstream plugin's does."""
    found = admitted(received(pod(annotations=HAMI)), UNKNOWN)
    mounts = {m["mountPath"]: m for m in found["spec"]["containers"][0]["volumeMounts"]}

    for path in ("/tmp/vgpu/vgpu.cache", "/tmp/cudevshr.cache"):
        assert mounts[path]["subPathExpr"] == "$(VGPU_POD_UID)_main/vgpu.cache"
        assert "readOnly" not in mounts[path]
    assert mounts["/etc/ld.so.preload"]["subPath"] == "ld.so.preload"


def test_injection_can_be_left_to_the_agent_altogether() -> None:
    """A setting, for sites that mount through CDI."""
    found = admitted(received(pod(annotations=HAMI)), around(Settings(injection=Injection.AGENT)))

    assert "volumes" not in found["spec"]


def test_upstreams_plugin_is_not_overruled() -> None:
    """Its Allocate names the device, and a variable in the pod's spec would beat it."""
    found = variables(
        admitted(received(pod(annotations=HAMI)), around(Settings(node_agent=NodeAgent.UPSTREAM)))
    )

    assert "NVIDIA_VISIBLE_DEVICES" not in found
    assert "CUDA_DISABLE_CONTROL" not in found
    assert found["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


@pytest.mark.parametrize(
    ("mode", "key"),
    [(VolcanoMode.OPEN, "vgpu-admission.io/mode"), (VolcanoMode.DECIDE, MODE)],
    ids=["open", "decide"],
)
def test_a_mode_we_chose_does_not_bind_volcano_unless_told_to(mode: VolcanoMode, key: str) -> None:
    """vc-scheduler takes its own annotation as a hard constraint."""
    outcome = decided(pod(schedulerName="volcano"), around(Settings(volcano_mode=mode)))

    assert isinstance(outcome, Rewritten)
    assert outcome.choice.source is ModeSource.BEST
    assert outcome.intent.annotations[key] == Mode.HAMI_CORE


@pytest.mark.parametrize(
    ("policy", "named", "expected"),
    [
        pytest.param(SchedulerName.KEEP, "default-scheduler", "default-scheduler", id="keep"),
        pytest.param(SchedulerName.SET, "default-scheduler", OWN_SCHEDULER, id="set"),
        pytest.param(SchedulerName.SET, "", OWN_SCHEDULER, id="set-unnamed"),
        pytest.param(SchedulerName.SET, OWN_SCHEDULER, OWN_SCHEDULER, id="set-already"),
        pytest.param(SchedulerName.SET, "volcano", "volcano", id="set-of-its-own"),
    ],
)
def test_a_pod_goes_to_our_scheduler_if_settings_say_so(
    policy: SchedulerName, named: str, expected: str
) -> None:
    """Only one that names no other, and the same on a second pass."""
    found = around(Settings(scheduler_name=policy))

    once = admitted(received(pod(schedulerName=named)), found)

    assert once["spec"]["schedulerName"] == expected
    assert admitted(once, found) == once


def test_a_percentage_stays_where_our_agent_serves() -> None:
    """What half a GPU means is known when the pod is bound."""
    found = admitted(
        received(pod(container(limits={NUMBER: 1, PERCENT: 50}), annotations=HAMI)), UNKNOWN
    )

    assert found["spec"]["containers"][0]["resources"]["limits"][PERCENT] == "50"
    assert variables(found)["CUDA_DEVICE_MEMORY_LIMIT_0"] == C0.format("memory-0")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(pod(nodeName="gpu-1"), Reason.NODE_NAME, id="node-name"),
        pytest.param(
            pod(annotations={"volcano.sh/vgpu-ids-new": "GPU-x,NVIDIA,1,1:"}),
            Reason.RESERVED_ANNOTATION,
            id="forged-grant",
        ),
        pytest.param(
            pod(annotations={"vgpu-admission.io/c0.visible": "all"}),
            Reason.RESERVED_ANNOTATION,
            id="forged-device",
        ),
        pytest.param(
            pod(annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"}),
            Reason.RESERVED_ANNOTATION,
            id="cdi",
        ),
        pytest.param(
            pod(container(limits={MEMORY: 3000}, securityContext={"privileged": True})),
            Reason.PRIVILEGED,
            id="privileged",
        ),
        pytest.param(
            pod(
                container(limits={MEMORY: 3000}),
                volumes=[{"name": "dev", "hostPath": {"path": "/dev/"}}],
            ),
            Reason.RESERVED_MOUNT,
            id="devices-of-the-node",
        ),
        pytest.param(
            pod(
                container(limits={MEMORY: 3000}),
                volumes=[{"name": "vgpu-library", "emptyDir": {}}],
                annotations=HAMI,
            ),
            Reason.RESERVED_MOUNT,
            id="our-volume-taken",
        ),
        pytest.param(pod(annotations={MODE: "smi"}), Reason.MODE_UNAVAILABLE, id="unknown-mode"),
    ],
)
def test_what_would_forge_or_lift_a_grant_is_refused(written: Json, expected: Reason) -> None:
    """Each way past the ledger has its own reason."""
    assert reason(decided(written, UNKNOWN)) is expected


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, id="all-gpus"),
        pytest.param({"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "40g"}, id="memory"),
        pytest.param({"name": "CUDA_DEVICE_MEMORY_LIMIT_7", "value": "40g"}, id="other-device"),
        pytest.param({"name": "CUDA_DISABLE_CONTROL", "value": "true"}, id="control"),
        pytest.param({"name": "LD_PRELOAD", "value": "/mine.so"}, id="preload"),
        pytest.param(
            {
                "name": "CUDA_DEVICE_SM_LIMIT",
                "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}},
            },
            id="value-from",
        ),
    ],
)
def test_reserved_variables_are_refused(env: Json) -> None:
    """No variable of a tenant can lift what was promised."""
    written = pod(container(limits={MEMORY: 3000}, env=[env]), annotations=HAMI)

    assert reason(decided(written, UNKNOWN)) is Reason.RESERVED_VARIABLE


def test_a_neighbours_limit_cannot_be_borrowed() -> None:
    """A container reads one set of annotations: its own."""
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in (
            ("NVIDIA_VISIBLE_DEVICES", C0.format("visible")),
            ("CUDA_DEVICE_MEMORY_LIMIT_0", C0.replace("c0", "c1").format("memory-0")),
        )
    ]
    written = pod(container(limits={MEMORY: 3000}, env=env), annotations=HAMI)

    assert reason(decided(written, UNKNOWN)) is Reason.RESERVED_VARIABLE


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        pytest.param("/etc/ld.so.preload", True, id="at"),
        pytest.param("/etc/ld.so.preload/", True, id="trailing-slash"),
        pytest.param("//etc/./ld.so.preload", True, id="crooked"),
        pytest.param("/etc", True, id="parent"),
        pytest.param("/usr/local/vgpu/x", True, id="below"),
        pytest.param("/usr/local", True, id="parent-of-library"),
        pytest.param("/tmp/vgpu", True, id="region"),
        pytest.param("/tmp/vgpu/vgpu.cache", True, id="region-file"),
        pytest.param("/tmp/cudevshr.cache", True, id="region-without-environment"),
        pytest.param("/tmp/../tmp//cudevshr.cache/", True, id="region-crooked"),
        pytest.param("/tmp/cudevshr.cache/x", True, id="below-the-region"),
        pytest.param("/tmp/cudevshr.caches", False, id="like-the-region"),
        pytest.param("/tmp", False, id="tmp-is-usual"),
        pytest.param("/usr/local/vgpus", False, id="like-named"),
        pytest.param("/data", False, id="elsewhere"),
    ],
)
def test_mounts_that_would_hide_the_library(path: str, refused: bool) -> None:
    """At, above or below; but not above where mounts are ordered by depth anyway."""
    written = pod(
        container(limits={MEMORY: 3000}, volumeMounts=[{"name": "v", "mountPath": path}]),
        annotations=HAMI,
        volumes=[{"name": "v", "emptyDir": {}}],
    )

    assert isinstance(decided(written, UNKNOWN), Refused) is refused


def test_env_from_cannot_carry_a_reserved_variable() -> None:
    """Every reserved variable is written out, and an explicit entry beats envFrom."""
    written = pod(
        container(limits={MEMORY: 3000}, envFrom=[{"configMapRef": {"name": "hostile"}}]),
        annotations=HAMI,
    )
    found = variables(admitted(received(written), UNKNOWN))

    assert {
        "NVIDIA_VISIBLE_DEVICES",
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_DEVICE_SM_LIMIT",
        "CUDA_DISABLE_CONTROL",
        "GPU_CORE_UTILIZATION_POLICY",
        "LD_PRELOAD",
    } <= found.keys()


def test_a_refusal_names_every_finding() -> None:
    """One round trip, one list of what to mend."""
    outcome = decided(
        pod(nodeName="n", annotations={"volcano.sh/bind-time": "1"}),
        UNKNOWN,
    )

    assert isinstance(outcome, Refused)
    assert [finding.reason for finding in outcome.findings.all] == [
        Reason.RESERVED_ANNOTATION,
        Reason.NODE_NAME,
    ]


def test_a_closed_fleet_reckons_with_declared_nodes() -> None:
    """What an autoscaler's node could serve is not refused."""
    settings = settings_of("fleet: closed\nnodeTemplates: [{model: Tesla T4, gpus: 1}]")
    here = AdmissionContext(settings=settings, snapshot=Snapshot(version="1", complete=True))

    assert isinstance(decided(pod(), here), Rewritten)
    assert reason(decided(pod(container(limits={MEMORY: 16_000})), here)) is Reason.MEMORY_SHORT


def test_init_containers_of_a_pod_without_request_are_blinded() -> None:
    """They run on the same node, and would see every GPU of it."""
    written = pod(
        container("main"),
        init=[container("first"), container("beside") | {"restartPolicy": "Always"}],
    )
    found = admitted(received(written), UNKNOWN)

    for name in ("first", "beside"):
        blinded = variables(found, name, "initContainers")
        assert blinded["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert variables(found)["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.parametrize("admits", [True, False, None])
def test_validation_asks_for_no_volumes(mounted: bool, admits: bool | None) -> None:
    """Pod Security may have changed since the mutating pass; the agent serves in either case."""
    mutating, validating = (
        AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=level)
        for level in (mounted, admits)
    )
    found = admitted(received(pod(container(limits={MEMORY: 3000}), annotations=HAMI)), mutating)

    assert ("volumes" in found["spec"]) is mounted
    assert isinstance(confirm(typed(found), validating), Rewritten)


def test_validation_misses_a_variable() -> None:
    """A later webhook that removes a limit is found out."""
    found = admitted(received(pod(container(limits={MEMORY: 3000}), annotations=HAMI)), UNKNOWN)
    env = found["spec"]["containers"][0]["env"]
    found["spec"]["containers"][0]["env"] = [
        entry for entry in env if entry["name"] != "CUDA_DEVICE_MEMORY_LIMIT_0"
    ]

    assert reason(confirm(typed(found), UNKNOWN)) is Reason.INCOMPLETE


@pytest.mark.parametrize("factor", [1, 7, 1000, 16_000])
def test_a_percentage_for_upstreams_plugin_survives_validation(factor: int) -> None:
    """What is written in the site's units is what validation reads there, also if it rounds."""
    context = AdmissionContext(
        settings=Settings(node_agent=NodeAgent.UPSTREAM),
        snapshot=snapshot(nodes_of(1, T4)),
        vocabularies=(configure_vocabulary(VOLCANO, memory_factor=factor),),
        host_paths=True,
    )
    asked = pod(container(limits={NUMBER: 1, PERCENT: 50}), annotations=HAMI)

    found = admitted(received(asked), context)

    units = int(found["spec"]["containers"][0]["resources"]["limits"][MEMORY])
    assert units == max(1, 7680 // factor)
    assert variables(found)["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{units * factor}m"
    assert isinstance(confirm(typed(found), context), Rewritten)
