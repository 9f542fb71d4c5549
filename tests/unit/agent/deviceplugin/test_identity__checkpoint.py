"""The checkpoint: kubelet's file read as it is in the wild, refused when it is anything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.deviceplugin.identity import (
    CheckpointError,
    RecordedContainer,
    recorded_containers,
    registered_ids,
    registered_names,
)

RESOURCE = "volcano.sh/vgpu-number"
# As kubelet 1.36 writes it: integers for a checksum, a null for what Go calls an empty list.
WILD = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "uid-1",
                "ContainerName": "main",
                "ResourceName": RESOURCE,
                "DeviceIDs": {"-1": ["slot-0001"], "0": ["slot-0000"], "1": None},
                "AllocResp": "Q2dkUw==",
            },
            {
                "PodUID": "uid-1",
                "ContainerName": "main",
                "ResourceName": "example.com/nic",
                "DeviceIDs": {"0": ["slot-0002"]},
                "AllocResp": "",
            },
            {
                "PodUID": "uid-2",
                "ContainerName": "side",
                "ResourceName": RESOURCE,
                "DeviceIDs": None,
                "AllocResp": None,
            },
        ],
        "RegisteredDevices": {RESOURCE: ["slot-0000"]},
    },
    "Checksum": 2543198476,
}


def test_what_kubelet_writes_is_read() -> None:
    """Slots of one container are joined over NUMA nodes; other resources are left out."""
    containers = recorded_containers(json.dumps(WILD).encode(), RESOURCE)

    assert containers == (
        RecordedContainer(
            uid="uid-1", container="main", slots=frozenset({"slot-0000", "slot-0001"})
        ),
        RecordedContainer(uid="uid-2", container="side", slots=frozenset()),
    )


@pytest.mark.parametrize("entries", ["null", "[]"])
def test_an_empty_checkpoint_names_nobody(entries: str) -> None:
    """A node without containers has a checkpoint all the same."""
    text = f'{{"Data": {{"PodDeviceEntries": {entries}}}, "Checksum": 1}}'

    assert recorded_containers(text.encode(), RESOURCE) == ()


@given(st.integers(min_value=0, max_value=len(json.dumps(WILD)) - 1))
def test_a_file_cut_short_is_refused(length: int) -> None:
    """No beginning of a checkpoint is a checkpoint."""
    with pytest.raises(CheckpointError):
        recorded_containers(json.dumps(WILD).encode()[:length], RESOURCE)


@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["Data", "PodDeviceEntries", "PodUID", "DeviceIDs"]), inner
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_anything_is_read_or_refused(text: bytes) -> None:
    """A file that somebody else wrote ends no agent."""
    try:
        containers = recorded_containers(text, RESOURCE)
    except CheckpointError:
        return

    assert all(isinstance(entry.slots, frozenset) for entry in containers)


@pytest.mark.parametrize(
    ("devices", "ids"),
    [
        pytest.param({RESOURCE: ["GPU-1-0"], "example.com/nic": ["a"]}, {"GPU-1-0"}, id="some"),
        pytest.param({RESOURCE: None}, set(), id="null"),
        pytest.param(None, set(), id="nothing"),
    ],
)
def test_registered_ids_are_read_by_resource(devices: object, ids: set[str]) -> None:
    """By resource, whoever registered it."""
    text = json.dumps({"Data": {"RegisteredDevices": devices}, "Checksum": 1}).encode()

    assert registered_ids(text, RESOURCE) == ids


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        pytest.param({RESOURCE: ["a"], "example.com/nic": ["b"]}, {RESOURCE, "example.com/nic"}),
        pytest.param({RESOURCE: [], "nvidia.com/gpu": None}, set()),
        pytest.param(None, set()),
    ],
)
def test_registered_names_are_those_with_devices(devices: object, names: set[str]) -> None:
    """A plugin that has ended leaves its name for a while, and no device."""
    text = json.dumps({"Data": {"RegisteredDevices": devices}, "Checksum": 1}).encode()

    assert registered_names(text) == names
