"""Rows about what the node agent reports: its own node, in the shape that is promised."""

from typing import Final

from manifests.generator.names import Json
from tests.authorization.rows import CLAIMS, ERROR, OTHER, OWN, RBAC, STATUS, Row, Rule, status

_REPORT: Final = "gpunodes/status gpu-1"

AGENT_ON_LEDGERS: Final = (
    Row("agent reports", OWN, "patch", _REPORT, status(driver="570.1", gpus=[], boards=[])),
    Row("agent reports nothing", OWN, "patch", _REPORT, {"status": None}),
    Row(
        "agent slips a promise into its report", OWN, "patch", _REPORT, {"spec": {"entries": [{}]}}
    ),
    Row(
        "agent writes promises",
        OWN,
        "patch",
        "gpunodes gpu-1",
        {"spec": {"entries": [{}]}},
        (RBAC,),
    ),
    Row("agent deletes a ledger", OWN, "delete", "gpunodes gpu-1", {}, (RBAC,)),
    *(
        Row(f"agent {claim} reports", who, "patch", _REPORT, status(driver="1"), (STATUS,))
        for claim, who in {"of-another-node": OTHER, **CLAIMS}.items()
    ),
)

_GPU: Final = {
    "uuid": "GPU-1",
    "index": 0,
    "memoryMiB": 1,
    "mode": "mig",
    "healthy": True,
    "slots": 1,
    "model": "A",
}
_DEVICE: Final = {"gpu": "GPU-1", "mode": "hami-core", "memoryMiB": 1, "cores": 0}
_ENTRY: Final = {
    "pod": {"namespace": "team", "name": "bound", "uid": "1"},
    "since": "2026-11-21T17:00:00Z",
    "containers": [{"name": "main", "devices": [_DEVICE]}],
}


def _without(key: str) -> Json:
    return {name: value for name, value in _GPU.items() if name != key}


def _entry(**parts: object) -> Json:
    return _ENTRY | {"containers": [{"name": "main", "devices": [_DEVICE | parts]}]}


def _shape(place: str) -> Rule:
    return Rule("agents-gpunodes", f"status.{place} is invalid")


AGENTS_REPORTS: Final = (
    Row("agent reports a GPU", OWN, "patch", _REPORT, status(gpus=[_GPU])),
    Row("agent reports an entry", OWN, "patch", _REPORT, status(unpromised=[_ENTRY])),
    *(
        Row(f"agent reports {words}", OWN, "patch", _REPORT, status(**{field: value}), rules)
        for words, field, value, rules in (
            ("a text for a list", "gpus", "x", (_shape("gpus"), ERROR)),
            ("an empty map for a list", "gpus", {}, (_shape("gpus"),)),
            ("a map for a list", "gpus", {"GPU-1": _GPU}, (_shape("gpus"), ERROR)),
            ("a null in a list", "gpus", [None], (Rule("agents-gpunodes", "status.gpus[]"),)),
            ("a GPU without an id", "gpus", [_without("uuid")], (_shape("gpus[]"),)),
            ("a GPU of no model", "gpus", [_without("model")], (_shape("gpus[]"),)),
            (
                "a list for a model",
                "gpus",
                [_GPU | {"model": ["A"]}],
                (_shape("gpus[].model"), ERROR),
            ),
            (
                "a map for a model",
                "gpus",
                [_GPU | {"model": {"A": 1}}],
                (_shape("gpus[].model"), ERROR),
            ),
            ("an empty model", "gpus", [_GPU | {"model": ""}], (_shape("gpus[].model"),)),
            ("a text for a number", "gpus", [_GPU | {"index": "0"}], (_shape("gpus[].index"),)),
            ("a fraction", "gpus", [_GPU | {"slots": 0.5}], (_shape("gpus[].slots"),)),
            ("a negative size", "gpus", [_GPU | {"memoryMiB": -1}], (_shape("gpus[].memoryMiB"),)),
            *(
                (f"a negative {key}", "gpus", [_GPU | {key: -1}], (_shape(f"gpus[].{key}"),))
                for key in ("slots", "foreignMiB", "index", "numa", "board")
            ),
            ("too much", "gpus", [_GPU | {"memoryMiB": 2**31}], (_shape("gpus[].memoryMiB"),)),
            (
                "a mode that no GPU has",
                "gpus",
                [_GPU | {"mode": "memory-only"}],
                (_shape("gpus[].mode"),),
            ),
            ("a number for a truth", "gpus", [_GPU | {"healthy": 1}], (_shape("gpus[].healthy"),)),
            (
                "an id with a line break",
                "gpus",
                [_GPU | {"uuid": "GPU-1\n"}],
                (_shape("gpus[].uuid"),),
            ),
            (
                "a link with a slash",
                "gpus",
                [_GPU | {"links": ["../x"]}],
                (_shape("gpus[].links[]"),),
            ),
            (
                "a link that is counted in words",
                "gpus",
                [_GPU | {"links": ["GPU-2"], "linkCounts": ["two"]}],
                (_shape("gpus[].linkCounts[]"),),
            ),
            (
                "more chunks than percent",
                "gpus",
                [_GPU | {"chunks": 101}],
                (_shape("gpus[].chunks"),),
            ),
            (
                "chunks of fewer multiprocessors than none",
                "gpus",
                [_GPU | {"chunkSMs": -1}],
                (_shape("gpus[].chunkSMs"),),
            ),
            ("too many GPUs", "gpus", [_GPU] * 65, (_shape("gpus"),)),
            (
                "a board without profiles",
                "boards",
                [{"name": "A", "slots": 7, "profiles": []}],
                (_shape("boards[].profiles"),),
            ),
            (
                "an instance of no GPU",
                "instances",
                [{"profile": "1g.5gb", "start": 0}],
                (_shape("instances[]"),),
            ),
            ("an entry of a list of pods", "unpromised", [_ENTRY | {"pod": []}], (ERROR,)),
            (
                "an entry of no pod",
                "unpromised",
                [_ENTRY | {"pod": {}}],
                (_shape("unpromised[].pod"),),
            ),
            (
                "an entry of no day",
                "unpromised",
                [_ENTRY | {"since": "2026-02-31T00:00:00Z"}],
                (ERROR,),
            ),
            (
                "an entry of a time without zone",
                "unpromised",
                [_ENTRY | {"since": "2026-02-01T00:00:00"}],
                (_shape("unpromised[].since"),),
            ),
            (
                "an entry of a profile in software",
                "unpromised",
                [_entry(profile="1g.5gb", start=0)],
                (_shape("unpromised[].containers[].devices[]"),),
            ),
            (
                "an entry of MIG without a start",
                "unpromised",
                [_entry(mode="mig", profile="1g.5gb")],
                (_shape("unpromised[].containers[].devices[]"),),
            ),
        )
    ),
)

REPORTS: Final = (*AGENT_ON_LEDGERS, *AGENTS_REPORTS)
