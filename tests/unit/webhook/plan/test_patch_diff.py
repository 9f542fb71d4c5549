"""Diffs: what a person reads of a patch."""

from allocator.config.settings import NodeAgent, Settings
from allocator.model.request import Mode
from allocator.placement.fleet import snapshot_of
from tests.builders.model import A100_40, nodes_of
from tests.builders.pods import (
    GPU_MEM,
    NUMBER,
    PERCENT,
    Json,
    container,
    decided,
    pod,
    received,
    typed,
)
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import GpusHidden, Rewritten
from webhook.plan.patch_diff import FieldChange, changes, sections, tokens
from webhook.review.json_patch import operations

SNAPSHOT = snapshot_of([nodes_of(1, A100_40, mode=Mode.MIG)], version="1", complete=True)


def diff(written: Json, settings: Settings | None = None) -> dict[str, list[str]]:
    around = AdmissionContext(settings=settings or Settings(), snapshot=SNAPSHOT, host_paths=True)
    outcome = decided(written, around)
    assert isinstance(outcome, Rewritten | GpusHidden)
    found = received(written)
    return dict(sections(found, operations(typed(found), outcome.intent)))


def test_a_pointer_is_unescaped() -> None:
    """RFC 6901: ``~1`` is a slash, ``~0`` a tilde, in this order."""
    assert tokens("/a~1b/~01/-") == ("a/b", "~1", "-")


def test_what_is_added_whole_is_shown_in_its_parts() -> None:
    """A parent that the patch creates is not what changed."""
    add: Json = {"op": "add", "path": "/m", "value": {"a": {"b": 1}, "c": [2, 3]}}
    remove: Json = {"op": "remove", "path": "/x/0"}

    assert list(changes({"m": {"a": {"b": 0}}, "x": ["old"]}, [add, remove])) == [
        FieldChange(at=("m", "a", "b"), before=0, after=1),
        FieldChange(at=("m", "c", "-"), before=None, after=2),
        FieldChange(at=("m", "c", "-"), before=None, after=3),
        FieldChange(at=("x", "0"), before="old", after=None),
    ]


def test_variables_are_counted_and_few_are_named() -> None:
    """Our variables are a table in the docs; a single one is worth its line."""
    found = diff(pod(container("a", {NUMBER: 1}), container("b")))

    assert found["spec.containers[0], a"] == ["+ 3 variables (docs/injection.md)"]
    assert found["spec.containers[1], b"] == ["+ env NVIDIA_VISIBLE_DEVICES=void"]


def test_annotations_and_resources_show_their_values() -> None:
    """What a user may want to copy stands there in full."""
    shared = Settings(default_mode=Mode.HAMI_CORE)
    found = diff(pod(container(limits={GPU_MEM: 1})), shared)

    assert "+ vgpu-admission.io/mode: memory-only" in found["metadata.annotations"]
    assert f"+ resources limits {NUMBER}: 1" in found["spec.containers[0], main"]


def test_what_is_replaced_makes_two_lines() -> None:
    """A percentage that the upstream plugin would not understand gives way to MiB."""
    upstream = Settings(node_agent=NodeAgent.UPSTREAM)

    found = diff(pod(container(limits={NUMBER: 1, PERCENT: 50})), upstream)

    lines = found["spec.containers[0], main"]
    assert f"- resources limits {PERCENT}: 50" in lines
    assert any(line.startswith("+ resources limits volcano.sh/vgpu-memory: ") for line in lines)
