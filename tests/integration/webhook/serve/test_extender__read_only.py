"""Defects of peers whose filters reserve what they are asked about: H1 and D1 must not be ours."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from allocator.cluster.assumed_pods import EXPECTED_FOR, AssumedPods
from allocator.cluster.inventory import GPU_NODES, NODES, Inventory
from kube.client import Client
from kube.config import Access
from kube.events import Recorder
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import T4, nodes_of, soft_grant
from tests.builders.pods import MEMORY, NUMBER, container, pod, received
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.fakes.kube_clock import FakeClock
from tests.integration.waiting import until
from webhook.serve.extender import ExtenderService
from webhook.serve.extender_verbs import Extender
from webhook.serve.view import view_of

NODE: Final = "n0"  # fuller than n1, so that it scores best
HELD: Final = entry("o", soft_grant(2000, gpu="GPU-n0-0"))
HALF: Final = 9000  # MiB of a T4: one fits, two do not
Scene = Callable[[Extender, FakeClock], Awaitable[None]]


def play(scene: Scene) -> list[str]:
    """Run *scene* with the product's extender over two T4s; return what was written meanwhile."""

    async def run() -> list[str]:
        clock = FakeClock()
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            for name, held in {NODE: (HELD,), "n1": ()}.items():
                server.objects.create(parsed(GPU_NODES), gpu_node(nodes_of(1, T4, name=name), held))
                server.objects.create(parsed(NODES), {"metadata": {"name": name}})
            inventory = Inventory(client, namespace="system", prepare_scores=True)
            steering = ExtenderService(
                client=client,
                inventory=inventory,
                context_of=lambda name: view_of(inventory, name).context,
                events=Recorder(client, controller="c", instance="i"),
                assumed_pods=AssumedPods(clock.clock()),
            )
            following = asyncio.create_task(inventory.run())
            try:
                await until(lambda: inventory.synced)
                attendant = steering._unschedulable_controller()  # noqa: SLF001 -- the composition is under test
                await scene(steering._extender(attendant), clock)  # noqa: SLF001 -- the same
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            return [request.method for request in server.requests if request.method != "GET"]

    return asyncio.run(run())


def question(uid: str) -> bytes:
    found = copy.deepcopy(received(pod(container(limits={NUMBER: 1, MEMORY: HALF}))))
    found["metadata"] |= {"name": uid, "uid": uid}
    return orjson.dumps({"Pod": found, "Nodes": None, "NodeNames": [NODE, "n1"]})


def fits(extender: Extender, uid: str) -> bool:
    found: Any = orjson.loads(extender.filter(question(uid)))
    return NODE in found["NodeNames"]


def test_h1_a_filter_reserves_nothing() -> None:
    """However often it is asked, and for whom: the next pod finds what the first one found."""

    async def scene(extender: Extender, _: FakeClock) -> None:
        assert all(fits(extender, uid) for uid in ("a", "b", "a", "c"))

    assert play(scene) == []


def test_d1_a_pod_that_is_never_bound_keeps_nobody_away_for_long() -> None:
    """It is expected where it scored best for three seconds, and takes nothing from then on."""

    async def scene(extender: Extender, clock: FakeClock) -> None:
        assert fits(extender, "a")
        extender.prioritize(question("a"))

        assert (fits(extender, "a"), fits(extender, "b")) == (True, False)
        clock.now += EXPECTED_FOR - 0.1
        assert not fits(extender, "b")
        clock.now += 0.1
        assert fits(extender, "b")

    assert play(scene) == []
    assert EXPECTED_FOR <= 3


def test_d1_who_is_asked_about_again_is_no_longer_in_the_way_than_the_last_time() -> None:
    """A pod that is asked about again and again is expected at one node, not at more and more."""

    async def scene(extender: Extender, clock: FakeClock) -> None:
        for _ in range(5):
            extender.prioritize(question("a"))
            clock.now += EXPECTED_FOR / 2
        assert not fits(extender, "b")

        clock.now += EXPECTED_FOR / 2

        assert fits(extender, "b")

    assert play(scene) == []
