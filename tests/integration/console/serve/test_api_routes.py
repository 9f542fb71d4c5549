"""The data behind the pages: who sees what of it, by every route."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError

from allocator.audit.record import parse_record
from console.records.rows import StoredRecord
from console.store.opening import open_store
from console.store.store import RecordStore
from console.use.prometheus_client import PrometheusError
from kube.errors import UnreachableError
from tests.builders.sent_records import Line, admission, health
from tests.integration.console.ports import (
    CLUSTER,
    OURS,
    PROXIES,
    Site,
    answer,
    asked,
    bearer,
    client_tls,
    pages_port,
    play,
)

ANYBODY = client_tls()
LINES = [
    admission(namespace="a", pod="pod-of-a", digest="digest-a", user="amy", reason="ReasonA"),
    admission(
        namespace="b",
        pod="pod-of-b",
        digest="digest-b",
        user="bob",
        reason="ReasonB",
        findings=[{"reason": "ReasonB", "text": "text of b"}],
    ),
    admission(namespace="b", pod="other-of-b", digest="other-b", user="bob", outcome="rewritten"),
    health("node-1", text="text of node-1"),
]
# What must not be seen by whoever may not see it: names, texts, and who asked.
SECRETS = {
    "a": ("pod-of-a", "digest-a", "ReasonA"),
    "b": ("pod-of-b", "digest-b", "ReasonB", "other-of-b", "text of b", '"b"'),
    "cluster": ("node-1", "GPU-1"),
    "people": ("amy", "bob"),
}
ROLES: dict[str, tuple[list[tuple[str, str, str]], set[str]]] = {
    "of-a": ([("get", "pods", "a")], {"a"}),
    "of-b": ([("get", "pods", "b")], {"b"}),
    "of-a-with-people": ([("get", "pods", "a"), ("get", "events", "a")], {"a", "people"}),
    "of-all": ([("get", "pods", "*")], {"a", "b"}),
    "of-nodes": ([("get", "nodes", "*")], {"cluster"}),
    "of-everything": (
        [("get", kind, "*") for kind in ("pods", "nodes", "events")],
        {"a", "b", "cluster", "people"},
    ),
    "of-nothing": ([], set()),
}
ROUTES = [
    "/api/v1/decisions",
    "/api/v1/decisions?limit=1",
    "/api/v1/decisions?namespace=b",
    "/api/v1/decisions?reason=ReasonB",
    "/api/v1/decisions?requester=bob",
    "/api/v1/decisions?pod=pod-of-b",
    "/api/v1/decisions?verdict=refused",
    "/api/v1/decisions/digest-a",
    "/api/v1/decisions/digest-b",
    "/api/v1/decisions/other-b",
    "/api/v1/records",
    "/api/v1/records?namespace=b",
    "/api/v1/records?digest=digest-b",
    "/api/v1/records?node=node-1",
    "/api/v1/records?kinds=health,admission",
    "/api/v1/usage",
    "/api/v1/usage?since=2026-01-01T00:00:00Z",
    "/api/v1/overview",
    "/api/v1/overview?since=2026-01-01T00:00:00Z",
    "/api/v1/use",
    "/api/v1/use?namespace=b",
]


def sample(value: int, **labels: str) -> dict[str, object]:
    return {"metric": labels, "value": [1, str(value)]}


async def figures(_question: str) -> object:
    """Answer as a Prometheus that has heard no question: with everything."""
    held = "vgpu_container_memory_limit_bytes"
    return {
        "result": [
            sample(7 << 30, __name__=held, namespace="a", pod="pod-of-a", container="main"),
            sample(7 << 30, __name__=held, namespace="b", pod="pod-of-b", container="main"),
            sample(8 << 30, __name__="vgpu_device_memory_bytes", node="node-1", device="0"),
        ]
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordStore]:
    """Return a store that is only read."""
    folder: Path = tmp_path_factory.mktemp("store")
    with contextlib.closing(open_store(str(folder / "records.db"))) as opened:
        opened.append(
            [StoredRecord(record=parse_record(json.dumps(line)), sender="x") for line in LINES]
        )
        yield opened


async def ask(site: Site, path: str, who: str = "") -> tuple[int, Any]:
    headers = bearer(who) if who else {}
    return await answer(f"{site.url}{path}", tls=ANYBODY, headers=headers)


def numbers(value: object) -> list[float]:
    """Return all numbers in an answer."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, (int, float)):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    assert not isinstance(parts, (int, float))
    return [number for part in parts for number in numbers(part)]  # type: ignore[attr-defined]  # of JSON


@pytest.mark.parametrize("role", ROLES)
def test_nobody_sees_beyond_their_rights(store: RecordStore, role: str) -> None:
    """By no route: neither a name nor a text, and for who sees nothing not even a count."""
    grants, visible = ROLES[role]

    async def scenario() -> None:
        async with pages_port(store, query=figures) as site:
            site.reviews.add_user("me", "me", *grants)
            for path in ROUTES:
                status, told = await ask(site, path, "me")
                assert status in {200, 404}, (path, told)
                text = json.dumps(told)
                for what, secrets in SECRETS.items():
                    seen = [secret for secret in secrets if secret in text]
                    assert what in visible or not seen, (path, seen)
                if not visible:
                    assert not any(numbers(told)), (path, told)

    play(scenario)


@pytest.mark.parametrize("role", ["of-a", "of-b", "of-all", "of-everything"])
def test_everybody_sees_what_is_theirs(store: RecordStore, role: str) -> None:
    """Otherwise the test above would say nothing."""
    grants, visible = ROLES[role]

    async def scenario() -> None:
        async with pages_port(store, query=figures) as site:
            site.reviews.add_user("me", "me", *grants)
            texts = [json.dumps((await ask(site, path, "me"))[1]) for path in ROUTES]
            for what in visible:
                assert any(SECRETS[what][0] in text for text in texts), what

    play(scenario)


def test_counts_are_of_what_is_seen(store: RecordStore) -> None:
    """A viewer of a learns not even how many others there are."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            site.reviews.add_user("me", "me", ("get", "pods", "a"))
            _, overview = await ask(site, "/api/v1/overview", "me")
            assert overview["verdicts"] == {"refused": 1}
            assert overview["refusals"] == {"ReasonA": 1}
            _, page = await ask(site, "/api/v1/decisions?limit=1", "me")
            assert (len(page["rows"]), page["after"]) == (1, "")

    play(scenario)


@pytest.mark.parametrize("path", [*ROUTES, "/api/v1/decisions?colour=red"])
def test_without_an_identity_nothing_is_answered(store: RecordStore, path: str) -> None:
    """Not even whether the question was a good one."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            refused = (401, {"error": "show a bearer token or a certificate"})
            assert await ask(site, path) == refused
            assert await ask(site, path, "unknown") == refused

    play(scenario)


HOSTILE: list[dict[str, str] | list[tuple[str, str]]] = [
    {"X-Forwarded-User": "admin"},
    {"X-Forwarded-User": "admin", "X-Forwarded-Group": "system:masters"},
    {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
    {"Impersonate-User": "admin"},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "admin"},
    {"X-Forwarded-Client-Cert": "Subject=CN=proxy"},
    {"X-SSL-Client-CN": "proxy", "X-Forwarded-User": "admin"},
    {"X-Original-URL": "/healthz"},
    {"X-HTTP-Method-Override": "GET"},
    {"Authorization": "Basic bWU6bWU="},
    {"Authorization": "Bearer"},
    {"Authorization": "Token me"},
    {"Authorization": "me"},
    {"Authorization": "Bearer unknown", "Cookie": "__Host-vgpu-session=x"},
    [("Authorization", "Bearer me"), ("Authorization", "Bearer me")],
    {"Authorization": "Bearer me,me"},
    {"Cookie": "__Host-vgpu-session="},
    {"Cookie": "__Host-vgpu-session=eyJ1c2VyIjoiYWRtaW4ifQ=="},
    {"Cookie": "__Host-vgpu-session=" + "A" * 6000},
    {"Cookie": "session=admin; user=admin"},
    {"Host": "vgpu-console.evil.example"},
]


@pytest.mark.parametrize("headers", HOSTILE, ids=range(len(HOSTILE)))
def test_no_header_makes_anybody_known(
    store: RecordStore, headers: dict[str, str] | list[tuple[str, str]]
) -> None:
    """But one token, or a certificate."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            site.reviews.add_user("me", "me", ("get", "pods", "*"))
            site.reviews.grants |= {("admin", "get", kind, "*") for kind in ("pods", "nodes")}
            url = f"{site.url}/api/v1/decisions"
            status, told = await answer(url, tls=ANYBODY, headers=headers)
            assert (status, list(told)) == (401, ["error"])

    play(scenario)


USER, PROXY = client_tls(CLUSTER.issue("amy")), client_tls(PROXIES.issue("proxy"))
STRANGER = client_tls(PROXIES.issue("other"))
AMY = {"X-Forwarded-User": "amy"}


@pytest.mark.parametrize(
    ("tls", "headers", "status"),
    [
        pytest.param(USER, {}, 200, id="user"),
        pytest.param(USER, {"X-Forwarded-User": "admin"}, 200, id="user-is-no-proxy"),
        pytest.param(USER, {"Authorization": "Bearer unknown"}, 401, id="a-bad-token-counts"),
        pytest.param(PROXY, AMY, 200, id="proxy"),
        pytest.param(PROXY, {}, 401, id="proxy-alone"),
        pytest.param(PROXY, {"X-Forwarded-User": "system:admin"}, 401, id="proxy-of-system"),
        pytest.param(
            PROXY,
            AMY | {"X-Forwarded-Group": "system:masters"},
            401,
            id="proxy-of-masters",
        ),
        pytest.param(STRANGER, AMY, 401, id="another-proxy"),
        pytest.param(
            client_tls(CLUSTER.issue("proxy")), AMY, 200, id="user-of-the-name-of-a-proxy"
        ),
    ],
)
def test_a_certificate_makes_somebody_known(
    store: RecordStore, tls: ssl.SSLContext, headers: dict[str, str], *, status: int
) -> None:
    """A user by the cluster's authority, a proxy by that of proxies; neither is the other."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            site.reviews.grants = {("amy", "get", "pods", "a")}
            url = f"{site.url}/api/v1/decisions"
            found, told = await answer(url, tls=tls, headers=headers)
            assert found == status
            if tls in {USER, PROXY} and status == 200:
                assert [row["pod"] for row in told["rows"]] == ["pod-of-a"]

    play(scenario)


def test_a_certificate_of_nobody_is_not_heard(store: RecordStore) -> None:
    """The handshake fails, as it would with an API server."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            with pytest.raises((OSError, ClientError)):
                await answer(f"{site.url}/api/v1/decisions", tls=client_tls(OURS.issue("amy")))

    play(scenario)


def test_rights_that_cannot_be_reviewed_show_nothing(store: RecordStore) -> None:
    """It is said that one should come again."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            site.reviews.add_user("me", "me", ("get", "pods", "*"))
            site.reviews.error = UnreachableError("refused", sent=False)
            for path in ROUTES:
                status, told = await ask(site, path, "me")
                assert (status, told) == (503, {"error": "rights cannot be reviewed now"})
            site.reviews.error = None
            assert (await ask(site, ROUTES[0], "me"))[0] == 200

    play(scenario)


def test_an_api_server_that_hangs_holds_up_nobody_who_is_known(store: RecordStore) -> None:
    """Their rights are remembered."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            site.reviews.add_user("me", "me", ("get", "pods", "*"))
            assert (await ask(site, ROUTES[0], "me"))[0] == 200
            site.reviews.hanging = True
            waiting = [asyncio.create_task(ask(site, ROUTES[0], f"t{n}")) for n in range(5)]
            await asyncio.sleep(0.1)
            async with asyncio.timeout(3):
                assert (await ask(site, ROUTES[0], "me"))[0] == 200
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    play(scenario)


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/api/v1/decisions?colour=red", 400, 'unknown parameter "colour"'),
        ("/api/v1/decisions?after=x", 400, ""),
        ("/api/v1/decisions?limit=many", 400, 'limit="many"'),
        ("/api/v1/decisions/d1?limit=1", 400, "accepted: none here"),
        ("/api/v1/decisions/none", 404, "no such decision"),
        ("/api/v1/decisions/%00", 404, "no such decision"),
        ("/api/v1/decisions/" + "d" * 2000, 404, "no such decision"),
        ("/api/v1/decisions/a/b/c", 404, "Not Found"),
        ("/api/v1/decisions/", 404, "Not Found"),
        ("/api/v1/records?kinds=x", 400, 'kinds="x"'),
        ("/api/v1/usage?namespace=a", 400, 'unknown parameter "namespace"'),
        ("/api/v1/overview?until=x", 400, 'unknown parameter "until"'),
        ("/api/v1", 404, "Not Found"),
        ("/api/v1/decisions?pod=" + "p" * 9000, 414, ""),
    ],
)
def test_a_bad_question_is_named(store: RecordStore, path: str, status: int, *, why: str) -> None:
    """In JSON, as every error."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            site.reviews.add_user("me", "me", ("get", "pods", "*"))
            found, told = await ask(site, path, "me")
            assert found == status
            assert why in (told if isinstance(told, str) else told["error"])

    play(scenario)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(store: RecordStore, method: str) -> None:
    """No method but GET is served."""

    async def scenario() -> None:
        async with pages_port(store) as site:
            site.reviews.add_user("me", "me", ("get", "pods", "*"))
            url = f"{site.url}/api/v1/decisions"
            status, _ = await answer(url, tls=ANYBODY, method=method, headers=bearer("me"))
            assert status == 405

    play(scenario)


def test_hostile_text_stays_text(store: RecordStore, tmp_path: Path) -> None:
    """The answer says that it is JSON, and browsers may not guess otherwise."""
    del store
    line: Line = admission(pod="<script>alert(1)</script>", digest="'; DROP TABLE record; --")
    with contextlib.closing(open_store(str(tmp_path / "records.db"))) as opened:
        opened.append([StoredRecord(record=parse_record(json.dumps(line)))])

        async def scenario() -> None:
            async with pages_port(opened) as site:
                site.reviews.add_user("me", "me", ("get", "pods", "*"))
                _, page = await ask(site, "/api/v1/decisions", "me")
                assert page["rows"][0]["pod"] == line["pod"]
                path = "/api/v1/decisions/'%3B%20DROP%20TABLE%20record%3B%20--"
                status, detail = await ask(site, path, "me")
                assert (status, detail["decision"]["digest"]) == (200, line["digest"])

        play(scenario)


def test_use_is_known_where_prometheus_answers(store: RecordStore) -> None:
    """And where there is none, or it fails, an error says so: nothing is no figure."""

    async def failing(_question: str) -> object:
        raise PrometheusError("it is gone")

    async def scenario() -> None:
        for query, expected in ((None, 501), (failing, 502), (figures, 200)):
            async with pages_port(store, query=query) as site:
                site.reviews.add_user("me", "me", *ROLES["of-everything"][0])
                status, told = await ask(site, "/api/v1/use?namespace=a", "me")
                assert status == expected
                if query is figures:
                    assert [each["pod"] for each in told["containers"]] == ["pod-of-a"]
                    assert [each["node"] for each in told["gpus"]] == ["node-1"]
                else:
                    assert "gone" not in told["error"]

    play(scenario)


def test_who_asks_for_much_at_once_keeps_nobody_waiting(store: RecordStore) -> None:
    """They are told when to ask again; places are free again once answers were sent."""

    async def scenario() -> None:
        go, all_wait, asking = asyncio.Event(), asyncio.Event(), set[int]()

        async def held(expression: str) -> object:
            asking.add(id(asyncio.current_task()))
            if len(asking) == 8:
                all_wait.set()
            await go.wait()
            return await figures(expression)

        async with pages_port(store, query=held) as site:
            for who in ("me", "you"):
                site.reviews.add_user(who, who, ("get", "pods", "*"))
            waiting = [asyncio.create_task(ask(site, "/api/v1/use", "me")) for _ in range(8)]
            async with asyncio.timeout(20):
                await all_wait.wait()
            for _ in range(20):  # what was refused holds no place
                url, headers = f"{site.url}/api/v1/decisions", bearer("me")
                async with asked(url, tls=ANYBODY, headers=headers) as response:
                    assert (response.status, response.headers["retry-after"]) == (429, "1")
                    told = await response.json()
                    assert told == {"error": "8 answers to you are under way; ask again"}
            page = f"{site.url}/decisions"
            async with asked(page, tls=ANYBODY, headers=bearer("me")) as response:
                assert (response.status, response.headers["retry-after"]) == (429, "1")
                text = await response.text()
                assert "Too many answers to you are under way; ask again in a second." in text
            for path in ("/api/v1/decisions", "/decisions"):
                assert (await ask(site, path, "you"))[0] == 200
            go.set()
            assert {status for status, _ in await asyncio.gather(*waiting)} == {200}
            for path in ("/api/v1/decisions", "/decisions"):
                assert (await ask(site, path, "me"))[0] == 200

    play(scenario)


def test_an_answer_that_fails_or_whose_reader_goes_holds_no_place(store: RecordStore) -> None:
    """However often that happens."""

    async def scenario() -> None:
        async def failing(_: str) -> object:
            raise PrometheusError("down")

        async with pages_port(store, query=failing) as site:
            site.reviews.add_user("me", "me", ("get", "pods", "*"))
            for _ in range(12):
                assert (await ask(site, "/api/v1/use", "me"))[0] == 502
                assert (await ask(site, "/api/v1/decisions?limit=x", "me"))[0] == 400
            for _ in range(12):
                _, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=ANYBODY)
                writer.write(
                    b"GET /api/v1/decisions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer me\r\n\r\n"
                )
                await writer.drain()
                writer.transport.abort()
            async with asyncio.timeout(20):  # until the server knows who has gone
                while (await ask(site, "/api/v1/decisions", "me"))[0] != 200:  # noqa: ASYNC110 -- asks a server
                    await asyncio.sleep(0.05)

    play(scenario)
