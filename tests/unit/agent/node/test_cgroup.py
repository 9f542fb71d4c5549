"""Which container a process belongs to, as the kernel tells under every driver and runtime."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.node.cgroup import PodCgroup, inner_pid_of, pod_cgroup_of, start_time_of

UID = "6a7d1c58-02c5-4b55-9b5e-7a3c2f1e0d9b"
LOW = UID.replace("-", "_")
ID = "0123456789abcdef" * 4
OTHER = "f" * 64
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/kubepods/burstable/pod{UID}/{ID}", id="cgroupfs"),
        pytest.param(f"/kubepods/pod{UID}/{ID}", id="guaranteed"),
        pytest.param(f"{SLICE}/cri-containerd-{ID}.scope", id="systemd-containerd"),
        pytest.param(f"{SLICE}/crio-{ID}.scope/container", id="systemd-crio-nested"),
        pytest.param(f"{SLICE}/docker-{ID}.scope", id="systemd-docker"),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{LOW}.slice/cri-containerd-{ID}.scope", id="systemd-top"
        ),
        pytest.param(
            f"/system.slice/containerd.service/kubepods-besteffort-pod{LOW}.slice"
            f":cri-containerd:{ID}",
            id="slice-as-text",
        ),
        pytest.param(
            f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            f"kubelet-kubepods-burstable-pod{LOW}.slice/cri-containerd-{ID}.scope",
            id="below-another-root",
        ),
        pytest.param(f"/docker/{OTHER}/kubelet/kubepods/pod{UID}/{ID}", id="node-in-a-container"),
        pytest.param(f"/../../kubepods-burstable-pod{LOW}.slice/crio-{ID}.scope", id="namespaced"),
        pytest.param(f"/kubepods/pod{UID}/{ID}/docker/{OTHER}", id="docker-in-a-pod"),
        pytest.param(
            f"/kubepods/pod{UID}/{ID}/kubepods/pod{UID.replace('6', '7')}/{OTHER}",
            id="pretends-to-be-another",
        ),
    ],
)
@pytest.mark.parametrize("line", ["0::{}", "12:pids:/\n4:memory:{}\n0::/"], ids=["v2", "v1"])
def test_every_form_of_a_path_names_pod_and_container(path: str, line: str) -> None:
    """Whatever driver and runtime, and whatever the container made below itself."""
    assert pod_cgroup_of(line.format(path)) == PodCgroup(UID, ID)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0::/\n", id="root"),
        pytest.param("0::/system.slice/nvidia-persistenced.service", id="service"),
        pytest.param(f"0::/docker/{ID}", id="docker-outside"),
        pytest.param(f"0::/user.slice/mypod{UID}/{ID}", id="looks-alike"),
        pytest.param("", id="gone"),
        pytest.param("::::\n\0", id="garbage"),
    ],
)
def test_a_process_outside_pods_has_no_cell(text: str) -> None:
    """It is the node's own."""
    assert pod_cgroup_of(text) is None


def test_a_pod_without_container_is_still_its_pod() -> None:
    """A static pod's uid is a digest without dashes; what runs beside its containers has none."""
    assert pod_cgroup_of(f"0::/kubepods/pod{'a' * 32}") == PodCgroup("a" * 32, None)


@given(st.text())
def test_a_process_that_names_itself_cannot_hide_its_start(name: str) -> None:
    """The name is the tenant's; the fields after its last parenthesis are the kernel's."""
    tail = " ".join(["S", *map(str, range(4, 52))])

    assert start_time_of(f"17 ({name}) {tail}") == 22


@given(st.text() | st.text("0::/pod-_.slicekubefNS \t\n" + UID))
def test_whatever_proc_says_is_read_without_fault(text: str) -> None:
    """A process may end between two reads and leave half a file."""
    assert isinstance(pod_cgroup_of(text), PodCgroup | None)
    assert isinstance(start_time_of(text), int | None)
    assert isinstance(inner_pid_of(text), int | None)


def test_the_innermost_number_is_the_containers_own() -> None:
    """A sandbox in a container has one more namespace."""
    assert inner_pid_of("Name:\tx\nNSpid:\t4711\t17\t3\nThreads:\t1") == 3
    assert inner_pid_of("Name:\tx\nNSpid:\n") is None
