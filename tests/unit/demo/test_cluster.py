"""The cluster of the demo, called as an API server is."""

import asyncio

import orjson
import pytest

from allocator.ledger.commit import commit_all
from allocator.model.request import Mode
from demo.cluster import DemoCluster
from kube.errors import ApiError, InvalidError, NotFoundError
from tests.builders.gpunodes import entry
from tests.builders.model import A100_40, T4, gpu, mig_grant, node, placed, soft_grant

CREATED = "2026-10-21T09:00:00Z"
PATH = "/apis/vgpu-admission.io/v1alpha1/gpunodes/n0"


def cluster() -> DemoCluster:
    hard = gpu(A100_40, mode=Mode.MIG, instances=[placed("1g.5gb", 0), placed("1g.5gb", 6)])
    busy = gpu(T4, index=1, grants=[soft_grant(4000)])
    return DemoCluster([node("n0", hard, busy)], created=CREATED)


def test_the_fleet_begins_empty() -> None:
    """What a fleet file says to be busy is of pods that the story does not know."""
    ledger = cluster().ledger("n0")

    assert ledger is not None
    assert not ledger.closed
    assert not ledger.problems
    assert [one.grants for one in ledger.node.gpus] == [(), ()]
    assert len(ledger.node.gpus[0].instances) == 2


def test_a_commit_is_stored_and_its_instance_reported() -> None:
    """The agent of the node makes room for what was promised, and has seen the change."""
    there = cluster()
    before = there.ledger("n0")
    assert before is not None
    promised = entry("uid-1", mig_grant("2g.10gb", 0, gpu="GPU-n0-0"))

    answer = asyncio.run(there.json_patch(PATH, commit_all(before, [promised])))

    after = there.ledger("n0")
    assert after is not None
    assert after.entries == (promised,)
    assert after.generation == after.observed_generation == before.generation + 1
    assert {(one.profile.name, one.start) for one in after.node.gpus[0].instances} == {
        ("2g.10gb", 0),
        ("1g.5gb", 6),
    }
    assert there.nodes_with_entry("uid-1") == {"n0"}
    assert answer == orjson.dumps(there.gpu_nodes["n0"])


def test_a_commit_on_an_old_version_is_refused() -> None:
    """Its tests fail as they would at an API server."""
    there = cluster()
    before = there.ledger("n0")
    assert before is not None
    first = commit_all(before, [entry("uid-1", soft_grant(1, gpu="GPU-n0-1"))])
    asyncio.run(there.json_patch(PATH, first))

    with pytest.raises(InvalidError):
        asyncio.run(
            there.json_patch(PATH, commit_all(before, [entry("u2", soft_grant(1, gpu="GPU-n0-1"))]))
        )

    after = there.ledger("n0")
    assert after is not None
    assert [one.uid for one in after.entries] == ["uid-1"]


def test_a_broken_gpu_is_reported() -> None:
    """It stays in the ledger and takes no pod."""
    there = cluster()

    uuid = there.break_gpu("n0", 1, "XID 79")

    ledger = there.ledger("n0")
    assert ledger is not None
    assert [(one.uuid, one.healthy) for one in ledger.node.gpus] == [
        ("GPU-n0-0", True),
        (uuid, False),
    ]


def test_objects_that_are_not_there_are_not_found() -> None:
    """And what the demo's API server does not do is refused, never ignored."""
    there = cluster()

    assert orjson.loads(asyncio.run(there.get("/api/v1/nodes/n0")))["metadata"]["name"] == "n0"
    for path in ("/api/v1/nodes/n1", "/api/v1/namespaces/a/pods/p", "/apis/apps/v1/deployments"):
        with pytest.raises(NotFoundError):
            asyncio.run(there.get(path))
    for call in (
        there.create("/api/v1/pods", b""),
        there.merge_patch("/api/v1/pods", {}),
        there.apply("/api/v1/pods", b"", field_manager="m"),
        there.delete("/api/v1/pods"),
        there.json_patch("/api/v1/nodes/n0", []),
    ):
        with pytest.raises(ApiError, match="does not do this"):
            asyncio.run(call)
