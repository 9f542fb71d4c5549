"""Late commits of pods that are not as the caches show them, that fail, or that need nothing."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Unpack

import orjson
import pytest

from allocator.config.settings import NodeAgent
from allocator.request.pod_summary import PodSummary, pod_summary
from kube.client import CallOptions
from kube.errors import NotFoundError, UnreachableError
from tests.builders.gpunodes import Json, gpu_node
from tests.builders.pods import MEMORY, NUMBER, container
from tests.fakes.ledger_server import LedgerServer
from tests.harness.late_commits import ASSIGNMENT, NODE, SIX, USED, as_told, bound
from tests.unit.webhook.binding.test_late_commit_controller__malformed_pods import Site, named
from webhook.binding.late_commit_controller import AFTER


@dataclass(slots=True)
class Watched(LedgerServer):
    """Counts what is read, and raises ``fault`` instead of an answer."""

    fault: Exception | None = None
    reads: list[str] = field(default_factory=list)

    async def get(self, path: str, **options: Unpack[CallOptions]) -> bytes:
        self.reads.append(path)
        if self.fault is not None:
            raise self.fault
        return await LedgerServer.get(self, path, **options)


def summary(found: Json) -> PodSummary:
    return pod_summary(orjson.dumps(found))


def changed(found: Json, **parts: Json) -> Json:
    return found | {part: found.get(part, {}) | fields for part, fields in parts.items()}


def limited(limits: Json) -> Json:
    return bound({}) | {"spec": {"nodeName": "n0", "containers": [container(limits=limits)]}}


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(None, id="gone"),
        pytest.param(changed(bound({}), metadata={"uid": "uid-q"}), id="another-of-its-name"),
        pytest.param(changed(bound({}), spec={"nodeName": "n7"}), id="on-another-node"),
        pytest.param(changed(bound({}), metadata={"deletionTimestamp": "now"}), id="deleting"),
        pytest.param(changed(bound({}), status={"phase": "Failed"}), id="over"),
    ],
)
def test_a_pod_that_is_not_what_it_was_is_left_alone(now: Json | None) -> None:
    """The caches may lag; an entry would be for nobody, or for somebody else."""
    site = Site(Watched(gpu_node=gpu_node(NODE), pods={"p": now} if now else {}))

    assert asyncio.run(site.late.commit(summary(bound({}))))
    assert (site.server.writes, site.events) == (0, [])


def test_a_pod_whose_gpunode_is_gone_is_left_alone() -> None:
    """It went with its Node, and so will the pod."""
    moved = changed(bound({}), spec={"nodeName": "n7"})
    site = Site(Watched(pods={"p": moved}))

    assert asyncio.run(site.late.commit(summary(moved)))
    assert (site.server.writes, site.events) == (0, [])


def test_a_gpunode_that_goes_meanwhile_is_no_trouble() -> None:
    """Another plugin may serve its node, and nobody is told that it does not."""

    @dataclass(slots=True)
    class Leaving(Watched):
        async def get(self, path: str, **options: Unpack[CallOptions]) -> bytes:
            if sum("/gpunodes/" in one for one in self.reads):
                raise NotFoundError(404, "NotFound", path)
            return await Watched.get(self, path, **options)

    upstream = NodeAgent.UPSTREAM
    found = bound(SIX, upstream)
    server = Leaving(gpu_node=gpu_node(NODE), pods={"p": found})
    site = Site(server, agent=upstream)

    assert asyncio.run(site.late.commit(summary(found)))
    assert (server.writes, site.events) == (0, [])


@pytest.mark.parametrize(
    ("told", "writes"),
    [pytest.param({}, 1, id="commits"), pytest.param({ASSIGNMENT: as_told(USED)}, 0, id="settled")],
)
def test_nothing_is_left_to_do_for_a_pod_that_has_what_is_its(
    told: dict[str, str], writes: int
) -> None:
    """It is written once, and not again while the caches have yet to show it."""
    found = bound(told)
    stands = (USED,) if told else ()
    site = Site(Watched(gpu_node=gpu_node(NODE, stands), pods={"p": found}))

    assert asyncio.run(site.late.commit(summary(found)))
    assert asyncio.run(site.late.commit(summary(found)))
    assert site.server.writes == writes


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(bound({ASSIGNMENT: as_told(USED)}), id="settled"),
        pytest.param(limited({"example.com/other": "1"}), id="asks-others"),
        pytest.param(limited({NUMBER: "0"}), id="asks-for-no-gpu"),
        pytest.param(changed(bound({}), spec={"nodeName": ""}), id="unbound"),
    ],
)
def test_what_needs_nothing_is_not_read(found: Json) -> None:
    """A sweep is every second, and a cluster may have a hundred thousand such pods."""
    server = Watched(gpu_node=gpu_node(NODE, (USED,)), pods={"p": found})

    site = Site(server).sweep(5)

    assert (server.reads, site.events) == ([], [])


@pytest.mark.parametrize(
    "fault",
    [UnreachableError("no answer", sent=True), RuntimeError("nobody foresaw this")],
    ids=["foreseen", "unforeseen"],
)
def test_what_fails_is_tried_again_later(fault: Exception) -> None:
    """Not in every sweep: the API server may be the one that cannot keep up."""
    server = Watched(gpu_node=gpu_node(NODE), pods={"p": bound({})}, fault=fault)
    site = Site(server)

    site.sweep(6)
    first = len(server.reads)
    server.fault, site.now = None, 100.0
    site.sweep(1)

    assert (first, server.uids) == (1, ["uid-p"])


def test_a_pod_that_nothing_can_be_made_of_hears_why() -> None:
    """Once a pause, as it is when it is bound through the hook."""
    found = limited({NUMBER: "0", MEMORY: "1000"})
    site = Site(LedgerServer(gpu_node=gpu_node(NODE), pods={"p": found}))

    site.sweep(6)

    assert len(site.notes) == 1
    assert "vgpu-number 0 asks for no GPU, but vgpu-memory 1000 for one" in site.notes[0]
    assert not asyncio.run(site.late.commit(summary(found)))


def test_nothing_is_done_before_the_caches_know_everything() -> None:
    """A pod whose entry has yet to be read would get another one."""
    site = Site(LedgerServer(gpu_node=gpu_node(NODE), pods={"p": bound({})}))
    asyncio.run(site.late.sweep())  # no list of pods yet
    caches = site.late.caches
    site.late.caches = replace(caches, ledgers=lambda: None)
    site.sweep(3)
    assert (site.server.writes, site.events) == (0, [])
    site.late.caches = caches

    site.sweep()

    assert site.server.uids == ["uid-p"]


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(changed(bound({}), spec={"nodeName": ""}), id="unbound"),
        pytest.param(changed(bound({}), metadata={"deletionTimestamp": "now"}), id="deleting"),
        pytest.param(changed(bound({}), status={"phase": "Succeeded"}), id="over"),
        pytest.param(limited({NUMBER: "0"}), id="asks-for-no-gpu"),
    ],
)
def test_who_needs_nothing_of_a_node_without_gpus_hears_nothing(found: Json) -> None:
    """However long it is there; one beside it that does hears of it."""
    pods = {"p": found, "q": named("q", bound({}))}
    site = Site(LedgerServer(gpu_node=gpu_node(NODE), pods=pods), known=False)

    site.sweep(5, apart=AFTER)

    assert [event.regarding.name for event in site.events] == ["q"]
