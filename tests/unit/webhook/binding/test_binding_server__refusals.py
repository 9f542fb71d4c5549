"""Refusals of binds are passed on to whoever tells a pod's group of them."""

import asyncio

import pytest

from allocator.ledger.schema import spec_of
from kube.clock import Clock
from tests.builders.bindings import answered, binding, review
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import nodes_of, soft_grant
from tests.harness.records import KeptRecords
from tests.unit.webhook.binding.test_binding_server import AROUND, api
from webhook.binding.audit_record import BindRecords
from webhook.binding.binding_server import BindingHandler


@pytest.mark.parametrize(
    ("node", "dry", "told"),
    [
        pytest.param("n7", False, 'node "n7" has no GPUs', id="no-ledger"),
        pytest.param("n0", False, "an earlier binding of the pod", id="held-elsewhere"),
        pytest.param("n7", True, "", id="dry-run"),
    ],
)
def test_whoever_is_refused_a_promise_is_heard_of(node: str, told: str, *, dry: bool) -> None:
    """Its gang is as short of a member for one reason as for another; a dry run is no attempt."""
    server, heard = api(), list[tuple[str, str, str]]()
    if node == "n0":
        for name in ("n1", "n2"):
            earlier = [entry("uid-p", soft_grant(3000))]
            server.others[name] = gpu_node(nodes_of(1, name=name), earlier, held=["uid-p"])
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset({"n1", "n2"} if node == "n0" else ()),
        note_refusal=lambda *refusal: heard.append(refusal),
        clock=Clock(random=lambda: 0),
    )

    found = answered(asyncio.run(binder.bind(review(binding(node=node), dryRun=dry))))

    assert not found["allowed"]
    code = {"n7": "Forbidden", "n0": "Conflict"}[node]
    refusals = [(uid, told in text, reason) for uid, text, reason in heard]
    assert refusals == ([] if dry else [("uid-p", True, code)])


@pytest.mark.parametrize("number", [0, 1, 3])
def test_pods_without_an_entry_are_counted_where_there_is_no_room(number: int) -> None:
    """Not named: who is refused may not see the other namespace's pods."""
    server = api()
    memory = nodes_of(1).gpus[0].memory
    names = ["secret-pod", "b", "c"][:number]
    use = [entry(name, soft_grant(memory, gpu="GPU-n0-0")) for name in names]
    full = entry("full", soft_grant(memory, gpu="GPU-n0-0"))
    server.gpu_node = gpu_node(nodes_of(1), [full], unpromised=spec_of(use)["entries"])
    binder = BindingHandler(
        calls=server, context_of=lambda _: AROUND, nodes_with_entry=lambda _: frozenset()
    )

    found = answered(asyncio.run(binder.bind(review(binding()))))

    assert not found["allowed"]
    words = {
        0: "",
        1: "; 1 pod uses GPUs there without an entry: kubectl vgpu why names them",
        3: "; 3 pods use GPUs there without an entry: kubectl vgpu why names them",
    }
    assert found["status"]["message"].endswith(words[number] or "]")
    assert "secret-pod" not in found["status"]["message"]


@pytest.mark.parametrize("closed", [False, True])
def test_a_refusal_for_want_of_room_can_be_decided_again(*, closed: bool) -> None:
    """Its record keeps what it rests on; of a closed node only that it is closed decided."""
    server, kept = api(), KeptRecords()
    full = entry("full", soft_grant(nodes_of(1).gpus[0].memory, gpu="GPU-n0-0"))
    document = gpu_node(nodes_of(1), [full])
    if closed:
        document["status"]["inventory"] = ""
    server.gpu_node = document
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        remember=kept.remember,
        records=BindRecords(snapshot_digest=lambda inputs: inputs.node.name),
    )

    answered(asyncio.run(binder.bind(review(binding()))))

    (record,) = kept.of("bind")
    assert record["outcome"] == "refused"
    assert record.get("snapshot", "") == ("" if closed else "n0")
    assert ("taken" in record) == ("asked" in record) == (not closed)
