"""A pod that has entries elsewhere is not shut out: the oldest of them makes place for a new one.

Whoever learns the secret path of the hook can forge reviews, and with them entries for pods of
others. Before, two of them kept a pod from every third node.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Unpack

import pytest
from structlog.testing import capture_logs

from allocator.model.allocation import Entry
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import ConflictError
from tests.builders.bindings import answered, binding, review, stored
from tests.builders.gpunodes import NOON, Json, entry, gpu_node
from tests.builders.model import nodes_of, soft_grant
from tests.fakes.ledger_server import LedgerServer
from tests.harness.records import KeptRecords
from tests.unit.webhook.binding.test_binding_server import AROUND, ASKING, api
from webhook.binding.binding_server import BindingHandler, LateError

EARLIER, LATER = NOON - timedelta(seconds=60), NOON - timedelta(seconds=5)


def with_entries(server: LedgerServer, **entries: Entry) -> LedgerServer:
    """Return *server* with a GPUNode for each of *entries*, by the node's name."""
    server.others = {name: gpu_node(nodes_of(1, name=name), [one]) for name, one in entries.items()}
    return server


def forged(server: LedgerServer) -> LedgerServer:
    """Let somebody have made two entries for pod ``p``; another pod has one beside each."""
    first = entry("uid-p", soft_grant(3000), since=EARLIER)
    second = entry("uid-p", soft_grant(3000), since=LATER)
    return with_entries(server, n1=first, n2=second)


def bind(
    server: LedgerServer,
    *,
    dry: bool = False,
    patience: float = 5,
    records: KeptRecords | None = None,
) -> Json:
    """Let a replica that knows of the entries on n1 and n2 review a bind of ``p`` to n0."""
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset({"n1", "n2"}),
        remember=(KeptRecords() if records is None else records).remember,
        clock=Clock(random=lambda: 0),
        patience=patience,
    )
    return answered(asyncio.run(binder.bind(review(binding(), dryRun=dry))))


def uids_elsewhere(server: LedgerServer) -> dict[str, list[str]]:
    return {
        name: [one["pod"]["uid"] for one in found["spec"]["entries"]]
        for name, found in server.others.items()
    }


def test_the_oldest_makes_place() -> None:
    """Two forged entries do not keep a pod from a third node, and it has two of them afterwards."""
    server, records = forged(api()), KeptRecords()

    assert bind(server, records=records)["allowed"]
    assert uids_elsewhere(server) == {"n1": [], "n2": ["uid-p"]}
    assert [(r["node"], r["why"]) for r in records.of("released")] == [("n1", "replaced")]
    assert server.uids == ["uid-p"]


def test_entries_of_others_stay() -> None:
    """Only the pod's own entry is taken off a ledger."""
    server = forged(api())
    both = [entry("uid-x", soft_grant(1000)), entry("uid-p", soft_grant(3000), since=EARLIER)]
    server.others["n1"] = gpu_node(nodes_of(1, name="n1"), both)

    assert bind(server)["allowed"]
    assert uids_elsewhere(server)["n1"] == ["uid-x"]


def test_a_cache_that_is_behind_costs_no_entry() -> None:
    """The ledgers are read: one that has lost its entry does not count."""
    server = forged(api())
    server.others["n2"] = gpu_node(nodes_of(1, name="n2"))

    assert bind(server)["allowed"]
    assert uids_elsewhere(server)["n1"] == ["uid-p"]


def test_a_node_that_is_gone_does_not_count() -> None:
    """A GPUNode that a cache still shows may have been deleted."""
    server = forged(api())
    del server.others["n2"]

    assert bind(server)["allowed"]
    assert uids_elsewhere(server) == {"n1": ["uid-p"]}


def test_a_dry_run_takes_nothing() -> None:
    """It says that the pod would be bound, and every entry stays."""
    server = forged(api())

    assert bind(server, dry=True)["allowed"]
    assert uids_elsewhere(server) == {"n1": ["uid-p"], "n2": ["uid-p"]}
    assert server.uids == []


def test_a_full_node_takes_nothing() -> None:
    """A pod that gets nothing there keeps what it has elsewhere."""
    server = forged(api())
    server.gpu_node = gpu_node(nodes_of(1), [entry("uid-x", soft_grant(40_000, gpu="GPU-n0-0"))])

    assert not bind(server)["allowed"]
    assert uids_elsewhere(server) == {"n1": ["uid-p"], "n2": ["uid-p"]}


def test_containers_that_may_run_keep_their_entry() -> None:
    """What an agent holds is in use, whatever the pod looks like."""
    server = forged(api())
    server.others["n1"]["status"]["held"] = ["uid-p"]

    found = bind(server)

    assert (found["allowed"], found["status"]["code"]) == (False, 409)
    assert 'an earlier binding of the pod to "n1"' in found["status"]["message"]
    assert uids_elsewhere(server) == {"n1": ["uid-p"], "n2": ["uid-p"]}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param({"node": "n1"}, 'is already bound to "n1"', id="bound-meanwhile"),
        pytest.param({"uid": "uid-q"}, "was deleted meanwhile", id="made-anew"),
        pytest.param({}, "was deleted meanwhile", id="gone"),
    ],
)
def test_the_pod_is_read_after_the_ledgers(change: dict[str, str], told: str) -> None:
    """One of the earlier Bindings may have landed, and its entry is in use then."""

    class Landing(LedgerServer):
        async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
            found = await LedgerServer.get(self, path)
            if path.endswith(("/n1", "/n2")):
                self.pods.pop("p", None)
                if change:
                    anew = stored(ASKING, name="p", uid=change.get("uid", "uid-p"))
                    anew["spec"] |= {"nodeName": change.get("node", "")}
                    self.pods["p"] = anew
            return found

    server = forged(Landing(pods=api().pods))

    found = bind(server)

    assert (found["allowed"], found["status"]["code"]) == (False, 409)
    assert told in found["status"]["message"]
    assert uids_elsewhere(server) == {"n1": ["uid-p"], "n2": ["uid-p"]}


def test_all_is_read_again_where_a_ledger_changed() -> None:
    """What was read before may not be so any more: here the pod has one entry less by then."""

    class Moving(LedgerServer):
        async def json_patch(
            self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
        ) -> bytes:
            if path.endswith("/n1") and self.others["n2"]["spec"]["entries"]:
                self.others["n2"] = gpu_node(nodes_of(1, name="n2"))
                raise ConflictError(409, "Conflict", path)
            return await LedgerServer.json_patch(self, path, ops)

    server = forged(Moving(pods=api().pods))

    assert bind(server)["allowed"]
    assert uids_elsewhere(server) == {"n1": ["uid-p"], "n2": []}


def test_a_ledger_that_always_changes_is_left_alone() -> None:
    """The API server asks again, as of any bind that comes to no end."""

    class Restless(LedgerServer):
        async def json_patch(
            self, path: str, _ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
        ) -> bytes:
            raise ConflictError(409, "Conflict", path)

    server = forged(Restless(pods=api().pods))

    with pytest.raises(LateError, match="no commit within"):
        bind(server, patience=0.2)
    assert uids_elsewhere(server) == {"n1": ["uid-p"], "n2": ["uid-p"]}


def test_a_ledger_that_changes_under_the_removal_is_read_again() -> None:
    """No entry is thought to be gone that is still there."""

    class Moving(LedgerServer):
        async def json_patch(
            self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
        ) -> bytes:
            if path.endswith("/n1") and not self.trouble:
                self.trouble = [ConflictError(409, "Conflict", "it moved")]
                raise self.trouble[0]
            if path.endswith("/n0"):
                self.trouble = []
            return await LedgerServer.json_patch(self, path, ops)

    server = forged(Moving(pods=api().pods))

    assert bind(server)["allowed"]
    assert uids_elsewhere(server) == {"n1": [], "n2": ["uid-p"]}


def test_a_removal_is_logged() -> None:
    """With the node and the pod whose entry it was."""
    with capture_logs() as logs:
        bind(forged(api()))

    [line] = [line for line in logs if line["event"].startswith("oldest entry")]
    assert (line["node"], line["uid"]) == ("n1", "uid-p")
