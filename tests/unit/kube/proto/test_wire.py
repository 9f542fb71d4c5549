"""What the API server says in protobuf is what it says in JSON; nonsense ends the stream."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import GoneError, UnreadableError, refusal
from kube.proto import core_pb2 as core
from kube.proto import wire
from kube.stream import END_OF_LIST, ends_list, parse_frame, parse_page, resource_version_of
from tests.builders.messages import envelope, event, pod_bytes

ROOT = Path(__file__).parents[4]
FOLDER = "kube/proto"
POD = pod_bytes({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}})


def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    """Nobody has edited what is generated, nor forgotten `make proto`."""
    made = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *made, f"{FOLDER}/core.proto"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)

    found = {path.name: path.read_bytes() for path in (tmp_path / FOLDER).iterdir()}

    assert len(found) == 2
    assert found == {name: (ROOT / FOLDER / name).read_bytes() for name in found}


def test_an_event_and_its_object_are_told_apart() -> None:
    """As from JSON: the type, the object, and the version that a watch resumes from."""
    found = parse_frame(event("MODIFIED", POD))

    assert (found.type, bytes(found.object)) == ("MODIFIED", POD)
    assert resource_version_of(found.object) == "7"


@pytest.mark.parametrize(("annotations", "ends"), [({END_OF_LIST: "true"}, True), ({}, False)])
def test_the_end_of_a_list_is_seen(annotations: dict[str, str], *, ends: bool) -> None:
    """A bookmark says so."""
    metadata = {"resourceVersion": "7", "annotations": annotations}

    assert (
        ends_list(parse_frame(event("BOOKMARK", pod_bytes({"metadata": metadata}))).object) is ends
    )


def test_a_page_of_a_list() -> None:
    """Each item is as an object of its own."""
    pods = [core.Pod(metadata=core.ObjectMeta(name=name)) for name in "ab"]
    meta = core.ListMeta(resourceVersion="9", continueToken="next")
    page = core.ObjectList(metadata=meta, items=[pod.SerializeToString() for pod in pods])

    items, found = parse_page(envelope(page, "PodList"))

    names = [wire.parse_envelope(bytes(i), core.PodEnvelope).raw.metadata.name for i in items]
    assert (names, found.resource_version, found.continue_) == (["a", "b"], "9", "next")


def test_a_refusal_is_an_error_as_from_json() -> None:
    """What is no object in protobuf is left as it is."""
    status = core.Status(status="Failure", message="too old", reason="Expired", code=410)

    error = refusal(wire.status_json(envelope(status, "Status")))

    assert isinstance(error, GoneError)
    assert (error.status, error.reason) == (410, "Expired")
    assert wire.status_json(b"<html>") == b"<html>"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x0a\x05ADD", id="cut-off"),
        pytest.param(b"\xff\xff\xff\xff", id="no-protobuf"),
    ],
)
def test_what_is_no_event_is_refused(data: bytes) -> None:
    """The stream is left, and begun anew with a list."""
    with pytest.raises(UnreadableError):
        parse_frame(data)


@pytest.mark.parametrize("data", [b"", b"k8s", b"{}", wire.MAGIC + b"\x12\x05abc"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    """Also what has the magic bytes and nothing else that is right."""
    with pytest.raises(UnreadableError):
        resource_version_of(data)


@given(st.binary(max_size=64))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """Whoever answers in the place of the API server gets an error of ours."""
    for read in (parse_frame, parse_page, resource_version_of, wire.status_json):
        try:
            read(wire.MAGIC + data)
            read(data)
        except UnreadableError:
            pass
