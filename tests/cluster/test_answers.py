"""What people are told about a pod: refusals, warnings, dry runs, the API server's audit log."""

import pytest

from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.installation import PODS, Installation, sample

ASKING = {NUMBER: 1, MEMORY: 3000}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param(sample("08-with-a-suffix"), '"8Gi" would mean 8589934592 MiB', id="suffix"),
        pytest.param(
            sample("09-lifts-its-limit"), "variable CUDA_DEVICE_MEMORY_LIMIT_0 is", id="limit"
        ),
        pytest.param(
            pod(container(limits=ASKING, env=[{"name": "LD_PRELOAD", "value": "/a.so"}])),
            "variable LD_PRELOAD is reserved",
            id="preload",
        ),
        pytest.param(
            pod(
                container(limits=ASKING, volumeMounts=[{"name": "v", "mountPath": "/etc/"}]),
                volumes=[{"name": "v", "emptyDir": {}}],
            ),
            "mount at /etc would hide /etc/ld.so.preload",
            id="mount-above",
        ),
        pytest.param(
            pod(init=[container("i", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])]),
            'init container "i": variable NVIDIA_VISIBLE_DEVICES is reserved',
            id="init-sees-all",
        ),
        pytest.param(
            pod(container(limits=ASKING, securityContext={"privileged": True})),
            "is privileged: it sees every GPU",
            id="privileged",
        ),
        pytest.param(
            pod(volumes=[{"name": "d", "hostPath": {"path": "/dev"}}]), "/dev of the node", id="dev"
        ),
        pytest.param(pod(nodeName="t4"), "nodeName t4 bypasses the scheduler", id="node-name"),
        pytest.param(
            pod(annotations={"volcano.sh/vgpu-ids-new": "GPU-0"}),
            "annotation volcano.sh/vgpu-ids-new is reserved: it is written when the pod is bound",
            id="forged-allocation",
        ),
        pytest.param(
            pod(annotations={"cdi.k8s.io/a": "nvidia.com/gpu=all"}), "annotation cdi.", id="cdi"
        ),
        pytest.param(
            pod(container(limits={**ASKING, "nvidia.com/gpu": 1})), "nvidia.com/gpu", id="twice"
        ),
    ],
)
def test_a_refusal_says_what_to_change(
    gpu_site: Installation, opted_in: str, *, written: Json, words: str
) -> None:
    """The user reads the hook's name, what is wrong and what to do, and nothing is created."""
    refusal = gpu_site.refusal(opted_in, written)

    assert refusal.startswith('admission webhook "pods.vgpu-admission.io" denied the request: ')
    assert words in refusal


def test_a_pod_without_a_request_may_not_reach_for_gpus(
    gpu_site: Installation, opted_in: str
) -> None:
    """Whoever asks for nothing and names all devices is refused, not merely overruled."""
    greedy = container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])

    refusal = gpu_site.refusal(opted_in, pod(greedy))

    assert "variable NVIDIA_VISIBLE_DEVICES is reserved for vGPU limits; remove it" in refusal


def steps(gpu_site: Installation, namespace: str) -> list[str]:
    """Return what the webhook has recorded about a namespace, in order."""
    return [line["step"] for line in gpu_site.first.records() if line.get("namespace") == namespace]


def test_an_open_fleet_warns(gpu_site: Installation, opted_in: str) -> None:
    """What no GPU here has may come with the next node, so its user is told and it passes."""
    reply = gpu_site.create(opted_in, sample("07-too-much"))

    (warning,) = reply.warnings
    assert warning.startswith(
        'vgpu: container "main": asks for 90000 MiB on one GPU; the largest has'
    )
    assert len(warning) <= 256  # what the API server leaves of one, where there are many


def test_a_dry_run_is_answered_in_full_and_leaves_no_trace(
    gpu_site: Installation, opted_in: str
) -> None:
    """Whoever tries first sees what would be stored; neither pod nor record remains."""
    tried = {**sample("02-soft-slice"), "metadata": {"name": "tried", "annotations": {MODE: "mig"}}}

    dry = gpu_site.create(opted_in, tried, dryRun="All").body
    assert gpu_site.api.get(PODS.format(opted_in))["items"] == []
    real = gpu_site.create(opted_in, tried).body

    wait_for(lambda: steps(gpu_site, opted_in)[1:])
    assert steps(gpu_site, opted_in) == ["mutate", "validate"]
    assert dry["spec"]["containers"] == real["spec"]["containers"]
    assert dry["metadata"]["annotations"] == real["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("03-hardware-slice", {"decision": "rewritten", "mode": "mig"}, id="rewritten"),
        pytest.param(
            "08-with-a-suffix",
            {"decision": "refused", "reason": "MalformedRequest"},
            id="refused",
        ),
    ],
)
def test_the_audit_log_has_the_decision(
    gpu_site: Installation, opted_in: str, *, name: str, said: dict[str, str]
) -> None:
    """Decision, requester and digest stand beside the request in the API server's own log."""
    gpu_site.refusal(opted_in, sample(name))

    def noted() -> list[dict[str, str]]:
        return [
            event["annotations"]
            for event in gpu_site.plane.audit_events()
            if event["verb"] == "create" and event["objectRef"].get("namespace") == opted_in
        ]

    (annotations,) = wait_for(noted)
    ours = {
        key.removeprefix("pods.vgpu-admission.io/"): value
        for key, value in annotations.items()
        if key.startswith("pods.vgpu-admission.io/")
    }
    assert ours.pop("digest", "") or said["decision"] == "refused"
    assert ours == {**said, "requester": "admin"}


def test_a_namespace_without_the_label_is_left_alone(gpu_site: Installation) -> None:
    """Nobody opted in, so the pod is stored as it was written, and its user is warned."""
    where = gpu_site.namespace({})

    reply = gpu_site.create(where, pod())

    assert "annotations" not in reply.body["metadata"]
    assert "env" not in reply.body["spec"]["containers"][0]
    assert "asks for vGPU in a namespace without" in reply.warnings[0]
    assert steps(gpu_site, where) == []
