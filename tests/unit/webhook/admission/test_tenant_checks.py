"""Fields that would lift a limit or forge a grant: paths, volumes and mounts, one by one."""

import pytest

from allocator.config.settings import Settings
from allocator.model.decision import Reason
from allocator.model.gpu import Snapshot
from tests.builders.pods import (
    MEMORY,
    MODE,
    Json,
    admitted,
    container,
    decided,
    pod,
    received,
    typed,
)
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.outcome import Outcome, Refused

CONTEXT = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)
HAMI = {MODE: "hami-core"}


def reason(outcome: Outcome) -> Reason | None:
    return outcome.findings.first.reason if isinstance(outcome, Refused) else None


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        pytest.param("/dev", True, id="devices"),
        pytest.param("/dev/nvidia0", True, id="a-device"),
        pytest.param("/dev/../dev", True, id="crooked"),
        pytest.param("/", True, id="root"),
        pytest.param("/var/lib", True, id="parent"),
        pytest.param("/var/lib/kubelet/pods", True, id="below"),
        pytest.param("/dev/shm", False, id="shared-memory"),
        pytest.param("/dev/shm/x", False, id="below-shared-memory"),
        pytest.param("/dev/shmem", True, id="like-shared-memory"),
        pytest.param("/devices", False, id="like-devices"),
        pytest.param("/var/lib/kubelet-data", False, id="like-kubelet"),
        pytest.param("/v", False, id="beginning-of-a-name"),
    ],
)
def test_a_path_of_the_node_is_compared_by_its_parts(path: str, refused: bool) -> None:
    """Whoever mounts ``/devices`` does not reach ``/dev``, though it begins alike."""
    written = pod(
        container(limits={MEMORY: 3000}),
        volumes=[{"name": "data", "hostPath": {"path": path}}],
        annotations=HAMI,
    )

    assert reason(decided(written, CONTEXT)) is (Reason.RESERVED_MOUNT if refused else None)


@pytest.mark.parametrize("path", ["/e", "/etc/ld.so", "/etc/ld.so.preload.d", "/usr/loc"])
def test_a_mount_is_compared_by_its_parts(path: str) -> None:
    """A path that only begins like a reserved one hides nothing."""
    written = pod(
        container(limits={MEMORY: 3000}, volumeMounts=[{"name": "v", "mountPath": path}]),
        annotations=HAMI,
        volumes=[{"name": "v", "emptyDir": {}}],
    )

    assert reason(decided(written, CONTEXT)) is None


def volumes(path: str) -> list[Json]:
    found: list[Json] = admitted(received(ASKING), CONTEXT)["spec"]["volumes"]
    return [
        {"name": volume["name"], "hostPath": {"path": path}}
        if volume["name"] == "vgpu-library"
        else volume
        for volume in found
    ]


ASKING = pod(container(limits={MEMORY: 3000}), annotations=HAMI)


@pytest.mark.parametrize("path", ["/tmp/mine", "/usr/local/vgpu2", "/usr/local", "/dev/shm"])
def test_a_volume_of_our_name_is_ours_by_its_path(path: str) -> None:
    """A tenant's library under our name would be preloaded in the place of ours."""
    written = ASKING | {"spec": ASKING["spec"] | {"volumes": volumes(path)}}

    assert reason(decided(written, CONTEXT)) is Reason.RESERVED_MOUNT


def test_volumes_and_mounts_that_we_wrote_pass() -> None:
    """A second pass finds what the first one wrote."""
    once = admitted(received(ASKING), CONTEXT)

    assert reason(decide(typed(once), CONTEXT)) is None
    assert any(volume["name"] == "vgpu-library" for volume in once["spec"]["volumes"])


def test_another_host_root_is_mounted_and_reserved() -> None:
    """What a container gets comes from there, and no tenant may mount it; nor the usual folder."""
    settings = Settings(host_root="/var/lib/vgpu")
    context = AdmissionContext(settings=settings, snapshot=Snapshot(version="1"), host_paths=True)
    found = admitted(received(ASKING), context)["spec"]["volumes"]
    ours = [volume for volume in found if "vgpu" in volume["name"]]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in ours}

    assert paths == {
        "vgpu-library": "/var/lib/vgpu",
        "vgpu-regions": "/var/lib/vgpu/vgpu/containers",
    }
    for path in ("/var/lib/vgpu/vgpu/containers", "/var/lib", "/usr/local/vgpu"):
        written = ASKING | {
            "spec": ASKING["spec"] | {"volumes": [{"name": "v", "hostPath": {"path": path}}]}
        }
        assert reason(decided(written, context)) is Reason.RESERVED_MOUNT
    old = ASKING | {"spec": ASKING["spec"] | {"volumes": volumes("/usr/local/vgpu")}}
    assert reason(decided(old, context)) is Reason.RESERVED_MOUNT


def library_mounts(found: Json) -> list[Json]:
    mounts: list[Json] = found["spec"]["containers"][0]["volumeMounts"]
    return [mount for mount in mounts if mount["name"] == "vgpu-library"]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"readOnly": False}, id="writable"),
        pytest.param({"subPath": "mine", "subPathExpr": ""}, id="another-part"),
        pytest.param({"name": "mine"}, id="another-volume"),
    ],
)
def test_a_mount_of_ours_that_was_changed_is_not_ours(number: int, change: Json) -> None:
    """A writable mount would let a container replace the library of all containers."""
    once = admitted(received(ASKING), CONTEXT)
    mount = library_mounts(once)[number]
    mount |= change
    if "mine" in change.values():
        once["spec"]["volumes"].append({"name": "mine", "emptyDir": {}})

    assert reason(decide(typed(once), CONTEXT)) is Reason.RESERVED_MOUNT
