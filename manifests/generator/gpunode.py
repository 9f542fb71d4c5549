"""The schema of GPUNode: the ledger's shape, with a bound on every length.

Bounds are far above what hardware has; they keep one object below the API server's limits and
a compromised node from filling them. Lists are atomic: whoever writes one writes all of it.
"""

from typing import Final

from allocator.model.request import Mode
from manifests.generator.names import DOMAIN, Json

_INT32: Final = 2**31 - 1

_UID: Final = "^[0-9A-Za-z-]{1,64}$"
# A device id travels in Volcano's annotations, whose separators it must not contain.
_DEVICE_ID: Final = "^[0-9A-Za-z][0-9A-Za-z._-]{0,95}$"
_PROFILE: Final = r"^([0-9]+c\.)?[0-9]+g\.[0-9]+gb[0-9a-z.+-]{0,16}$"


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
    """List what ``kubectl get`` shows; of a list it shows one item, so the first GPU speaks."""
    return [
        _column("Model", ".status.gpus[0].model"),
        _column("Mode", ".status.gpus[0].mode"),
        _column("Driver", ".status.driver"),
        _column("Boot", ".status.bootID", priority=1),
        _column("Inventory", ".status.inventory", priority=1),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
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
                {"entries": _list(_entry("A promise until it is removed."), most=1024)},
                about="What is promised; written by the control plane only.",
            ),
            "status": _status(),
        },
        required=("spec",),
        about="One node's GPUs and the ledger of what is promised on them; named as the node.",
    )


def _entry(meaning: str) -> Json:
    pod = _object(
        {
            "namespace": _text(63),
            "name": _text(253),
            "uid": {"type": "string", "pattern": _UID},
        },
        required=("namespace", "name", "uid"),
    )
    container = _object(
        {"name": _text(63), "devices": _list(_device(), most=64)},
        required=("name", "devices"),
    )
    return _object(
        {
            "pod": pod,
            "since": {"type": "string", "format": "date-time"},
            "containers": _list(container, most=64),
        },
        required=("pod", "since", "containers"),
        about=f"One pod's assignment. {meaning}",
    )


def _device() -> Json:
    device = _object(
        {
            "gpu": {"type": "string", "pattern": _DEVICE_ID},
            "mode": _modes(*Mode),
            "memoryMiB": _number(),
            "cores": _number(most=100),
            "profile": {"type": "string", "pattern": _PROFILE},
            "start": _number(most=63),
            "position": _text(80) | {"description": "What Volcano calls it, as group2-3."},
        },
        required=("gpu", "mode", "memoryMiB", "cores"),
    )
    others = [mode.value for mode in Mode if mode is not Mode.MIG]
    placed = {"properties": {"mode": {"enum": [Mode.MIG.value]}}, "required": ["profile", "start"]}
    unplaced = {
        "properties": {"mode": {"enum": others}},
        "not": {"anyOf": [{"required": [key]} for key in ("profile", "start", "position")]},
    }
    return device | {"oneOf": [placed, unplaced]}


def _status() -> Json:
    return _object(
        {
            "nodeUID": {"type": "string", "pattern": _UID},
            "bootID": {"type": "string", "pattern": _UID},
            "driver": _text(64) | {"description": "Its version, or that GPUs are simulated."},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "inventory": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
            "boards": _list(_board(), most=64),
            "gpus": _list(_gpu(), most=64),
            "instances": _list(_instance(), most=1024),
            "held": _list({"type": "string", "pattern": _UID}, most=1024),
            "unpromised": _list(_entry("What runs here without an entry."), most=1024),
        },
        about="What is there; written by the node's agent only.",
    )


def _board() -> Json:
    profile = _object(
        {
            "name": {"type": "string", "pattern": _PROFILE},
            "id": _number(),
            "memoryMiB": _number(least=1),
            "sms": _number(least=1),
            "size": _number(least=1, most=16),
            "starts": _list(_number(most=63), most=64),
            "limit": _number(least=1),
        },
        required=("name", "id", "memoryMiB", "sms", "size", "starts"),
    )
    return _object(
        {
            "name": _text(253),
            "slots": _number(least=1, most=16),
            "profiles": _list(profile, most=64) | {"minItems": 1},
        },
        required=("name", "slots", "profiles"),
        about="The shapes of one GPU model as NVML reports them.",
    )


def _gpu() -> Json:
    gpu = _object(
        {
            "uuid": {"type": "string", "pattern": _DEVICE_ID},
            "index": _number(most=255),
            "pci": _pci(),
            "model": _text(253),
            "board": _number(most=63) | {"description": "Index in boards."},
            "memoryMiB": _number(least=1),
            "mode": _modes(Mode.MIG, Mode.HAMI_CORE),
            "healthy": {"type": "boolean"},
            "slots": _number() | {"description": "How many containers may share it."},
            "numa": _number(most=1023),
            "switch": _pci() | {"description": "The PCIe switch that it hangs on."},
            "links": _list({"type": "string", "pattern": _DEVICE_ID}, most=64)
            | {"description": "GPUs that NVLink joins with it."},
            "reason": _text(256) | {"description": "Why it is not healthy."},
            "foreignMiB": _number() | {"description": "Memory held by processes not ours."},
        },
        required=("uuid", "index", "memoryMiB", "mode", "healthy", "slots"),
    )
    # A GPU that cannot be cut has no board, and then must say itself what it is.
    return gpu | {"anyOf": [{"required": ["board"]}, {"required": ["model"]}]}


def _pci() -> Json:
    return {"type": "string", "pattern": r"^[0-9A-Fa-f]{4,8}(:[0-9A-Fa-f]{2}){2}\.[0-7]$"}


def _instance() -> Json:
    return _object(
        {
            "gpu": {"type": "string", "pattern": _DEVICE_ID},
            "profile": {"type": "string", "pattern": _PROFILE},
            "start": _number(most=63),
            "uuid": {"type": "string", "pattern": _DEVICE_ID},
        },
        required=("gpu", "profile", "start"),
    )


def _object(properties: Json, *, required: tuple[str, ...] = (), about: str = "") -> Json:
    schema: Json = {"type": "object", "description": about} if about else {"type": "object"}
    schema["properties"] = properties
    return schema | ({"required": list(required)} if required else {})


def _list(items: Json, *, most: int) -> Json:
    return {
        "type": "array",
        "items": items,
        "maxItems": most,
        "x-kubernetes-list-type": "atomic",
    }


def _number(*, least: int = 0, most: int = _INT32) -> Json:
    return {"type": "integer", "minimum": least, "maximum": most}


def _text(most: int) -> Json:
    return {"type": "string", "minLength": 1, "maxLength": most}


def _modes(*modes: Mode) -> Json:
    return {"type": "string", "enum": [mode.value for mode in modes]}
