"""The schema of GPUNode bounds whatever a node or a bug could put into it."""

from collections.abc import Iterator

from manifests.generator.gpunode import gpunode
from manifests.generator.names import Json

(VERSION,) = gpunode()["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def schemas(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from schemas(child, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")


OURS = [(path, s) for path, s in schemas(SCHEMA) if path.startswith((".spec", ".status"))]


def test_every_list_is_bounded_and_atomic() -> None:
    """Whoever writes a list writes all of it, and never without end."""
    lists = [(path, s) for path, s in OURS if s["type"] == "array"]

    assert lists
    assert [p for p, s in lists if s.get("x-kubernetes-list-type") != "atomic"] == []
    assert [p for p, s in lists if "maxItems" not in s] == []


def test_every_text_is_bounded() -> None:
    """A length, a pattern with one, an enumeration, or a date."""
    bounds = {"maxLength", "pattern", "enum", "format"}
    texts = [(path, s) for path, s in OURS if s["type"] == "string"]

    assert texts
    assert [path for path, s in texts if not bounds & s.keys()] == []


def test_no_number_is_negative() -> None:
    """A negative promise would let others take more than there is."""
    numbers = [(path, s) for path, s in OURS if s["type"] == "integer"]

    assert numbers
    assert [path for path, s in numbers if s.get("minimum", -1) < 0] == []


def test_status_is_written_apart_from_the_promises() -> None:
    """An agent's write cannot touch the spec, nor a commit the status."""
    assert VERSION["subresources"] == {"status": {}}
