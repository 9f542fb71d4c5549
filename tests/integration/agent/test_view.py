"""What the monitor is told of the node, and the evictions that it asks for."""

import asyncio
import json

import pytest

from agent.core.violation import Pod
from agent.shell.view import Evictor
from kube.client import Client
from kube.config import Access
from tests.fakes.api_server import ApiServer

POD = Pod(uid="uid-1", namespace="team-a", name="p")


def test_exactly_that_pod_is_evicted() -> None:
    """One of the same name made since is nobody's fault."""

    async def act() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            await Evictor(client).evict(POD, "why")

        (request,) = server.requests
        assert request.path == "/api/v1/namespaces/team-a/pods/p/eviction"
        body = json.loads(request.body)
        assert body["deleteOptions"] == {"preconditions": {"uid": "uid-1"}}

    asyncio.run(act())


@pytest.mark.parametrize("status", [403, 404, 409, 429, 500])
def test_an_eviction_that_is_refused_stops_nothing(status: int) -> None:
    """A disruption budget, a missing right, a pod that is gone: it is asked for again later."""

    async def act() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            server.answer_next(status, times=20)
            await Evictor(client).evict(POD, "why")

    asyncio.run(act())
