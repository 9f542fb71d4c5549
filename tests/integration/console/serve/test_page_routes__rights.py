"""Pages show nobody more than their rights: by every page, every format, every role."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import ClientError

from allocator.audit.record import parse_record
from allocator.cli.http_server import ConnectionLimits
from console.cluster.pod import PodView, pod_of
from console.cluster.snapshot import ClusterView, cluster_view
from console.records.rows import StoredRecord
from console.store.opening import open_store
from console.store.store import RecordStore
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import T4, gpu, node, soft_grant
from tests.builders.sent_records import admission, health, started
from tests.integration.console.ports import (
    Site,
    answer,
    asked,
    bearer,
    client_tls,
    pages_port,
    play,
)

TLS = client_tls()
LINES = (
    admission(namespace="a", pod="pod-of-a", digest="digest-a", user="amy", reason="GpuCount"),
    admission(
        namespace="b",
        pod="pod-of-b",
        digest="digest-b",
        user="bob",
        findings=[{"reason": "GpuMemoryShort", "text": "words-of-b"}],
    ),
    started("node-1", namespace="b", pod="held-by-b", pod_uid="uid-held-by-b"),
    health("node-1", text="words-of-node"),
)
SECRETS = {
    "a": ("pod-of-a", "digest-a", "held-by-a", "asks-of-a"),
    "b": ("pod-of-b", "digest-b", "held-by-b", "asks-of-b", "words-of-b"),
    # Where a pod runs, its own reader may know; what else there is on that node, not.
    "cluster": ("GPU-node-1", "words-of-node"),
    "people": ("amy", "bob"),
}
ROLES: dict[str, tuple[list[tuple[str, str, str]], set[str]]] = {
    "of-a": ([("get", "pods", "a")], {"a"}),
    "of-b": ([("get", "pods", "b")], {"b"}),
    "of-all": ([("get", "pods", "*")], {"a", "b"}),
    "of-nodes": ([("get", "nodes", "*")], {"cluster"}),
    "of-a-and-nodes": ([("get", "pods", "a"), ("get", "nodes", "*")], {"a", "cluster"}),
    "of-nothing": ([], set()),
    "of-everything": (
        [("get", kind, "*") for kind in ("pods", "nodes", "events")],
        {"a", "b", "cluster", "people"},
    ),
}
PAGES = (
    "/",
    "/decisions",
    "/decisions?q=ns:b",
    "/decisions?q=by:bob",
    "/decisions/digest-a",
    "/decisions/digest-b",
    "/pods",
    "/pods?ns=b",
    "/nodes",
    "/nodes/node-1",
    "/nodes/node-2",
    "/fit?memory=3000",
    "/namespaces",
    "/waiting",
    "/health",
    "/settings",
    "/records",
    "/records?ns=b",
    "/reasons",
)
FORMATS = ("", "csv", "json")


def site() -> ClusterView:
    """Return a node of which pods of both namespaces hold a part."""
    machine = node("node-1", gpu(T4, index=0))
    uuid = machine.gpus[0].uuid
    entries = [
        replace(entry(f"held-by-{name}", soft_grant(3000, gpu=uuid)), namespace=name)
        for name in ("a", "b")
    ]
    nodes = [{"metadata": {"name": "node-1"}, "status": {"nodeInfo": {"bootID": "boot-1"}}}]
    return cluster_view([gpu_node(machine, entries)], nodes, now=datetime.now(UTC))


def pods() -> tuple[PodView, ...]:
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}
    return tuple(
        pod_of(
            {
                "metadata": {
                    "name": f"{stem}-{name}",
                    "namespace": name,
                    "uid": f"{stem}-{name}",
                    "creationTimestamp": "2026-11-21T09:00:00Z",
                },
                "spec": {
                    **({"nodeName": "node-1"} if stem == "held-by" else {}),
                    "containers": [{"name": "main", "resources": {"limits": limits}}],
                },
            }
        )
        for name in ("a", "b")
        for stem in ("held-by", "asks-of")
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordStore]:
    """Return a store that is only read."""
    folder: Path = tmp_path_factory.mktemp("store")
    with contextlib.closing(open_store(str(folder / "records.db"))) as opened:
        opened.append([StoredRecord(record=parse_record(json.dumps(line))) for line in LINES])
        yield opened


async def texts(where: Site, who: str) -> dict[str, str]:
    """Return all pages in all formats, by address."""
    found = {}
    for page in PAGES:
        for form in FORMATS:
            mark = "&" if "?" in page else "?"
            address = f"{page}{mark}format={form}" if form else page
            url = f"{where.url}{address}"
            async with asked(url, tls=TLS, headers=bearer(who)) as response:
                found[address] = await response.text()
                assert response.status in {200, 403, 404}, (address, response.status)
    return found


def typed(address: str) -> str:
    """Return what the viewer wrote into the address, which a page may repeat."""
    return address.partition("?")[2] + address.rpartition("/")[2]


@pytest.mark.parametrize("role", ROLES)
def test_no_page_shows_what_is_not_theirs(store: RecordStore, role: str) -> None:
    """Nor a file that it offers; what is theirs is shown somewhere."""
    grants, visible = ROLES[role]

    async def scenario() -> None:
        async with pages_port(store, cluster=site(), pods=pods()) as where:
            where.reviews.add_user("me", "me", *grants)
            found = await texts(where, "me")
            for what, secrets in SECRETS.items():
                seen = {
                    (address, secret)
                    for address, text in found.items()
                    for secret in secrets
                    if secret in text and secret not in typed(address)
                }
                assert what in visible or not seen, seen
                assert what not in visible or seen, f"{what} is nowhere to be seen"

    play(scenario)


def test_no_page_is_shown_to_strangers(store: RecordStore) -> None:
    """They are sent to the login, and learn no more than what they asked."""

    async def scenario() -> None:
        async with pages_port(store, cluster=site(), pods=pods()) as where:
            for page in PAGES:
                for headers in ({}, bearer("unknown")):
                    async with asked(f"{where.url}{page}", tls=TLS, headers=headers) as response:
                        assert response.status in {303, 429}, page
                        if response.status == 303:
                            assert await response.text() == ""
                            assert response.headers["location"].startswith("/login")

    play(scenario)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_no_page_changes_anything(store: RecordStore, method: str) -> None:
    """But for the form of Fit, which keeps nothing and wants its token."""

    async def scenario() -> None:
        async with pages_port(store, cluster=site(), pods=pods()) as where:
            where.reviews.add_user("me", "me", *ROLES["of-everything"][0])
            for page in PAGES:
                status, _ = await answer(
                    f"{where.url}{page}",
                    tls=TLS,
                    method=method,
                    headers={
                        **bearer("me"),
                        "Content-Type": "application/x-www-form-urlencoded",
                    },
                    data=b"manifest=&csrf=",
                )
                fit = page.startswith("/fit") and method == "POST"
                assert status == (403 if fit else 405), page

    play(scenario)


def test_a_large_form_is_not_read_to_its_end(store: RecordStore) -> None:
    """Whoever sends it."""

    async def scenario() -> None:
        async with pages_port(store, cluster=site(), pods=pods()) as where:
            where.reviews.add_user("me", "me", *ROLES["of-everything"][0])
            form = {**bearer("me"), "Content-Type": "application/x-www-form-urlencoded"}
            for path in ("/fit", "/login", "/logout"):
                with contextlib.suppress(OSError, ClientError):
                    status, _ = await answer(
                        f"{where.url}{path}",
                        tls=TLS,
                        method="POST",
                        headers=form,
                        data=b"manifest=" + b"a" * 8_000_000,
                    )
                    assert status in {303, 403, 413}
            assert (await answer(f"{where.url}/pods", tls=TLS, headers=bearer("me")))[0] == 200

    play(scenario)


def test_a_request_that_comes_too_slowly_ends(store: RecordStore) -> None:
    """Head or body; others are served meanwhile."""
    limits = ConnectionLimits(request_seconds=0.5, sweep_seconds=0.1)
    heads = (
        b"GET /pods HTTP/1.1\r\nhost: a\r\n",
        b"POST /login HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\ntoken=",
    )

    async def scenario() -> None:
        async with pages_port(store, limits=limits, cluster=site(), pods=pods()) as where:
            where.reviews.add_user("me", "me", *ROLES["of-everything"][0])
            slow = []
            for head in heads:
                pair = await asyncio.open_connection("127.0.0.1", where.port, ssl=TLS)
                pair[1].write(head)
                slow.append(pair)
            assert (await answer(f"{where.url}/pods", tls=TLS, headers=bearer("me")))[0] == 200
            for reader, writer in slow:
                async with asyncio.timeout(5):
                    with contextlib.suppress(OSError):
                        await reader.read()
                writer.close()

    play(scenario)
