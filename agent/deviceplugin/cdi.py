"""CDI: documents by which a container runtime applies the edits of a slot to its container.

Each slot in use has one file, written before the container is created and removed when the slot is
reassigned: a missing device makes kubelet retry, a stale one would give a container another pod's
GPU. The declared version is the lowest that has every field used: runtimes do not load a file whose
version is too low for its fields, or that they do not know.
"""

import re
from typing import Final

import orjson

from agent.deviceplugin.container_edits import ContainerEdits, HostMount
from agent.share import DeviceNode

KIND: Final = "vgpu-admission.io/slot"
# Variables, device nodes without a path of their own on the node, mounts without a type.
VERSION: Final = "0.3.0"
_STEM: Final = "vgpu-admission.io-slot_"
_FILE: Final = re.compile(re.escape(_STEM) + r"(slot-[0-9]+)\.json(\.new)?")
# Read and write, but not mknod.
_PERMISSIONS: Final = "rw"


def device(slot: str) -> str:
    """Return the qualified name that Allocate answers with."""
    return f"{KIND}={slot}"


def file_name(slot: str) -> str:
    """Return the name of a slot's document."""
    return f"{_STEM}{slot}.json"


def draft_name(slot: str) -> str:
    """Return a name in the same folder that no runtime reads."""
    return f"{file_name(slot)}.new"


def is_ours(name: str) -> bool:
    """Say whether a file of the folder is one of our documents or drafts."""
    return _FILE.fullmatch(name) is not None


def document(slot: str, edits: ContainerEdits) -> bytes:
    """Return the document that applies *edits* to the container with the device of *slot*."""
    fields: dict[str, object] = {"env": [f"{name}={value}" for name, value in edits.env]}
    if edits.nodes:
        fields["deviceNodes"] = [_node(node) for node in edits.nodes]
    if edits.mounts:
        fields["mounts"] = [_mount(mount) for mount in edits.mounts]
    devices = [{"name": slot, "containerEdits": fields}]
    return orjson.dumps({"cdiVersion": VERSION, "kind": KIND, "devices": devices})


def _node(node: DeviceNode) -> dict[str, object]:
    """Describe a node in full, so that the runtime need not find it on the node first."""
    return {
        "path": node.path,
        "type": "c",
        "major": node.major,
        "minor": node.minor,
        "permissions": _PERMISSIONS,
    }


def _mount(mount: HostMount) -> dict[str, object]:
    access = "ro" if mount.read_only else "rw"
    return {
        "hostPath": mount.host,
        "containerPath": mount.path,
        "options": [access, "bind", "nosuid", "nodev"],
    }
