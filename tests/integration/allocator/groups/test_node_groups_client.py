"""The tree of supernodes, read from a real HTTP server that may do anything."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from allocator.groups.node_groups_client import NodeGroups
from allocator.groups.tree import LARGEST, NO_TREE
from tests.builders.supernodes import node_group

GOOD = json.dumps(node_group({"sb1": {"df1": ("n1", "n2")}}))
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def topo_master(answer: Answer) -> AsyncIterator[str]:
    """Serve *answer* on a port of its own; yields the URL."""
    app = web.Application()
    app.router.add_get("/node_group", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}/node_group"
    finally:
        await runner.cleanup()


async def good(_: web.Request) -> web.StreamResponse:
    return web.Response(text=GOOD, content_type="text/plain")


async def _missing(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text=GOOD)


async def _elsewhere(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/node_group?again")


async def _garbage(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b"\xff\xfe[]")


async def _page(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>\x1b[2J</html>")


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(LARGEST // 65536 + 2):
        await response.write(b" " * 65536)
    return response


async def _cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"[")
    return response


@pytest.mark.parametrize("bad", [_missing, _elsewhere, _garbage, _page, _endless, _cut])
def test_the_last_good_tree_stays_in_force(bad: Answer) -> None:
    """Whatever topo-master answers later, and the reason is told."""
    told: list[str] = []

    async def read() -> NodeGroups:
        answer: list[Answer] = [good]

        async def serve(request: web.Request) -> web.StreamResponse:
            return await answer[0](request)

        async with topo_master(serve) as url:
            groups = NodeGroups(lambda: url, report=told.append)
            assert groups.why_unknown == "it has not been read yet"
            await groups.read(url)
            assert told == []
            answer[0] = bad
            await groups.read(url)
            return groups

    groups = asyncio.run(read())
    assert [domain.name for domain in groups.tree.domains] == ["df1", "sb1"]
    assert groups.why_unknown == ""
    assert len(told) == 1
    assert told[0].isprintable()
    assert groups.health.failures == 1


def test_without_any_answer_the_reason_is_known() -> None:
    """Nobody listens there."""
    url = "http://127.0.0.1:9/node_group"
    groups = NodeGroups(lambda: url)
    asyncio.run(groups.read(url))
    assert groups.tree is NO_TREE
    assert groups.wanted
    assert groups.why_unknown


def test_another_url_makes_the_tree_unknown_again() -> None:
    """What another topo-master told says nothing of these nodes; no URL wants no tree."""
    urls: list[str] = []

    async def read() -> NodeGroups:
        async with topo_master(good) as url:
            urls.append(url)
            groups = NodeGroups(lambda: urls[0])
            await groups.read(url)
            return groups

    groups = asyncio.run(read())
    assert groups.tree.domains
    urls[0] = "http://elsewhere/node_group"
    assert groups.why_unknown
    assert groups.tree is NO_TREE
    urls[0] = ""
    assert not groups.wanted
    assert groups.why_unknown == ""


def test_it_is_read_as_soon_as_the_setting_names_it() -> None:
    """And nothing is asked before."""

    async def follow() -> int:
        url = ""
        async with topo_master(good) as served:
            groups = NodeGroups(lambda: url)
            task = asyncio.create_task(groups.run())
            await asyncio.sleep(0.05)
            assert groups.health.failures == 0
            url = served
            async with asyncio.timeout(10):
                while not groups.tree.domains:  # noqa: ASYNC110 -- it is polled by others, too
                    await asyncio.sleep(0.05)
            task.cancel()
            return len(groups.tree.domains)

    assert asyncio.run(follow()) == 2
