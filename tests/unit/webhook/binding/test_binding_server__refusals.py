"""Refusals of binds are passed on to whoever tells a pod's group of them."""

import asyncio

import pytest

from kube.clock import Clock
from tests.builders.bindings import answered, binding, review
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import nodes_of, soft_grant
from tests.unit.webhook.binding.test_binding_server import AROUND, api
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
    server, heard = api(), list[tuple[str, str]]()
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
    assert [(uid, told in text) for uid, text in heard] == ([] if dry else [("uid-p", True)])
