"""Pods as the agent reads them, and the share of the container that starts."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.deviceplugin.shares import (
    StillRunsError,
    next_container,
    placements_of,
    share_of,
    shares_of,
)
from agent.node.pods import NodePod, parse_pod
from agent.share import NotYetError, Owner
from allocator.config.settings import Settings
from allocator.model.allocation import ContainerGrants, Entry
from allocator.model.request import Priority, Stage
from tests.builders.gpunodes import NOON, entry
from tests.builders.model import device, mig_grant, placed, soft_grant
from tests.builders.pods import MEMORY, NUMBER, admitted, container, received
from tests.builders.pods import pod as written
from tests.unit.webhook.admission.test_decide import around

DONE: Mapping[str, object] = {"terminated": {"exitCode": 0}}
FAILED: Mapping[str, object] = {"terminated": {"exitCode": 1}}
RUNNING: Mapping[str, object] = {"running": {"startedAt": "2026-11-21T17:00:00Z"}}
WAITING: Mapping[str, object] = {"waiting": {"reason": "PodInitializing"}}


def parsed_pod(document: dict[str, Any], **more: object) -> NodePod:
    document["metadata"] |= {"uid": "u", "name": "p", "namespace": "team-a"}
    return parse_pod(json.dumps(document | more).encode())


def statuses(kind: str, **by_name: Mapping[str, object]) -> dict[str, Any]:
    return {kind: [{"name": name, "state": state} for name, state in by_name.items()]}


def test_what_admission_injected_is_recognised() -> None:
    """Its key is the one that the container's own variables read."""
    limits = {NUMBER: 1, MEMORY: 3000}
    pod = admitted(
        received(written(container("side"), container("main", limits))), around(Settings())
    )

    (side, main) = parsed_pod(pod).containers

    assert (side.injected, side.key) == (False, "c0")
    assert (main.injected, main.key, main.has_mounts) == (True, "c1", True)


@pytest.mark.parametrize(
    "suffix", ["cores", "memory-0", "gpu-index", "preload", "nobody-writes", "visible.x", "Visible"]
)
def test_another_annotation_of_ours_is_no_injection(suffix: str) -> None:
    """What is 3 % there is GPU 3 here."""
    path = f"metadata.annotations['vgpu-admission.io/c0.{suffix}']"
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}]

    (main,) = parsed_pod(written(container("main", env=env))).containers

    assert not main.injected


def test_what_another_container_reads_is_no_injection() -> None:
    """It would see the GPUs of its neighbour, whose annotation the Binding wrote."""
    path = "metadata.annotations['vgpu-admission.io/c0.visible']"
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}]

    found = parsed_pod(written(container("main", env=env), container("twin", env=env))).containers

    assert [one.injected for one in found] == [True, False]


def test_when_a_container_runs_its_place_says() -> None:
    """An init container that is always restarted stays; the others are over before the apps."""
    first = [container("first"), container("side", restartPolicy="Always")]

    found = parsed_pod(written(container("main"), init=first)).containers

    assert [vessel.stage for vessel in found] == [Stage.INIT, Stage.SIDECAR, Stage.APP]


def test_a_variable_that_is_given_twice_is_what_it_is_given_last() -> None:
    """As kubelet has it: behind ours stands what would show every GPU, or go before everybody."""
    limits = {NUMBER: 1, MEMORY: 3000}
    pod = admitted(received(written(container("main", limits))), around(Settings()))
    env = pod["spec"]["containers"][0]["env"]
    env.append({"name": "CUDA_TASK_PRIORITY", "value": "0"})
    high = parsed_pod(pod).containers[0]
    env.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    blunt = parsed_pod(pod).containers[0]

    assert (high.injected, high.priority) == (True, Priority.HIGH)
    assert (blunt.injected, blunt.priority) == (False, Priority.LOW)


def test_a_container_put_first_later_does_not_move_the_key() -> None:
    """The Binding and the agent go by what the container reads, not by its place."""
    limits = {NUMBER: 1, MEMORY: 3000}
    pod = admitted(received(written(container("main", limits))), around(Settings()))
    pod["spec"]["containers"].insert(0, container("proxy"))

    assert [v.key for v in parsed_pod(pod).containers] == ["c0", "c0"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({"containers": [1000, 2000]}, 3000, id="apps-together"),
        pytest.param({"init": [5000], "containers": [1000, 2000]}, 5000, id="init-alone"),
        pytest.param({"init": [2000], "containers": [1000, 2000]}, 3000, id="init-before"),
        pytest.param({"side": [500], "containers": [1000]}, 1500, id="sidecar-beside"),
        pytest.param({"side": [500], "init": [5000], "containers": [1]}, 5500, id="all-three"),
    ],
)
def test_requests_are_what_kubelet_counts(parts: dict[str, list[int]], expected: int) -> None:
    """The sum of apps and sidecars, or an init container with the sidecars before it."""
    made = {
        kind: [container(f"{kind}{i}", {MEMORY: str(n)}) for i, n in enumerate(amounts)]
        for kind, amounts in parts.items()
    }
    sidecars = [one | {"restartPolicy": "Always"} for one in made.get("side", [])]
    pod = written(*made["containers"], init=[*sidecars, *made.get("init", [])])

    assert parsed_pod(pod).requests[MEMORY] == expected


@pytest.mark.parametrize("amount", ["x", "-5", "", "1e99999", "0"])
def test_amounts_that_are_none_count_nothing(amount: str) -> None:
    """The API server admits none of them; a reader that fell over would stop the agent."""
    assert parsed_pod(written(container("main", {MEMORY: amount}))).requests == {}


@pytest.mark.parametrize("raw", [b"{}", b"[]", b"null", b'{"metadata": {"uid": 3}}', b"\xff", b""])
def test_what_is_no_pod_is_refused_in_one_way(raw: bytes) -> None:
    """The watch leaves such an object as it was last understood."""
    with pytest.raises(ValueError):  # noqa: PT011 -- msgspec's errors are its children
        parse_pod(raw)


def test_null_is_nothing() -> None:
    """The API server writes null for an empty list now and then."""
    odd = {
        "metadata": {"annotations": None, "labels": None, "ownerReferences": None},
        "spec": {"containers": [{"name": "a", "env": None, "resources": None}]},
        "status": {"containerStatuses": None, "initContainerStatuses": None},
    }

    found = parsed_pod(odd)

    assert (found.has_started, found.ended, found.assignment, dict(found.requests)) == (
        False,
        False,
        "",
        {},
    )


@pytest.mark.parametrize("state", [RUNNING, {"running": {"startedAt": None}}, DONE, FAILED])
def test_a_container_that_ran_has_started(state: Mapping[str, object]) -> None:
    """Also one that has ended since."""
    pod = parsed_pod(written(container("main")), status=statuses("containerStatuses", main=state))

    assert pod.has_started


def test_a_container_in_a_crash_loop_has_started() -> None:
    """It waits for its next start, and what it was promised is in use."""
    status = {"containerStatuses": [{"name": "main", "state": WAITING, "lastState": FAILED}]}

    assert parsed_pod(written(container("main")), status=status).has_started


def test_containers_are_known_by_the_runtimes_ids() -> None:
    """A process tells its container's id and not its name."""
    status = {
        "containerStatuses": [{"name": "main", "containerID": f"containerd://{'a' * 64}"}],
        "ephemeralContainerStatuses": [{"name": "debug", "containerID": f"cri-o://{'b' * 64}"}],
    }

    assert parsed_pod(written(container("main")), status=status).container_names == {
        "a" * 64: "main",
        "b" * 64: "debug",
    }


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        ({}, False),
        ({"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}, False),
        ({"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}, True),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, True),
    ],
)
def test_evicting_some_pods_helps_nothing(metadata: dict[str, object], *, kept: bool) -> None:
    """A DaemonSet brings its pod back to this node, and kubelet those of its files."""
    pod = written(container("main"))
    pod["metadata"] |= metadata

    assert parsed_pod(pod).recreated_here is kept


OWNER = Owner(uid="u", namespace="team-a", pod="p", containers=("main",))
BOTH = Owner(uid="u", namespace="team-a", pod="p", containers=("first", "main"))
DEVICES = tuple(replace(device(index=i), pci=f"0000:{9 - i:02x}:00.0") for i in range(2))


def bound_pod(**status: object) -> NodePod:
    pod = written(container("main"), init=[container("first")], nodeName="n")
    return parsed_pod(pod, status=status)


@pytest.mark.parametrize(
    ("first", "expected"),
    [(WAITING, "first"), (FAILED, "first"), (DONE, "main")],
)
def test_where_slots_are_shared_it_is_the_first_that_has_not_ended_well(
    first: Mapping[str, object], expected: str
) -> None:
    """An init container that failed starts again; an app starts after it ended well."""
    pod = bound_pod(**statuses("initContainerStatuses", first=first))

    assert next_container(BOTH, pod).name == expected


def test_an_init_container_that_still_runs_is_looked_at_again() -> None:
    """Kubelet knows of its end before the API server does."""
    with pytest.raises(StillRunsError):
        next_container(BOTH, bound_pod(**statuses("initContainerStatuses", first=RUNNING)))


def test_a_share_lists_gpus_as_cuda_counts_them() -> None:
    """By PCI address, whatever the order of indexes or of the entry."""
    both = entry("u", soft_grant(1, gpu="GPU-0"), soft_grant(2, gpu="GPU-1"))

    share = share_of(OWNER, bound_pod(), both, devices=DEVICES)

    assert [grant.gpu for grant in share.grants] == ["GPU-1", "GPU-0"]
    assert (share.owner, share.key) == (OWNER, "c0")


@pytest.mark.parametrize(
    ("pod", "promised", "words"),
    [
        pytest.param(None, entry("u", soft_grant(1)), "not bound to this node", id="unknown-pod"),
        pytest.param(bound_pod(), None, "no entry on this node yet", id="no-entry"),
        pytest.param(
            bound_pod(phase="Failed"), entry("u", soft_grant(1)), "has already ended", id="over"
        ),
        pytest.param(
            bound_pod(),
            entry("u", soft_grant(1), container="b"),
            "was given no GPU",
            id="another-container",
        ),
        pytest.param(
            bound_pod(), entry("u", soft_grant(1, gpu="GPU-7")), "no longer on this node", id="gone"
        ),
    ],
)
def test_a_start_without_a_promise_is_refused(
    pod: NodePod | None, promised: Entry | None, words: str
) -> None:
    """With words that its user reads in the pod's status."""
    with pytest.raises(NotYetError, match=words):
        share_of(OWNER, pod, promised, devices=DEVICES)


def test_without_cdi_only_what_admission_guards_may_start() -> None:
    """Nothing else would keep it from another tenant's GPU."""
    promised = entry("u", soft_grant(1))

    assert share_of(OWNER, bound_pod(), promised, devices=DEVICES).has_mounts is False
    with pytest.raises(NotYetError, match="was not admitted"):
        share_of(OWNER, bound_pod(), promised, devices=DEVICES, unguarded=True)


def test_the_monitor_knows_bound_pods_only() -> None:
    """A promise to a pod that is elsewhere yet, or over, is nobody's to measure."""
    entries = [entry("u", soft_grant(1)), entry("v", soft_grant(1)), entry("w", soft_grant(1))]
    over = parsed_pod(written(container("main")), status={"phase": "Succeeded"})

    found = shares_of(entries, {"u": bound_pod(), "w": over}, DEVICES)

    assert [share.owner.uid for share in found] == ["u"]


def test_a_gpu_that_is_gone_keeps_its_place_among_the_others() -> None:
    """A running container's limits go by place: without the first, the second's would be its."""
    both = entry("u", soft_grant(3000, gpu="GPU-7"), soft_grant(1000, gpu="GPU-0"))

    (found,) = shares_of([both], {"u": bound_pod()}, DEVICES)

    assert [(grant.gpu, grant.memory) for grant in found.grants] == [
        ("GPU-7", 3000),
        ("GPU-0", 1000),
    ]


def test_places_are_gathered_from_all_containers() -> None:
    """An instance that an init container shares with an app is one instance."""
    several = (
        ContainerGrants(name="first", grants=(mig_grant("1g.5gb", 0),)),
        ContainerGrants(name="main", grants=(mig_grant("1g.5gb", 0), mig_grant("3g.20gb", 4))),
    )
    one = Entry(namespace="a", pod="p", uid="u", since=NOON, containers=several)

    assert placements_of([one, entry("v", soft_grant(1))]) == {
        "GPU-0": {placed("1g.5gb", 0), placed("3g.20gb", 4)}
    }
