"""A GPUNode object of any content becomes a Node, and doubt costs capacity, not safety."""

import copy
from typing import Any

import msgspec
import pytest

from allocator.catalog.boards import board_named
from allocator.ledger import decode as gpunode
from allocator.ledger.decode import DecodedGpuNode
from allocator.ledger.schema import spec_of, status_of
from allocator.model.request import Mode

WHOLE: dict[str, Any] = {
    "apiVersion": "vgpu-admission.io/v1alpha1",
    "kind": "GPUNode",
    "metadata": {"name": "gpu-1", "generation": 7},
    "spec": {
        "entries": [
            {
                "pod": {"namespace": "team-a", "name": "train-0", "uid": "6a7d"},
                "since": "2026-11-21T17:00:00Z",
                "containers": [
                    {
                        "name": "main",
                        "devices": [
                            {
                                "gpu": "GPU-a",
                                "mode": "mig",
                                "memoryMiB": 4864,
                                "cores": 14,
                                "profile": "1g.5gb",
                                "start": 6,
                            }
                        ],
                    }
                ],
            }
        ]
    },
    "status": {
        "bootID": "0d1c",
        "inventory": "sha256:93af",
        "boards": [
            {
                "name": "NVIDIA A100-SXM4-40GB",
                "slots": 8,
                "profiles": [
                    {
                        "name": "1g.5gb",
                        "id": 19,
                        "memoryMiB": 4800,
                        "sms": 14,
                        "size": 1,
                        "starts": [0, 1, 4, 5, 6],
                    }
                ],
            }
        ],
        "gpus": [
            {
                "uuid": "GPU-a",
                "index": 0,
                "pci": "0000:3b:00.0",
                "board": 0,
                "memoryMiB": 40536,
                "mode": "mig",
                "healthy": True,
                "slots": 7,
                "numa": 0,
                "foreignMiB": 100,
            },
            {
                "uuid": "GPU-b",
                "index": 1,
                "model": "Tesla T4",
                "memoryMiB": 15360,
                "mode": "hami-core",
                "healthy": True,
                "slots": 10,
            },
        ],
        "instances": [{"gpu": "GPU-a", "profile": "1g.5gb", "start": 6, "uuid": "MIG-1"}],
        "held": ["6a7d"],
    },
}


def decode(document: object) -> DecodedGpuNode:
    """Read an object in both ways, which must agree."""
    decoded, text = gpunode.decode(document), msgspec.json.encode(document)
    if msgspec.json.decode(text) == document:  # else no JSON says that
        assert gpunode.decode_text(text) == decoded
    return decoded


def changed(path: str, value: object) -> dict[str, Any]:
    document = copy.deepcopy(WHOLE)
    *steps, last = path.split(".")
    at: Any = document
    for step in steps:
        at = at[int(step) if step.isdigit() else step]
    at[int(last) if last.isdigit() else last] = value
    return document


def test_a_whole_object_is_read() -> None:
    """Inventory, promises and instances come together on their GPUs."""
    decoded = decode(WHOLE)

    a100, t4 = decoded.node.gpus
    assert decoded.problems == ()
    assert (decoded.node.name, decoded.node.fresh) == ("gpu-1", True)
    assert (a100.model, a100.foreign, a100.taken_slots) == ("NVIDIA A100-SXM4-40GB", 100, 1 << 6)
    assert [placed.start for placed in a100.instances] == [6]
    assert (t4.model, t4.mode, t4.grants) == ("Tesla T4", Mode.HAMI_CORE, ())
    assert [(entry.pod, entry.uid) for entry in decoded.entries] == [("train-0", "6a7d")]


def test_live_shapes_win_over_the_catalogue() -> None:
    """A floor-swept board has the placements that its driver lists."""
    (gpu, _) = decode(WHOLE).node.gpus

    assert gpu.board is not None
    assert gpu.board.profiles[0].starts == (0, 1, 4, 5, 6)
    assert gpu.board != board_named(gpu.model)


def test_the_catalogue_stands_in_for_missing_shapes() -> None:
    """A known product without a board in status is cut as the catalogue says."""
    gpus = [{**WHOLE["status"]["gpus"][0], "board": None, "model": "A100-SXM4-40GB"}]

    (gpu,) = decode(changed("status.gpus", gpus)).node.gpus

    assert gpu.board == board_named("A100-SXM4-40GB")


def test_nodes_share_equal_boards() -> None:
    """Tables built per board are built once for the whole fleet."""
    first, second = decode(WHOLE), decode(copy.deepcopy(WHOLE))

    assert first.node.gpus[0].board is second.node.gpus[0].board


def test_names_that_many_objects_have_are_kept_once() -> None:
    """Thousands of nodes have the same models, and grants name the GPUs of their node."""
    raw = msgspec.json.encode(WHOLE)
    first, second = decode(msgspec.json.decode(raw)), decode(msgspec.json.decode(raw))
    [*entries] = zip(first.entries, second.entries, strict=True)
    gpus = {gpu.uuid: gpu.uuid for gpu in first.node.gpus}

    for one, other in zip(first.node.gpus, second.node.gpus, strict=True):
        assert one.model is other.model
        assert one.uuid is other.uuid
    assert entries
    for entry, again in entries:
        assert entry.namespace is again.namespace
        assert entry.uid is again.uid
        for container in entry.containers:
            assert all(grant.gpu is gpus[grant.gpu] for grant in container.grants)


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        pytest.param("spec.entries.0", None, "spec.entries[0]", id="entry-is-nothing"),
        pytest.param("spec.entries.0.since", "x", "spec.entries[0].since", id="no-time"),
        pytest.param("spec.entries.0.pod.uid", 7, "spec.entries[0].pod.uid", id="uid-a-number"),
        pytest.param("spec.entries", {}, "spec.entries", id="entries-not-a-list"),
        pytest.param("spec", "x", "spec", id="spec-not-an-object"),
        pytest.param(
            "spec.entries.0.containers.0.devices.0.profile",
            "9g.90gb",
            "spec.entries[0].containers[0].devices[0]",
            id="unknown-profile",
        ),
        pytest.param(
            "spec.entries.0.containers.0.devices.0.start",
            None,
            "spec.entries[0].containers[0].devices[0]",
            id="no-start",
        ),
        pytest.param("spec.entries.0.pod", {"name": "a"}, "spec.entries[0].pod", id="no-uid"),
        pytest.param("spec.entries.0.pod.uid", "6a\n", "spec.entries[0].pod.uid", id="newline"),
        *(
            pytest.param(
                f"spec.entries.0.containers.0.devices.0.{key}",
                value,
                f"spec.entries[0].containers[0].devices[0].{key}",
                id=f"bad-{key}",
            )
            for key, value in (
                ("mode", "soft"),
                ("memoryMiB", -1),
                ("cores", 101),
                ("gpu", "GPU-a,NVIDIA:"),
                ("gpu", "GPU-a\n"),
            )
        ),
        pytest.param(
            "spec.entries.0.containers.0.devices.0.mode",
            "hami-core",
            "spec.entries[0].containers[0].devices[0]",
            id="place-without-mig",
        ),
        pytest.param(
            "spec.entries.0.containers",
            [{"name": "c", "devices": []}] * 65,
            "spec.entries[0].containers",
            id="too-many",
        ),
        pytest.param("status.instances.0.start", 8, "status.instances[0]", id="beyond-the-board"),
        pytest.param("status.instances.0.gpu", "GPU-z", "status.instances[0]", id="unknown-gpu"),
    ],
)
def test_unreadable_promises_close_the_node(path: str, value: object, where: str) -> None:
    """What may be taken is not given out again."""
    decoded = decode(changed(path, value))

    assert [problem.path for problem in decoded.problems] == [where]
    assert [gpu.healthy for gpu in decoded.node.gpus] == [False, False]


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        pytest.param("status.gpus.1.memoryMiB", -1, "status.gpus[1].memoryMiB", id="negative"),
        pytest.param("status.gpus.1.mode", "soft", "status.gpus[1].mode", id="unknown-mode"),
        pytest.param("status.gpus.1.mode", "memory-only", "status.gpus[1].mode", id="grant-mode"),
        pytest.param("status.gpus.1.uuid", "GPU-a", "status.gpus[1]", id="same-gpu-twice"),
        pytest.param("status.gpus.1.uuid", "GPU;b", "status.gpus[1].uuid", id="separator"),
        pytest.param("status.gpus.1.slots", 2**40, "status.gpus[1].slots", id="huge"),
        # A negative amount that is taken would be room that no GPU has.
        *(
            pytest.param(f"status.gpus.1.{key}", -1, f"status.gpus[1].{key}", id=f"negative-{key}")
            for key in ("index", "slots", "foreignMiB", "numa", "board")
        ),
        pytest.param("status.gpus.1", [], "status.gpus[1]", id="gpu-is-a-list"),
    ],
)
def test_unreadable_gpus_are_left_out(path: str, value: object, where: str) -> None:
    """The others stay; a node that may have more is no ground for a refusal."""
    decoded = decode(changed(path, value))

    assert [problem.path for problem in decoded.problems] == [where]
    assert [gpu.uuid for gpu in decoded.node.gpus] == ["GPU-a"]
    assert decoded.node.gpus[0].healthy
    assert not decoded.node.fresh


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("status.boards.0.profiles.0.name", "small", id="no-profile-name"),
        pytest.param("status.boards.0.profiles.0.starts", [8], id="beyond-the-board"),
        pytest.param("status.boards.0.profiles.0.sms", 0, id="no-multiprocessors"),
        pytest.param("status.boards.0.profiles", [], id="no-profiles"),
        pytest.param("status.boards.0", 1, id="no-board"),
    ],
)
def test_unreadable_shapes_leave_nothing_to_cut(path: str, value: object) -> None:
    """A GPU in mode mig without shapes is never shared instead (V8)."""
    gpu = decode(changed(path, value)).node.gpus[0]

    assert (gpu.mode, gpu.board) == (Mode.MIG, None)


@pytest.mark.parametrize("document", [None, 3, [], {}, {"metadata": {}}, {1: 2}], ids=repr)
def test_anything_else_is_an_empty_node(document: object) -> None:
    """No content raises."""
    decoded = decode(document)

    assert decoded.node.gpus == ()
    assert decoded.problems
    assert not decoded.node.fresh


def test_no_gpus_is_not_the_same_as_nobody_looked() -> None:
    """A new object waits for its agent; an agent that found nothing has answered."""
    named = {"metadata": {"name": "gpu-1"}}

    assert not decode({**named, "status": {}}).node.fresh
    assert decode({**named, "status": {"gpus": []}}).node.fresh


def test_the_digest_follows_the_inventory_alone() -> None:
    """A commit depends on boards and GPUs, not on promises or on what is cut."""
    node = decode(WHOLE).node
    idle = decode(changed("spec.entries", [])).node
    broken = decode(changed("status.gpus.0.healthy", False)).node  # noqa: FBT003 - a JSON value

    digests = [status_of(each)["inventory"] for each in (node, idle, broken)]

    assert digests[0] == digests[1] != digests[2]


def test_our_own_objects_have_no_nulls_and_all_lists() -> None:
    """The API server refuses null where the schema has a number; patches need the list there."""
    assert spec_of(()) == {"entries": []}
    assert "null" not in str(status_of(decode(WHOLE).node)).replace("None", "null")


def test_what_a_promise_does_not_touch_is_read_once() -> None:
    """Idle GPUs and known promises are the same objects, whatever was promised or held since."""
    before, after = decode(WHOLE), decode(changed("status.held", []))
    more = decode(changed("spec.entries", [*WHOLE["spec"]["entries"], OTHER]))

    assert after.entries[0] is before.entries[0] is more.entries[0]
    assert after.node.gpus[1] is before.node.gpus[1]
    assert (len(more.entries), len(more.node.gpus[1].grants)) == (2, 1)
    assert decode(changed("status.gpus.1.numa", 1)).node.gpus[1] != before.node.gpus[1]


OTHER = {
    "pod": {"namespace": "team-a", "name": "train-1", "uid": "6a7e"},
    "since": "2026-11-21T17:00:00Z",
    "containers": [
        {
            "name": "main",
            "devices": [{"gpu": "GPU-b", "mode": "hami-core", "memoryMiB": 100, "cores": 0}],
        }
    ],
}
