"""What the replica counts, learns, logs and records of each outcome of a bind."""

import asyncio
import copy
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from allocator.model.gpu import Node
from kube.clock import Clock
from kube.errors import UnreachableError
from tests.builders.bindings import answered, binding, review, stored
from tests.builders.gpunodes import Json, entry, gpu_node
from tests.builders.model import T4, gpu, node, nodes_of, soft_grant
from tests.builders.pods import MEMORY, NUMBER, admitted, container, pod, received
from tests.fakes.ledger_server import LedgerServer
from tests.harness.records import KeptRecords
from tests.unit.webhook.binding.test_binding_server import AROUND, api, named
from webhook.binding.binding_server import BindingHandler, LateError

PLAIN = received(pod(container()))


@dataclass(slots=True)
class Replica:
    """A handler, and what it was heard to say."""

    server: LedgerServer
    counted: list[tuple[str, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    learned: list[tuple[str, bool]] = field(default_factory=list)
    noted: list[tuple[str, str]] = field(default_factory=list)
    records: KeptRecords = field(default_factory=KeptRecords)
    now: float = 100.0

    def bind(self, body: bytes) -> Json:
        def monotonic() -> float:
            self.now += 0.25
            return self.now

        handler = BindingHandler(
            calls=self.server,
            context_of=lambda _: AROUND,
            nodes_with_entry=lambda _: frozenset(),
            remember=self.records.remember,
            count_decision=lambda *labels: self.counted.append(labels),
            observe_seconds=self.seconds.append,
            learn_arrival=lambda uid, _, failed: self.learned.append((uid, failed)),
            note_refusal=lambda uid, _, code: self.noted.append((uid, code)),
            clock=Clock(random=lambda: 0, monotonic=monotonic),
        )
        return answered(asyncio.run(handler.bind(body)))


def full(server: LedgerServer) -> LedgerServer:
    """Fill the eight GPUs of n0."""
    entries = [entry(f"u{n}", soft_grant(40_000, gpu=f"GPU-n0-{n}")) for n in range(8)]
    server.gpu_node = gpu_node(nodes_of(8), entries)
    return server


def test_each_outcome_is_counted_learned_and_noted_once() -> None:
    """A dry run changes nothing that anybody would see later."""
    promised, refused, gone = Replica(api()), Replica(full(api())), Replica(api())

    assert promised.bind(review(binding()))["allowed"]
    assert not refused.bind(review(binding()))["allowed"]
    assert not gone.bind(named("gone"))["allowed"]

    assert promised.counted == [("promised", "")]
    assert [decision for decision, _ in refused.counted] == ["refused"]
    assert gone.counted == [("refused", "NotFound")]
    assert (promised.learned, refused.learned) == ([("uid-p", False)], [("uid-p", True)])
    assert (promised.noted, gone.noted) == ([], [])
    assert refused.noted == [("uid-p", refused.counted[0][1])]
    for replica in (promised, refused, gone):
        assert [0 < seconds < 60 for seconds in replica.seconds] == [True]
        assert len(replica.records) == 1


@pytest.mark.parametrize("server", [api(), full(api())], ids=["fits", "full"])
def test_a_dry_run_teaches_nobody_anything(server: LedgerServer) -> None:
    """It is answered, and how long that took is all that is kept."""
    replica = Replica(server)
    replica.bind(review(binding(), dryRun=True))

    assert (replica.counted, replica.learned, replica.noted) == ([], [], [])
    assert len(replica.records) == 0
    assert len(replica.seconds) == 1


def test_a_pod_that_asks_for_nothing_passes() -> None:
    """Without an entry, a record or a count; but nobody writes our annotations for it."""
    server = LedgerServer(pods={"p": stored(PLAIN, name="p", uid="uid-p")})
    before = copy.deepcopy(server.gpu_node)
    forged = {"vgpu-admission.io/assignment": "[]", "example.com/kept": "x"}
    replica = Replica(server)

    found = replica.bind(review(binding(annotations=forged)))

    assert found["allowed"]
    assert [op["path"] for op in found["patch"]] == [
        "/metadata/annotations/vgpu-admission.io~1assignment"
    ]
    assert (replica.counted, replica.learned, replica.noted) == ([], [], [])
    assert len(replica.records) == 0
    assert server.gpu_node == before


def test_a_binding_that_cannot_be_read_is_refused_for_good() -> None:
    """With the status of an object that is invalid, which no scheduler repeats at once."""
    found = Replica(api()).bind(review({**binding(), "target": 7}))

    assert (found["allowed"], found["status"]["code"]) == (False, 422)


def test_a_bind_that_is_put_off_is_logged() -> None:
    """With its node, its pod and why."""
    server = api()
    server.trouble = [UnreachableError("refused", sent=False)]

    with capture_logs() as logs, pytest.raises(LateError):
        Replica(server).bind(review(binding()))

    [line] = [line for line in logs if line["event"] == "bind deferred"]
    assert (line["node"], line["pod"], line["log_level"]) == ("n0", "p", "warning")


@pytest.mark.parametrize(
    ("there", "code", "learned"),
    [
        pytest.param(node("n0", gpu(T4)), 403, [], id="never"),
        pytest.param(full(api()).gpu_node, 409, [("uid-p", True)], id="not-now"),
    ],
)
def test_only_a_node_that_could_serve_a_pod_later_counts_as_full(
    there: Node | Json, code: int, learned: list[tuple[str, bool]]
) -> None:
    """Whoever binds a pod to a node that never could says nothing of demand."""
    large = admitted(received(pod(container(limits={NUMBER: 1, MEMORY: 30_000}))), AROUND)
    server = LedgerServer(pods={"p": stored(large, name="p", uid="uid-p")})
    server.gpu_node = gpu_node(there) if isinstance(there, Node) else there
    replica = Replica(server)

    found = replica.bind(review(binding()))

    assert (found["allowed"], found["status"]["code"]) == (False, code)
    assert replica.learned == learned
    assert len(replica.noted) == 1


def test_a_queue_lives_as_long_as_somebody_is_in_it() -> None:
    """Nodes come and go; none of them is kept in memory for its last bind."""
    server = api(20)
    handler = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        clock=Clock(random=lambda: 0),
    )

    async def together() -> None:
        await asyncio.gather(*(handler.bind(named(name)) for name in server.pods))

    asyncio.run(together())
    assert len(server.uids) == 20
    assert handler._queues._queues == {}  # noqa: SLF001 -- nothing else shows it
