"""Binds that go by caches: cheaper while these are right, no other outcome where they are wrong."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

import orjson
import pytest

from allocator.config.settings import DEFAULTS
from allocator.extender.index import IndexBuilder
from allocator.ledger.ledger import Ledger, parse_ledger
from kube.client import CallOptions
from kube.clock import Clock
from tests.builders.bindings import answered, binding, review, stored
from tests.builders.gpunodes import Json, entry, gpu_node
from tests.builders.model import nodes_of, snapshot, soft_grant
from tests.builders.pods import MEMORY, NUMBER, admitted, container, pod, received
from tests.fakes.kube_clock import FakeClock
from tests.fakes.ledger_server import LedgerServer
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler, LateError
from webhook.binding.commit_client import LAST_TURN, PAUSE, TURNS
from webhook.review.binding_schema import LivePod, live_pod

NODE = nodes_of(1)
AROUND = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(NODE))
FULL = gpu_node(NODE, [entry("other", soft_grant(40000, gpu="GPU-n0-0"))])


def made(name: str = "p", *, memory: int = 3000, scheduler: str = "default-scheduler") -> Json:
    asking = pod(container(limits={NUMBER: 1, MEMORY: memory}), schedulerName=scheduler)
    return stored(admitted(received(asking), AROUND), name=name, uid=f"uid-{name}")


@dataclass(slots=True)
class Reads(LedgerServer):
    """An API server that counts what is read of it, and how many calls it had at a time."""

    reads: int = 0
    open: int = 0
    most: int = 0

    async def get(self, path: str, **options: Unpack[CallOptions]) -> bytes:
        self.reads += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            return await LedgerServer.get(self, path, **options)
        finally:
            self.open -= 1


def bind(
    server: LedgerServer,
    bodies: Sequence[bytes],
    *,
    pods: Callable[[str, str], LivePod | None] = lambda _namespace, _name: None,
    ledgers: Callable[[str], Ledger | None] = lambda _: None,
    clock: Clock | None = None,
) -> list[Json]:
    """Let one replica with these caches answer all reviews at once."""
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        cached_pod=pods,
        cached_ledger=ledgers,
        clock=clock or Clock(random=lambda: 0),
    )

    async def together() -> list[bytes]:
        return await asyncio.gather(*map(binder.bind, bodies))

    return list(map(answered, asyncio.run(together())))


def named(name: str, *, node: str = "n0") -> bytes:
    metadata = {"name": name, "uid": f"uid-{name}"}
    return review({**binding(node=node), "metadata": metadata}, name=name)


def known(found: Json) -> Callable[[str, str], LivePod]:
    return lambda _namespace, _name: live_pod(orjson.dumps(found))


def server(*pods: Json, node: Json | None = None) -> Reads:
    by_name = {one["metadata"]["name"]: one for one in pods}
    return Reads(gpu_node=copy.deepcopy(node or gpu_node(NODE)), pods=by_name)


def test_what_caches_know_is_not_read_again() -> None:
    """Such a bind costs one call: the write that tests what it was decided on."""
    api = server(made())

    (answer,) = bind(
        api,
        [review(binding(uid="uid-p"))],
        pods=known(made()),
        ledgers=lambda _: parse_ledger(gpu_node(NODE)),
    )

    assert answer["allowed"]
    assert (api.reads, api.writes, api.uids) == (0, 1, ["uid-p"])


def test_a_ledger_that_moved_is_read_and_decided_anew() -> None:
    """The cache has room, the node has not: the write fails, and the refusal is the node's own."""
    api = server(made(), node=FULL)
    api.gpu_node["metadata"]["generation"] += 1

    (answer,) = bind(
        api, [review(binding(uid="uid-p"))], ledgers=lambda _: parse_ledger(gpu_node(NODE))
    )

    assert not answer["allowed"]
    assert answer["status"]["message"].startswith('node "n0": container "main": ')
    assert api.uids == ["other"]


def test_a_cache_refuses_nobody() -> None:
    """What it remembers is full; the node is not any more."""
    api = server(made())

    (answer,) = bind(api, [review(binding(uid="uid-p"))], ledgers=lambda _: parse_ledger(FULL))

    assert answer["allowed"]
    assert api.uids == ["uid-p"]


def test_a_dry_run_goes_by_no_cache() -> None:
    """It says what would happen now."""
    api = server(made(), node=FULL)

    (answer,) = bind(
        api,
        [review(binding(uid="uid-p"), dryRun=True)],
        ledgers=lambda _: parse_ledger(gpu_node(NODE)),
    )

    assert not answer["allowed"]


@pytest.mark.parametrize(
    ("remembered", "claimed"),
    [
        pytest.param(made(), {}, id="a-binding-without-uid"),
        pytest.param({**made(), "spec": {**made()["spec"], "nodeName": "n7"}}, None, id="bound"),
        pytest.param(made("q"), None, id="another-pod-of-that-name"),
        pytest.param(made(scheduler="volcano"), None, id="a-scheduler-that-writes-on-it"),
    ],
)
def test_a_pod_in_doubt_is_read(remembered: Json, claimed: Json | None) -> None:
    """What a cache remembers decides only where the pod cannot have changed in what matters."""
    api = server(made())
    metadata = {"uid": "uid-p"} if claimed is None else claimed

    (answer,) = bind(
        api,
        [review(binding(**metadata))],
        pods=known(remembered),
        ledgers=lambda _: parse_ledger(gpu_node(NODE)),
    )

    assert answer["allowed"]
    assert (api.reads, api.uids) == (1, ["uid-p"])


def test_who_waits_goes_by_our_own_last_write() -> None:
    """The cache is older than it by then, and yet nobody has to read."""
    names = [f"p{i}" for i in range(6)]
    api = server(*map(made, names))
    bodies = [named(name) for name in names]
    old = parse_ledger(gpu_node(NODE))

    bind(
        api,
        bodies,
        pods=lambda _namespace, name: live_pod(orjson.dumps(made(name))),
        ledgers=lambda _: old,
    )

    assert sorted(api.uids) == [f"uid-{name}" for name in names]
    assert (api.reads, api.writes) == (0, 2)


def test_between_two_writes_of_a_ledger_others_may_come() -> None:
    """They share the second one; the first waits for nobody, nor does another node's."""
    api, clock = server(*(made(f"p{i}", memory=1) for i in range(6))), FakeClock()
    binder = BindingHandler(
        calls=api,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        clock=clock.clock(),
    )

    async def one_after_another() -> None:
        await binder.bind(named("p0"))
        assert (api.writes, clock.slept) == (1, [])
        clock.now += 0.03
        later = [asyncio.ensure_future(binder.bind(named(f"p{i}"))) for i in range(1, 5)]
        await asyncio.gather(*later)
        assert api.writes == 2
        assert clock.slept == pytest.approx([PAUSE - 0.03])
        clock.now += PAUSE
        await binder.bind(named("p5"))

    asyncio.run(one_after_another())

    assert api.writes == 3
    assert len(clock.slept) == 1
    assert api.uids == [f"uid-p{i}" for i in range(6)]


def test_of_a_storm_only_some_are_at_work() -> None:
    """The others wait in line, so that those who came first are answered first."""
    count = 3 * TURNS
    api = server(*(made(f"p{i}", memory=1) for i in range(count)))
    api.slow = 0.01
    bodies = [named(f"p{i}", node=f"n{i}") for i in range(count)]

    bind(api, bodies, pods=lambda _namespace, name: live_pod(orjson.dumps(made(name, memory=1))))

    assert api.most == TURNS


def test_whose_turn_comes_too_late_is_not_begun() -> None:
    """Its caller will have gone, so that nothing is committed for nobody."""
    api = server(made())
    times = iter([0.0, 0.0])
    clock = Clock(monotonic=lambda: next(times, LAST_TURN + 0.1), random=lambda: 0)

    with pytest.raises(LateError, match="turn"):
        bind(api, [review(binding(uid="uid-p"))], clock=clock)

    assert api.writes == 0


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(gpu_node(NODE), {"n0": ["uid-p"]}, id="promised"),
        pytest.param(FULL, {}, id="denied"),
    ],
)
def test_who_was_just_bound_is_known_before_watches_tell(
    node: Json, expected: dict[str, list[str]]
) -> None:
    """A scheduler that asks right behind is told of it; of a bind that came to nothing, not."""
    api = server(made(), node=node)
    binder = BindingHandler(
        calls=api, context_of=lambda _: AROUND, nodes_with_entry=lambda _: frozenset()
    )
    index = IndexBuilder().index(version="1", complete=True)

    asyncio.run(binder.bind(named("p")))

    found = binder.assumed_pods.with_assumed(index).nominations
    assert {name: [one.uid for one in pods] for name, pods in found.items()} == expected


@pytest.mark.parametrize("cached", [True, False])
def test_a_node_of_another_boot_takes_no_commit(cached: bool) -> None:
    """Its agent has not said yet which slots are in use since the Node came back."""
    api = server(made())
    ledger = parse_ledger(api.gpu_node)
    handler = BindingHandler(
        calls=api,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        cached_pod=known(made()),
        cached_ledger=lambda _: ledger if cached else None,
        is_current=lambda _: False,
        clock=Clock(random=lambda: 0),
    )

    answer = answered(asyncio.run(handler.bind(review(binding(uid="uid-p")))))

    assert not answer["allowed"]
    assert "takes no new pods" in answer["status"]["message"]
    assert api.gpu_node["spec"].get("entries", []) == []
