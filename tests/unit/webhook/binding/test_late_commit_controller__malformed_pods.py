"""Late commits past odd pods, slow ones, and nodes that can promise nothing."""

import asyncio
import copy
from dataclasses import dataclass
from typing import Unpack

import orjson
import pytest

from allocator.cluster.pods import Pods
from allocator.config.settings import NodeAgent, Settings
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.request.pod_summary import PodSummary, pod_summary
from kube.client import CallOptions
from kube.clock import Clock
from kube.events import Event
from kube.workqueue import Workqueue
from tests.builders.bindings import answered, binding, review
from tests.builders.gpunodes import NOON, Json, gpu_node
from tests.builders.model import snapshot
from tests.builders.pods import container
from tests.builders.summaries import replace_pods
from tests.fakes.ledger_server import LedgerServer
from tests.harness.late_commits import ASSIGNMENT, NODE, USED, as_told, bound
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.late_commit_controller import AFTER, Caches, LateCommitController

UNREAD = (
    'bound without vgpu-admission, so it does not start: pod "team-a/odd" cannot be read: '
    "Expected `array` of length <= 4096 - at `$.spec.containers[0].env` [UnreadablePod]"
)
MANY = [{"name": f"E{i}", "value": "x"} for i in range(5000)]


def named(name: str, found: Json) -> Json:
    made = copy.deepcopy(found)
    made["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    return made


def crowded(found: Json) -> Json:
    """Write a pod of more variables than are read."""
    made = copy.deepcopy(found)
    made["spec"]["containers"][0].setdefault("env", []).extend(MANY)
    return made


@dataclass(slots=True)
class Slow(LedgerServer):
    """An API server that never answers for one pod."""

    silent: str = ""

    async def get(self, path: str, **options: Unpack[CallOptions]) -> bytes:
        if self.silent and path.endswith(f"/{self.silent}"):
            await asyncio.Event().wait()
        return await LedgerServer.get(self, path, **options)


class Site:
    """One replica that leads, whose caches show what there is, and what it said."""

    def __init__(
        self,
        server: LedgerServer,
        *,
        agent: NodeAgent = NodeAgent.OURS,
        known: bool = True,
        patience: float = 1.0,
    ) -> None:
        self.server, self.events, self.now = server, list[Event](), 0.0
        around = AdmissionContext(settings=Settings(node_agent=agent), snapshot=snapshot(NODE))
        clock = Clock(monotonic=lambda: self.now, wall=lambda: NOON, random=lambda: 0)
        self.binder = BindingHandler(
            calls=server,
            context_of=lambda _: around,
            nodes_with_entry=lambda _: frozenset(),
            clock=clock,
        )
        self.pods = Pods()
        self.late = LateCommitController(
            calls=server,
            binder=self.binder,
            caches=Caches(
                pods=self.pods,
                ledgers=lambda: self.ledgers() if known else {},
                context_of=lambda _: around,
            ),
            record_event=self.events.append,
            clock=clock,
            _queue=Workqueue(wait_seconds=patience),
        )

    def ledgers(self) -> dict[str, Ledger]:
        return {"n0": parse_ledger(self.server.gpu_node)}

    def sweep(self, times: int = 2, *, apart: float = 0.0) -> "Site":
        facts: list[PodSummary] = [
            pod_summary(orjson.dumps(one)) for one in self.server.pods.values()
        ]
        replace_pods(self.pods, {one.uid: one for one in facts})

        async def sweeps() -> None:
            for _ in range(times):
                await self.late.sweep()
                self.now += apart

        asyncio.run(sweeps())
        return self

    @property
    def notes(self) -> list[str]:
        return [event.note for event in self.events if event.reason == "VgpuUnpromised"]


def both(odd: Json) -> dict[str, Json]:
    return {"odd": named("odd", odd), "p": named("p", bound({}))}


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_a_pod_that_cannot_be_read_hears_why_and_stops_no_other(last: bool) -> None:
    """Nobody can tell what it asks for; the others get their promises."""
    pods = both(crowded(bound({})))
    site = Site(LedgerServer(gpu_node=gpu_node(NODE), pods=pods))
    if last:
        site.server.pods = dict(reversed(pods.items()))

    site.sweep(4)

    assert site.server.uids == ["uid-p"]
    assert {event.regarding.name for event in site.events} == {"odd", "p"}
    assert set(site.notes) == {UNREAD}


def test_a_pod_that_cannot_be_read_is_refused_when_it_is_bound() -> None:
    """In the form of the protocol, with the place and what would be accepted."""
    found = crowded(bound({}))
    found["spec"]["nodeName"] = ""
    site = Site(LedgerServer(gpu_node=gpu_node(NODE), pods={"p": found}))

    answer = answered(asyncio.run(site.binder.bind(review(binding()))))

    assert (answer["allowed"], answer["status"]["code"]) == (False, 422)
    assert "length <= 4096 - at `$.spec.containers[0].env`" in answer["status"]["message"]


def test_a_pod_that_nobody_foresaw_stops_no_other() -> None:
    """Whatever is raised about it, it is put off, and the others get their promises."""
    site = Site(LedgerServer(gpu_node=gpu_node(NODE), pods=both(bound({}))))
    site.late.remember = _odd

    site.sweep(4)

    assert sorted(site.server.uids) == ["uid-odd", "uid-p"]


def _odd(_: object) -> None:
    raise RuntimeError("nobody foresaw this")


def test_a_call_that_hangs_delays_its_own_pod_alone() -> None:
    """The next sweeps go on beside it, and do not ask a second time."""
    pods = both(bound({}))
    site = Site(Slow(gpu_node=gpu_node(NODE), pods=pods, silent="odd"), patience=0.05)

    site.sweep(4)

    assert site.server.uids == ["uid-p"]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param("[" * 2000, id="never-ends"),
        pytest.param("[" * 900 + "]" * 900, id="deep"),
        pytest.param('[{"devices":' * 300 + "[]" + "}]" * 300, id="deep-devices"),
        pytest.param("1" * 5000, id="a-long-number"),
        pytest.param('"\\ud800"', id="half-a-character"),
        pytest.param("\x00", id="no-text"),
    ],
)
@pytest.mark.parametrize("agent", NodeAgent)
def test_an_annotation_written_to_harm_stops_no_other(told: str, agent: NodeAgent) -> None:
    """The pod has it from nobody of ours, and is treated as one that was told nothing."""
    pods = both(bound({ASSIGNMENT: told}, agent))
    site = Site(LedgerServer(gpu_node=gpu_node(NODE), pods=pods), agent=agent)

    site.sweep(4)

    assert "uid-p" in site.server.uids


@pytest.mark.parametrize(
    ("known", "agent", "said"),
    [
        pytest.param(False, NodeAgent.OURS, ["no GPUs known to vgpu-admission"], id="unknown"),
        pytest.param(True, NodeAgent.OURS, ["starting, stopping or being replaced"], id="closed"),
        pytest.param(
            True, NodeAgent.UPSTREAM, ["starting, stopping or being replaced"], id="upstream"
        ),
        pytest.param(False, NodeAgent.UPSTREAM, [], id="another-plugins"),
    ],
)
def test_a_pod_on_a_node_that_promises_nothing_hears_of_it_once(
    known: bool, agent: NodeAgent, said: list[str]
) -> None:
    """After a minute, in which its agent may have come; not in every sweep."""
    server = LedgerServer(gpu_node=gpu_node(NODE, inventory=""), pods={"p": bound({})})
    site = Site(server, known=known, agent=agent)

    site.sweep(7, apart=AFTER / 6 - 0.1)
    early = len(site.events)
    site.sweep(20, apart=AFTER / 6)

    assert (early, len(site.notes)) == (0, len(said))
    assert all(part in note for part, note in zip(said, site.notes, strict=True))
    assert server.writes == 0


def test_a_pod_that_is_over_in_a_minute_hears_nothing() -> None:
    """Nor does one that asks for nothing of ours, or that is promised something already."""
    resources = {"limits": {"example.com/other": "1"}}
    nothing = named("q", bound({}))
    nothing["spec"]["containers"] = [container(resources=resources)]
    over = named("r", bound({})) | {"status": {"phase": "Failed"}}
    promised = named("p", bound({ASSIGNMENT: as_told(USED)}))
    node = gpu_node(NODE, (USED,), inventory="")
    site = Site(LedgerServer(gpu_node=node, pods={"p": promised, "q": nothing, "r": over}))

    site.sweep(20, apart=AFTER / 6)

    assert site.events == []
