"""GPUNode: its schema, and what its lists hold.

The API server validates all that a schema describes at every write, and each promise is a write.
With the lists in the schema a promise took half as long again, so it leaves lists of objects open.
Only the control plane writes promises, and checks them when it reads them. A policy checks what an
agent writes to the status against these shapes.

Bounds are above what hardware has. They keep one object below the API server's limits, and what a
compromised node may write from costing the control plane more than any other node does. No text of
an agent has a character that a terminal obeys, for kubectl prints columns as they are.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from allocator.families.registry import FAMILIES
from allocator.ledger.ledger import LONGEST_STATED
from allocator.ledger.schema import (
    DEVICE_ID,
    MOST_BOARDS,
    MOST_GPUS,
    MOST_INSTANCES,
    MOST_UNPROMISED,
    UID,
)
from allocator.mig.board_bounds import MOST_PROFILES, MOST_SLOTS
from allocator.model.gpu import MOST_CHUNKS
from allocator.model.request import Mode, Stage
from manifests.generator.names import DOMAIN, Json
from manifests.generator.shapes import Flag, Many, Moment, Number, ObjectShape, Text, Word

_DEVICE_ID: Final = Text(96, f"^{DEVICE_ID}$")
_UID: Final = Text(64, f"^{UID}$")
_PROFILE: Final = Text(64, "^([0-9]+c[.])?[0-9]+g[.][0-9]+gb[0-9a-z.+-]{0,16}$")
# Neither control nor format characters (pC), nor blanks other than the space (pZ).
_LINE: Final = r"^([^\pC\pZ]| )+$"
_PCI: Final = Text(16, "^[0-9A-Fa-f]{4,8}(:[0-9A-Fa-f]{2}){2}[.][0-7]$")

_DEVICE: Final = ObjectShape(
    {
        "gpu": _DEVICE_ID,
        "mode": Word(tuple(Mode)),
        "memoryMiB": Number(),
        "cores": Number(most=100),
        "profile": _PROFILE,
        "start": Number(most=63),
        "position": Text(80, _LINE),
        "share": Text(64, _LINE),
    },
    required=("gpu", "mode", "memoryMiB", "cores"),
    rules={
        "profile and start in mode mig; neither they nor position in other modes": (
            f"it.mode == '{Mode.MIG}' ? has(it.profile) && has(it.start) : "
            "!has(it.profile) && !has(it.start) && !has(it.position)"
        )
    },
)
_ENTRY: Final = ObjectShape(
    {
        "pod": ObjectShape(
            {"namespace": Text(63, _LINE), "name": Text(253, _LINE), "uid": _UID},
            required=("namespace", "name", "uid"),
        ),
        "since": Moment(),
        "containers": Many(
            ObjectShape(
                {
                    "name": Text(63, _LINE),
                    "devices": Many(_DEVICE, most=64),
                    "stage": Word(tuple(Stage)),
                },
                required=("name", "devices"),
            ),
            most=64,
        ),
    },
    required=("pod", "since", "containers"),
)
_BOARD: Final = ObjectShape(
    {
        "name": Text(253, _LINE),
        "slots": Number(least=1, most=MOST_SLOTS),
        "profiles": Many(
            ObjectShape(
                {
                    "name": _PROFILE,
                    "id": Number(),
                    "memoryMiB": Number(least=1),
                    "sms": Number(least=1),
                    "size": Number(least=1, most=MOST_SLOTS),
                    "starts": Many(Number(most=MOST_SLOTS - 1), most=MOST_SLOTS),
                    "limit": Number(least=1),
                },
                required=("name", "id", "memoryMiB", "sms", "size", "starts"),
            ),
            least=1,
            most=MOST_PROFILES,
        ),
    },
    required=("name", "slots", "profiles"),
)
_GPU_MODES: Final = tuple(
    dict.fromkeys(mode for family in FAMILIES.values() for mode in family.gpu_modes)
)
_GPU: Final = ObjectShape(
    {
        "uuid": _DEVICE_ID,
        "index": Number(most=255),
        "pci": _PCI,
        "model": Text(253, _LINE),
        "board": Number(most=MOST_BOARDS - 1),
        "memoryMiB": Number(least=1),
        "mode": Word(_GPU_MODES),
        "healthy": Flag(),
        "slots": Number(),
        "numa": Number(most=1023),
        "switch": _PCI,
        "links": Many(_DEVICE_ID, most=MOST_GPUS),
        "linkCounts": Many(Number(most=64), most=MOST_GPUS),
        "reason": Text(256, _LINE),
        "foreignMiB": Number(),
        "family": Text(63, _LINE),
        "chunks": Number(most=MOST_CHUNKS),
        "chunkSMs": Number(most=MOST_CHUNKS),
    },
    required=("uuid", "index", "memoryMiB", "mode", "healthy", "slots"),
    # A GPU without MIG has no board, and so must name its model itself.
    rules={"a model if there is no board": "has(it.board) || has(it.model)"},
)
_INSTANCE: Final = ObjectShape(
    {"gpu": _DEVICE_ID, "profile": _PROFILE, "start": Number(most=63), "uuid": _DEVICE_ID},
    required=("gpu", "profile", "start"),
)

LISTS: Final[Mapping[str, Many]] = MappingProxyType(
    {
        "boards": Many(_BOARD, most=MOST_BOARDS),
        "gpus": Many(_GPU, most=MOST_GPUS),
        "instances": Many(_INSTANCE, most=MOST_INSTANCES),
        "unpromised": Many(_ENTRY, most=MOST_UNPROMISED),
    }
)
"""The lists of ``status`` that its schema leaves open."""

_ENTRY_TEXT: Final = (
    "pod {namespace, name, uid}, since, and containers [{name, devices [{gpu, mode, memoryMiB, "
    "cores; for mig also profile, start and Volcano's position; where a GPU is shared by classes "
    "also share}]; for other than app containers also stage}]"
)


def gpunode() -> Json:
    """Return the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gpunodes.{DOMAIN}"},
        "spec": {
            "group": DOMAIN,
            "scope": "Cluster",
            "names": {
                "kind": "GPUNode",
                "listKind": "GPUNodeList",
                "plural": "gpunodes",
                "singular": "gpunode",
                "shortNames": ["gpun"],
            },
            "versions": [
                {
                    "name": "v1alpha1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _schema()},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                }
            ],
        },
    }


def _columns() -> list[Json]:
    """Return the columns of ``kubectl get``; it shows one item of a list, here the first GPU."""
    return [
        _column("Model", ".status.gpus[0].model"),
        _column("Mode", ".status.gpus[0].mode"),
        _column("Driver", ".status.driver"),
        _column("Boot", ".status.bootID", priority=1),
        _column("Inventory", ".status.inventory", priority=1),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        _column("Closed", ".status.closed"),  # last, because it is a sentence
    ]


def _column(name: str, path: str, priority: int = 0) -> Json:
    column: Json = {"name": name, "type": "string", "jsonPath": path}
    return column | ({"priority": priority} if priority else {})


def _schema() -> Json:
    return _object(
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _object(
                {"entries": _open(f"The entries of the ledger, one per pod: {_ENTRY_TEXT}.")},
                about="The ledger; only the control plane writes it.",
            ),
            "status": _status(),
        },
        required=("spec",),
        about="The GPUs of the node of this name, and the ledger of what is promised on them.",
    )


def _status() -> Json:
    uid = {"type": "string", "pattern": _UID.pattern}
    return _object(
        {
            "nodeUID": uid,
            "bootID": uid,
            "driver": {
                "type": "string",
                "minLength": 1,
                "maxLength": 64,
                "pattern": "^[ -~]*$",
                "description": "Version of the driver, or simulated, or upstream.",
            },
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "inventory": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
            "closed": {
                "type": "string",
                "minLength": 1,
                "maxLength": LONGEST_STATED,
                "pattern": "^[ -~]*$",
                "description": "Why the node takes no new pods; absent while it does.",
            },
            "exposed": {
                "type": "string",
                "minLength": 1,
                "maxLength": LONGEST_STATED,
                "pattern": "^[ -~]*$",
                "description": "Why any container of the node may see GPUs that nobody gave it; "
                "absent where none may.",
            },
            "boards": _open(
                "The MIG shapes of each GPU model as NVML reports them: name, slots, and profiles "
                "[{name, id, memoryMiB, sms, size, starts, limit}]."
            ),
            "gpus": _open(
                "uuid, index, pci, model, board (an index in boards), memoryMiB, mode, healthy, "
                "reason (why it is not), slots (how many containers may share it), numa, switch "
                "(PCI address of the PCIe switch above it), links (GPUs connected by NVLink), "
                "linkCounts (the number of NVLinks to each of these; absent with a switch), "
                "foreignMiB (memory held by processes without an entry), chunks (into how many "
                "equal parts its compute is divided; absent where it is not), chunkSMs "
                "(multiprocessors of one)."
            ),
            "instances": _open("Live MIG instances: gpu, profile, start, uuid."),
            "held": {
                "type": "array",
                "items": uid,
                "maxItems": 1024,
                "x-kubernetes-list-type": "atomic",
            },
            "unpromised": _open(
                f"Pods that use GPUs without an entry, each in the form of one: {_ENTRY_TEXT}."
            ),
        },
        about="What the node has; only its agent writes it.",
    )


def _open(about: str) -> Json:
    return {"description": about, "x-kubernetes-preserve-unknown-fields": True}


def _object(properties: Json, *, required: tuple[str, ...] = (), about: str = "") -> Json:
    schema: Json = {"type": "object", "description": about} if about else {"type": "object"}
    schema["properties"] = properties
    return schema | ({"required": list(required)} if required else {})
