"""The schema of GPUNode bounds whatever a node or a bug could put into it."""

import re
import unicodedata
from collections.abc import Iterator

from allocator.ledger.schema import (
    MOST_BOARDS,
    MOST_GPUS,
    BoardWire,
    ContainerWire,
    DeviceWire,
    EntryWire,
    GpuWire,
    InstanceWire,
    ProfileWire,
    Wire,
)
from allocator.mig.board_bounds import MOST_PROFILES, MOST_SLOTS
from manifests.generator.gpunode import LISTS, gpunode
from manifests.generator.names import Json
from manifests.generator.shapes import Many, Number, ObjectShape, Shape, Text, checks
from tests.builders.hostile_text import HOSTILE_TEXTS

WIRES: dict[type[Wire], str] = {
    BoardWire: "boards[]",
    ProfileWire: "boards[].profiles[]",
    GpuWire: "gpus[]",
    InstanceWire: "instances[]",
    EntryWire: "unpromised[]",
    ContainerWire: "unpromised[].containers[]",
    DeviceWire: "unpromised[].containers[].devices[]",
}

(VERSION,) = gpunode()["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def schemas(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from schemas(child, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")


OURS = [(path, s) for path, s in schemas(SCHEMA) if path.startswith((".spec", ".status"))]


OPEN = [s for _, s in OURS if "type" not in s]


def test_lists_of_objects_are_left_open() -> None:
    """What the schema looks into costs every promise; a description says what they hold."""
    assert len(OPEN) == 1 + len(LISTS)
    assert all(s["x-kubernetes-preserve-unknown-fields"] and s["description"] for s in OPEN)
    assert LISTS.keys() < SCHEMA["properties"]["status"]["properties"].keys()


def test_every_list_is_bounded_and_atomic() -> None:
    """Whoever writes a list writes all of it, and never without end."""
    lists = [(path, s) for path, s in OURS if s.get("type") == "array"]

    assert lists
    assert [p for p, s in lists if s.get("x-kubernetes-list-type") != "atomic"] == []
    assert [p for p, s in lists if "maxItems" not in s] == []


def test_every_text_is_bounded() -> None:
    """A length, a pattern with one, an enumeration, or a date."""
    bounds = {"maxLength", "pattern", "enum", "format"}
    texts = [(path, s) for path, s in OURS if s.get("type") == "string"]

    assert texts
    assert [path for path, s in texts if not bounds & s.keys()] == []


def test_no_number_is_negative() -> None:
    """A negative promise would let others take more than there is."""
    numbers = [(path, s) for path, s in OURS if s.get("type") == "integer"]

    assert numbers
    assert [path for path, s in numbers if s.get("minimum", -1) < 0] == []


def test_a_list_that_is_left_open_is_held_to_its_shape_by_a_policy() -> None:
    """Each field that we write has a condition of its own, and a refusal names it."""
    places = {check.place for check in checks(ObjectShape(LISTS), "s", "status")}

    for wire, place in WIRES.items():
        for field in wire.__struct_encode_fields__:
            assert f"status.{place}.{field}" in places


def test_status_is_written_apart_from_the_promises() -> None:
    """An agent's write cannot touch the spec, nor a commit the status."""
    assert VERSION["subresources"] == {"status": {}}


def texts(shape: Shape, path: str = "") -> Iterator[tuple[str, Text]]:
    match shape:
        case ObjectShape():
            for name, field in shape.fields.items():
                yield from texts(field, f"{path}.{name}")
        case Many():
            yield from texts(shape.of, f"{path}[]")
        case Text():
            yield path, shape
        case _:
            pass


TEXTS = list(texts(ObjectShape(LISTS))) + [
    (path, Text(s.get("maxLength", 253), s["pattern"])) for path, s in OURS if "pattern" in s
]


def re2(pattern: str) -> str:
    """Return what Python reads as RE2 reads *pattern*."""
    names = {r"[^\pC\pZ]": "[^" + "".join(map(re.escape, UNPRINTABLE)) + "]"}
    for name, same in names.items():
        pattern = pattern.replace(name, same)
    return pattern.replace("$", r"\Z")


UNPRINTABLE = [
    chr(code)
    for code in range(0x10000)
    if unicodedata.category(chr(code))[0] in "CZ" and unicodedata.category(chr(code)) != "Cn"
]


def test_no_text_of_a_node_can_steer_a_terminal() -> None:
    """Columns are printed as they are; whatever of it is open has a pattern that keeps them out."""
    plain = {path for path, s in OURS if s.get("type") == "string" and "pattern" not in s}

    assert len(TEXTS) > 20
    assert plain == set()
    for path, text in TEXTS:
        for hostile in HOSTILE_TEXTS.values():
            assert not re.search(re2(text.pattern), hostile), (path, hostile)


def test_lists_hold_what_hardware_has() -> None:
    """The policy refuses what a replica would close the node for."""
    boards, gpus = LISTS["boards"], LISTS["gpus"]
    board = boards.of
    assert isinstance(board, ObjectShape)
    profiles = board.fields["profiles"]

    assert (boards.most, gpus.most) == (MOST_BOARDS, MOST_GPUS)
    assert isinstance(profiles, Many)
    assert profiles.most == MOST_PROFILES
    assert board.fields["slots"] == Number(least=1, most=MOST_SLOTS)
