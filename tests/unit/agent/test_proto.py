"""The generated messages are what their descriptions generate."""

import subprocess
import sys
from pathlib import Path

from agent.proto import deviceplugin_pb2 as plugin
from agent.proto import podresources_pb2 as resources

ROOT = Path(__file__).parents[3]
FOLDER = "agent/proto"


def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    """Nobody has edited what is generated, nor forgotten `make proto`."""
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).glob("*.proto"))
    made = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *made, *sources]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)

    found = {path.name: path.read_bytes() for path in (tmp_path / FOLDER).iterdir()}

    assert len(found) == 2 * len(sources) == 4
    assert found == {name: (ROOT / FOLDER / name).read_bytes() for name in found}


def test_numbers_on_the_wire_are_kubelets() -> None:
    """Bytes as kubelet 1.36 sends and reads them (k8s.io/kubelet, pkg/apis)."""
    assert (
        plugin.RegisterRequest(
            version="v", endpoint="e", resource_name="r", options={"pre_start_required": True}
        ).SerializeToString()
        == b"\x0a\x01v\x12\x01e\x1a\x01r\x22\x02\x08\x01"
    )
    assert plugin.Device(ID="s", health="h").SerializeToString() == b"\x0a\x01s\x12\x01h"
    assert (
        plugin.ContainerAllocateResponse(
            envs={"a": "b"},
            mounts=[plugin.Mount(container_path="c", host_path="h", read_only=True)],
            cdi_devices=[plugin.CDIDevice(name="d")],
        ).SerializeToString()
        == b"\x0a\x06\x0a\x01a\x12\x01b\x12\x08\x0a\x01c\x12\x01h\x18\x01\x2a\x03\x0a\x01d"
    )
    # A pod as a newer kubelet lists it: cpu_ids (3), memory (4) and topology (3) are passed over.
    listed = resources.PodResources.FromString(
        b"\x0a\x01p\x12\x01n\x1a\x12\x0a\x01c\x12\x08\x0a\x01r\x12\x01s\x1a\x00\x1a\x01\x02\x22\x00"
    )
    assert (listed.name, listed.namespace) == ("p", "n")
    assert listed.containers[0].devices[0].device_ids == ["s"]
