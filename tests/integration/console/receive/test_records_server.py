"""The port of records: who may send which, and what becomes of each line."""

import asyncio
import contextlib
import gzip
import json
import ssl
import threading
import uuid
import zlib
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError
from structlog.testing import capture_logs

from allocator.cli.http_server import ConnectionLimits
from console.receive.node_limits import NodeLimits
from console.receive.records_server import READ_AT_ONCE
from console.receive.sender import known_nodes
from console.records.query import EVERYTHING, PageRequest, RecordFilter
from console.store.opening import open_store
from console.store.store import RecordStore, StoreError
from kube.errors import UnreachableError
from tests.builders.sent_records import Line, admission, body_of, health, started
from tests.fakes.kube_clock import FakeClock
from tests.integration.console.ports import (
    CLUSTER,
    OURS,
    Site,
    answer,
    asked,
    bearer,
    client_tls,
    play,
    records_port,
)

SENDER = client_tls(OURS.issue("sender"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with contextlib.closing(open_store(str(tmp_path / "records.db"))) as opened:
        yield opened


async def send(  # noqa: PLR0913 -- a request
    site: Site,
    body: bytes,
    *,
    who: str = "webhook",
    tls: ssl.SSLContext = SENDER,
    headers: dict[str, str] | None = None,
    path: str = "/v3/records",
) -> tuple[int, Any]:
    more = {**bearer(who), **(headers or {})}
    url = f"{site.url}{path}"
    return await answer(url, tls=tls, method="POST", data=body, headers=more)


def kept(store: RecordStore) -> list[tuple[str, str]]:
    """Return id and sender of all records."""
    page = store.records(EVERYTHING, RecordFilter(), PageRequest(size=1000))
    return [(stored.record.id, stored.sender) for stored in page.rows]


def answered(site: Site) -> dict[str, float]:
    """Return how many batches were answered with each status."""
    found = site.metrics.registry.collect()
    samples = [sample for family in found for sample in family.samples]
    name = "vgpu_console_batches_total"
    return {each.labels["code"]: each.value for each in samples if each.name == name}


def records_rejected(site: Site) -> float:
    """Return how many records were rejected."""
    found = site.metrics.registry.get_sample_value(
        "vgpu_console_records_total", {"result": "rejected"}
    )
    assert found is not None
    return found


@pytest.mark.parametrize("compressed", [False, True])
def test_a_batch_is_stored_once(store: RecordStore, *, compressed: bool) -> None:
    """However often it is sent; the record says how its sender was known."""
    lines = [admission(), admission(digest="d2")]
    body = gzip.compress(body_of(lines)) if compressed else body_of(lines)
    headers = {"Content-Encoding": "gzip"} if compressed else {}

    async def scenario() -> None:
        async with records_port(store) as site:
            first = await send(site, body, headers=headers)
            assert first == (200, {"stored": 2, "known": 0, "rejected": []})
            again = await send(site, body, headers=headers)
            assert again == (200, {"stored": 0, "known": 2, "rejected": []})

    play(scenario)
    assert dict(kept(store)) == {line["id"]: "webhook, by certificate and token" for line in lines}


@pytest.mark.parametrize("path", ["/v1/records", "/v2/records"])
def test_an_older_sender_is_heard(store: RecordStore, path: str) -> None:
    """Agents are replaced one by one."""
    line = admission()

    async def scenario() -> None:
        async with records_port(store) as site:
            sent = await send(site, body_of([line]), path=path)
            assert sent == (200, {"stored": 1, "known": 0, "rejected": []})

    play(scenario)
    assert [record_id for record_id, _ in kept(store)] == [line["id"]]


def in_parts(line: Line) -> tuple[bytes, bytes]:
    """Return the start of *line* until its id, and its end."""
    text = body_of([{"id": line["id"], **line}]).rstrip()
    at = text.index(b",") + 1
    return text[:at], text[at:]


def test_records_that_share_an_end_are_stored_whole(store: RecordStore) -> None:
    """A number is what the last line before says; what cannot be read keeps nothing back."""
    one, other = admission(user="ann"), admission(user="bob")
    lines = [dict(each, id=uuid.uuid4().hex) for each in (one, one, other, one, other)]
    starts = [in_parts(line)[0] for line in lines]
    end, other_end = in_parts(one)[1], in_parts(other)[1]
    body = b"\n".join(
        (
            *(b"=0 " + end, b"@0 " + starts[0], b"@0 " + starts[1], b"@1 " + starts[2]),
            *(b"=0 " + other_end, b"@0 " + starts[2], b"=1 " + end, b"@1 " + starts[3]),
            *(b"=2", b"@2 {", b"@0 x" + starts[4], body_of([lines[4]]).rstrip()),
            *(b"=3 " + end[20:], b"+4 3 " + end[:20], b"@4 " + starts[1], b"+5 6 x", b"+5 4 x"),
        )
    )

    async def scenario() -> None:
        async with records_port(store) as site:
            status, told = await send(site, body)
            # The record of line 15 is that of line 3.
            assert (status, told["stored"], told["known"]) == (200, 5, 1)
            whys = {each["line"]: each["why"] for each in told["rejected"]}
            assert set(whys) == {4, 9, 10, 11, 16, 17}
            assert "1 refers to an end that no line before it defines" in whys[4]
            assert "a number of at most 6 digits" in whys[9]
            assert "2 refers to an end that no line before it defines" in whys[10]
            assert "6 refers to an end that no line before it defines" in whys[16]
            assert "4 refers to an end that refers to another" in whys[17]

    play(scenario)
    page = store.records(EVERYTHING, RecordFilter(), PageRequest(size=1000))
    users = {row.record.id: getattr(row.record, "user", "") for row in page.rows}
    assert users == {line["id"]: line["user"] for line in lines}


def test_a_large_batch_is_stored_in_parts(store: RecordStore) -> None:
    """Each line is answered for as if there were one part; what is sent again is known."""
    lines = [admission() for _ in range(2 * READ_AT_ONCE + 1)]
    texts = [body_of([line]).rstrip() for line in lines]
    texts[READ_AT_ONCE + 1] = b"{"
    texts = [b"x", *texts, b"="]

    async def scenario() -> None:
        async with records_port(store) as site:
            status, told = await send(site, b"\n".join(texts))
            assert (status, told["stored"], told["known"]) == (200, 2 * READ_AT_ONCE, 0)
            wrong = [each["line"] for each in told["rejected"]]
            assert wrong == [1, READ_AT_ONCE + 3, len(texts)]
            status, told = await send(site, body_of(lines))
            assert (status, told["stored"], told["known"]) == (200, 1, 2 * READ_AT_ONCE)

    play(scenario)


@pytest.mark.parametrize("who", ["webhook", "agent-1"])
def test_a_batch_of_few_bytes_is_no_large_one(store: RecordStore, who: str) -> None:
    """A megabyte that a thousand lines refer to would take minutes to read."""
    end = b'"text":"' + b"x" * 1_000_000 + b'"}'
    body = b"=0 %b\n" % end + b'@0 {"kind":"health",\n' * 1990

    async def scenario() -> None:
        async with records_port(store) as site:
            with contextlib.suppress(OSError, ClientError):
                assert (await send(site, body, who=who))[0] == 413
            assert answered(site) == {"413": 1}

    play(scenario)


@pytest.mark.parametrize("references", [100, 0])
def test_an_agent_is_held_to_what_its_records_are_written_out(
    store: RecordStore, references: int
) -> None:
    """Whatever few bytes it needed to send them; what nothing refers to counts as well."""
    start, end = in_parts(health())
    body = b"=0 %b\n" % (b'"text":"' + b"x" * 30_000 + b'",' + end)
    body += (b"@0 " + start + b"\n") * references

    async def scenario() -> None:
        # Besides its lines, of which there are fewer, it counts by the kilobyte.
        limits = NodeLimits(daily=1000 if references else 20)
        async with records_port(store, node_limits=limits) as site:
            assert (await send(site, body, who="agent-1"))[0] == 200
            assert (await send(site, body, who="agent-1"))[0] == 429

    play(scenario)


def test_an_agent_writes_for_its_node(store: RecordStore) -> None:
    """Which its records then say."""
    line = health()

    async def scenario() -> None:
        async with records_port(store) as site:
            assert (await send(site, body_of([line]), who="agent-1"))[0] == 200

    play(scenario)
    assert kept(store) == [(line["id"], "agent of node node-1, by certificate and token")]


def test_an_agent_takes_no_id_of_a_webhook(store: RecordStore) -> None:
    """Whoever sends an id first: each record is its sender's, and both are there."""
    true = admission()
    forged = [health(id=true["id"]), started(id=true["id"], pod_uid=true["digest"])]

    async def scenario() -> None:
        async with records_port(store) as site:
            for line in forged:
                assert (await send(site, body_of([line]), who="agent-1"))[0] == 200
            assert await send(site, body_of([true])) == (
                200,
                {"stored": 1, "known": 0, "rejected": []},
            )
            assert (await send(site, body_of([true])))[1]["known"] == 1

    play(scenario)
    assert sorted(sender for _, sender in kept(store)) == [
        "agent of node node-1, by certificate and token",
        "webhook, by certificate and token",
    ]


HERE, THERE, NOWHERE = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


def test_an_agent_has_no_say_about_pods_of_other_nodes(store: RecordStore) -> None:
    """Where it is known which node a pod is on; one of which nothing is known may be on any."""
    nodes = {HERE: ("node-1", "node-3"), THERE: ("node-2",)}
    asked: list[set[str]] = []

    def nodes_of(uids: Collection[str]) -> dict[str, tuple[str, ...]]:
        asked.append(set(uids))
        return {uid: nodes[uid] for uid in uids if uid in nodes}

    lines = [started(pod_uid=uid) for uid in (HERE, THERE, NOWHERE)]

    async def scenario() -> None:
        async with records_port(store, nodes_of=nodes_of) as site:
            status, told = await send(site, body_of([*lines, health()]), who="agent-1")
            assert (status, told["stored"]) == (200, 3)
            [rejected] = told["rejected"]
            assert rejected["line"] == 2
            assert f'pod "{THERE}" is on node "node-2", but' in rejected["why"]
            assert 'of node "node-1"' in rejected["why"]
            assert (await send(site, body_of([admission(pod_uid=THERE)])))[1]["stored"] == 1
            assert records_rejected(site) == 1

    play(scenario)
    assert asked == [{HERE, THERE, NOWHERE}]


def test_the_cluster_knows_better_than_records_where_a_pod_is() -> None:
    """Records of binds are asked only about pods that the cluster does not know, or has no node."""
    live = {HERE: "node-1", NOWHERE: ""}
    asked: list[set[str]] = []

    def bound(uids: Collection[str]) -> dict[str, tuple[str, ...]]:
        asked.append(set(uids))
        return {uid: ("node-2", "node-3") for uid in uids if uid == THERE}

    found = known_nodes((HERE, THERE, NOWHERE), live=lambda uid: live.get(uid, ""), bound=bound)

    assert found == {HERE: ("node-1",), THERE: ("node-2", "node-3")}
    assert asked == [{THERE, NOWHERE}]


def test_a_store_that_cannot_say_where_pods_are_lets_agents_wait(store: RecordStore) -> None:
    """They send again; nothing is taken unchecked."""

    def nodes_of(_uids: Collection[str]) -> dict[str, tuple[str, ...]]:
        raise StoreError("the disk is gone")

    async def scenario() -> None:
        async with records_port(store, nodes_of=nodes_of) as site:
            status, _ = await send(site, body_of([started(pod_uid=HERE)]), who="agent-1")
            assert status == 503

    play(scenario)
    assert kept(store) == []


FORGED: list[tuple[str, str, Line, str]] = [
    ("agent-for-another-node", "agent-2", health("node-1"), 'node is "node-1"'),
    ("agent-for-no-node", "agent-1", health(""), 'node is ""'),
    ("agent-for-a-pod-elsewhere", "agent-1", started("node-2"), 'node is "node-2"'),
    ("agent-as-webhook", "agent-1", health(component="webhook"), 'component is "webhook"'),
    ("agent-as-console", "agent-1", health(component="console"), 'component is "console"'),
    (
        "agent-decides",
        "agent-1",
        admission(component="agent", node="node-1"),
        'kind is "admission"',
    ),
    ("webhook-as-agent", "webhook", health(), 'component is "agent"'),
    ("webhook-starts", "webhook", started(component="webhook"), 'kind is "started"'),
    ("webhook-as-console", "webhook", admission(component="console"), 'component is "console"'),
    ("id-of-another-form", "webhook", admission(id="1"), 'id "1" is not accepted'),
    ("id-with-capitals", "webhook", admission(id="A" * 32), "is not accepted"),
    ("id-of-sql", "webhook", admission(id="'; DROP TABLE record; --"), "is not accepted"),
    ("from-the-future", "webhook", admission(at="2099-01-01T00:00:00.000Z"), "in the future"),
    ("from-long-ago", "webhook", admission(at="1999-01-01T00:00:00.000Z"), "before 2020"),
    ("without-a-time", "webhook", admission(at="yesterday"), "is not a time"),
    ("time-without-offset", "webhook", admission(at="2026-01-01T00:00:00"), "is not a time"),
    ("a-long-name", "webhook", admission(pod="p" * 300), "longer than 253"),
    ("nul", "webhook", admission(user="a\0b"), "a text has a NUL"),
    ("huge-number", "webhook", admission(containers=[{"name": "m", "count": 10**18}]), "a number"),
    ("deep", "webhook", admission(asked={"a": json.loads("[" * 60 + "]" * 60)}), "levels of them"),
    ("wide", "webhook", admission(asked={"a": [0] * 30_000}), "over 20000 values"),
    ("another-type", "webhook", admission(step=1), "Expected `str`, got `int`"),
    ("another-kind", "webhook", admission(kind="confession"), "Invalid value 'confession'"),
    ("no-component", "webhook", {"kind": "health", "id": "a"}, "missing required field"),
]


@pytest.mark.parametrize(
    ("who", "line", "why"), [row[1:] for row in FORGED], ids=[row[0] for row in FORGED]
)
def test_a_forged_record_is_rejected(store: RecordStore, who: str, line: Line, *, why: str) -> None:
    """It is named by its line; those beside it are stored."""
    good = admission() if who == "webhook" else health(f"node-{who[-1]}")

    async def scenario() -> None:
        async with records_port(store) as site:
            status, told = await send(site, body_of([good, line, good]), who=who)
            assert status == 200
            assert [each["line"] for each in told["rejected"]] == [2]
            assert why in told["rejected"][0]["why"]

    play(scenario)
    assert [record_id for record_id, _ in kept(store)] == [good["id"]]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"kind": "health"',
        b"[" * 100_000,
        b'{"kind":' * 50_000,
        b'{"kind": "admission", "id": "\\ud800"}',
        b"\x1f\x8b",
        b"1e999",
        b'{"kind": "admission", "asked": ' + b"9" * 5000 + b"}",
    ],
    ids=range(11),
)
def test_a_line_that_is_no_record_is_rejected(store: RecordStore, line: bytes) -> None:
    """The text of the answer holds no control character."""
    good = admission()

    async def scenario() -> None:
        async with records_port(store) as site:
            status, told = await send(site, line + b"\n\n" + body_of([good]))
            assert (status, told["stored"]) == (200, 1)
            [rejected] = told["rejected"]
            assert rejected["line"] == 1
            assert rejected["why"].isprintable()

    play(scenario)


@pytest.mark.parametrize(
    ("who", "status"),
    [
        ("unknown", 401),
        ("", 401),
        ("other", 403),
        ("admin", 403),
        ("agent-nowhere", 403),
        ("agent-both", 403),
    ],
)
def test_who_may_not_send_is_told(store: RecordStore, who: str, status: int) -> None:
    """Even an administrator writes no records, nor an agent whose node is not known."""

    async def scenario() -> None:
        async with records_port(store) as site:
            answered = await send(site, body_of([health()]), who=who)
            assert answered[0] == status
            assert answered[1]["error"]

    play(scenario)
    assert kept(store) == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "webhook"},
        {"Authorization": "Basic d2ViaG9vazo="},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer webhook webhook"},
        {"X-Forwarded-User": "system:serviceaccount:vgpu-admission-system:vgpu-webhook"},
        {"Cookie": "__Host-vgpu-session=webhook"},
    ],
)
def test_only_a_bearer_token_is_a_token(store: RecordStore, headers: dict[str, str]) -> None:
    """No other header stands in for it."""

    async def scenario() -> None:
        async with records_port(store) as site:
            status, _ = await answer(
                f"{site.url}/v1/records",
                tls=SENDER,
                method="POST",
                data=body_of([admission()]),
                headers=headers,
            )
            assert status == 401

    play(scenario)


@pytest.mark.parametrize("tls", [client_tls(), client_tls(CLUSTER.issue("sender"))])
def test_without_a_certificate_of_ours_nobody_is_heard(
    store: RecordStore, tls: ssl.SSLContext
) -> None:
    """Whatever token there is."""

    async def scenario() -> None:
        async with records_port(store) as site:
            with pytest.raises((OSError, ClientError)):
                await send(site, body_of([admission()]), tls=tls)
            assert not site.reviews.asked

    play(scenario)


BOMB = gzip.compress(bytes(64 * 1024 * 1024))


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        pytest.param(bytes(4 * 1024 * 1024 + 1), {}, 413, id="large"),
        pytest.param(BOMB, {"Content-Encoding": "gzip"}, 413, id="bomb"),
        pytest.param(gzip.compress(b"{}") + b"x", {"Content-Encoding": "gzip"}, 400, id="tail"),
        pytest.param(gzip.compress(b"{}") * 2, {"Content-Encoding": "gzip"}, 400, id="twice"),
        pytest.param(gzip.compress(b"{}")[:-1], {"Content-Encoding": "gzip"}, 400, id="cut"),
        pytest.param(b"{}", {"Content-Encoding": "gzip"}, 400, id="plain"),
        pytest.param(zlib.compress(b"{}"), {"Content-Encoding": "gzip"}, 400, id="zlib"),
        pytest.param(b"{}", {"Content-Encoding": "br"}, 415, id="brotli"),
        pytest.param(b"{}", {"Content-Encoding": "gzip, gzip"}, 415, id="gzip-twice"),
        pytest.param(b"{}\n" * 3001, {}, 413, id="many"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused_as_a_whole(
    store: RecordStore, body: bytes, headers: dict[str, str], *, status: int
) -> None:
    """And the connection ends, because the rest of a body is not read."""

    async def scenario() -> None:
        async with records_port(store) as site:
            # An answer may be overtaken by the end of the connection.
            with contextlib.suppress(OSError, ClientError):
                assert (await send(site, body, headers=headers))[0] == status
            assert answered(site) == {str(status): 1}
            assert (await send(site, body_of([admission()])))[0] == 200

    play(scenario)
    assert len(kept(store)) == 1


def test_two_thousand_lines_are_a_batch(store: RecordStore) -> None:
    """With or without an end of the last line."""
    lines = [health() for _ in range(2000)]

    async def scenario() -> None:
        async with records_port(store) as site:
            for body in (body_of(lines), body_of(lines).rstrip()):
                status, told = await send(site, body, who="agent-1")
                assert (status, told["rejected"]) == (200, [])

    play(scenario)


async def unfinished(
    site: Site, count: int, *, who: str
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open *count* connections, on each of which *who* begins a body that never ends."""
    head = (
        f"POST /v1/records HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {who}\r\n"
        "content-length: 1000\r\n\r\n{"
    )
    opened = [
        await asyncio.open_connection("127.0.0.1", site.port, ssl=SENDER) for _ in range(count)
    ]
    for _, writer in opened:
        writer.write(head.encode())
    return opened


async def taken_again(site: Site, line: Line, *, who: str) -> None:
    """Send *line* until it is taken; places become free once the server knows who has gone."""
    async with asyncio.timeout(20):
        while (await send(site, body_of([line]), who=who))[0] != 200:  # noqa: ASYNC110 -- asks a server
            await asyncio.sleep(0.05)


def test_a_body_that_comes_too_slowly_ends(store: RecordStore) -> None:
    """So do many of them, while others are served."""
    limits = ConnectionLimits(request_seconds=0.5, sweep_seconds=0.1)

    async def scenario() -> None:
        async with records_port(store, limits=limits) as site:
            slow = await unfinished(site, 4, who="webhook")
            assert (await send(site, body_of([admission()])))[0] == 200
            for reader, writer in slow:
                async with asyncio.timeout(5):
                    with contextlib.suppress(OSError):
                        await reader.read()
                writer.close()

    play(scenario)


def test_more_bodies_than_there_is_room_for_come_again(store: RecordStore) -> None:
    """Each is told when."""

    async def scenario() -> None:
        async with records_port(store) as site:
            slow = await unfinished(site, 8, who="webhook")
            await asyncio.sleep(0.3)
            status, told = await send(site, body_of([admission()]))
            assert (status, told) == (429, {"error": "too many batches at once"})
            for _, writer in slow:
                writer.close()
            await taken_again(site, admission(), who="webhook")

    play(scenario)


def test_a_node_that_holds_many_bodies_keeps_nobody_waiting(store: RecordStore) -> None:
    """Whoever has taken it over has its token, and sends bodies that never end."""

    async def scenario() -> None:
        async with records_port(store) as site:
            slow = await unfinished(site, 40, who="agent-1")
            answers = [asyncio.ensure_future(reader.readline()) for reader, _ in slow]
            told = asyncio.as_completed(answers, timeout=20)
            for _ in range(38):
                assert b" 429 " in await next(told)
            for who, line in (("webhook", admission()), ("agent-2", health(node="node-2"))):
                assert (await send(site, body_of([line]), who=who))[0] == 200
            refused = await send(site, body_of([health()]), who="agent-1")
            assert refused == (429, {"error": "2 batches of node node-1 are being read"})
            assert over_limit(site) == 0
            for _, writer in slow:
                writer.close()
            await taken_again(site, health(), who="agent-1")
            await asyncio.gather(*answers, return_exceptions=True)

    play(scenario)


def test_pages_that_take_long_hold_up_no_records(store: RecordStore) -> None:
    """Whoever asks for many of them has all threads that pages are made in."""

    async def scenario() -> None:
        go = threading.Event()
        async with records_port(store) as site:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
            pages = [asyncio.create_task(asyncio.to_thread(go.wait, 20)) for _ in range(20)]
            try:
                async with asyncio.timeout(10):
                    assert (await send(site, body_of([admission()])))[0] == 200
            finally:
                go.set()
                await asyncio.gather(*pages)

    play(scenario)


def over_limit(site: Site) -> float | None:
    """Return how many batches came of nodes that had sent theirs of a day."""
    return site.metrics.registry.get_sample_value("vgpu_console_over_limit_batches_total")


def test_a_node_that_sends_too_much_waits(store: RecordStore) -> None:
    """Otherwise it would push what others sent out of the store."""

    async def scenario() -> None:
        clock = FakeClock()
        async with records_port(store, clock=clock.clock(), node_limits=NodeLimits(1000)) as site:
            lines = [health() for _ in range(400)]
            for _ in range(3):
                assert (await send(site, body_of(lines), who="agent-1"))[0] == 200
            url, tls = f"{site.url}/v1/records", SENDER
            async with asked(
                url, tls=tls, method="POST", data=body_of(lines), headers=bearer("agent-1")
            ) as response:
                assert (response.status, response.headers["retry-after"]) == (429, "300")
                assert await response.json() == {
                    "error": "node node-1 has sent its 1000 records of a day"
                }
            with capture_logs() as logged:  # what was refused just now has been named
                assert (await send(site, body_of(lines), who="agent-1"))[0] == 429
            assert logged == []
            assert over_limit(site) == 2
            other = body_of([health(node="node-2")])
            assert (await send(site, other, who="agent-2"))[0] == 200
            for _ in range(3):
                assert (await send(site, body_of([admission()] * 400)))[0] == 200
            clock.now += 201 * 86.4
            assert (await send(site, body_of(lines), who="agent-1"))[0] == 200

    play(scenario)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"{}\n" * 3001, 413, id="too-many-lines"),
        pytest.param(gzip.compress(b"x" * (4 * 1024 * 1024 + 1)), 413, id="too-large"),
        pytest.param(b"no gzip", 400, id="damaged"),
        pytest.param(gzip.compress(b"x" * (3000 * 1024)), 200, id="few-large-lines"),
    ],
)
def test_what_no_agent_sends_counts_like_the_largest_batch(
    store: RecordStore, body: bytes, status: int
) -> None:
    """It is read all the same."""
    headers = {} if body.startswith(b"{") else {"content-encoding": "gzip"}

    async def scenario() -> None:
        async with records_port(store, node_limits=NodeLimits(3000)) as site:
            for expected in (status, 429):
                assert (await send(site, body, who="agent-1", headers=headers))[0] == expected

    play(scenario)


def test_what_could_not_be_stored_is_not_counted(store: RecordStore) -> None:
    """An agent sends it again until it is."""
    pods = [started(pod_uid=f"00000000-0000-4000-8000-{n:012}") for n in range(900)]

    def unreadable(_: Collection[str]) -> dict[str, Collection[str]]:
        raise StoreError("down")

    async def scenario() -> None:
        limits = NodeLimits(1000)
        async with records_port(store, nodes_of=unreadable, node_limits=limits) as site:
            for _ in range(3):
                assert (await send(site, body_of(pods), who="agent-1"))[0] == 503

    play(scenario)


def test_while_tokens_cannot_be_reviewed_senders_wait(store: RecordStore) -> None:
    """They are not refused, which would make them drop what they have."""

    async def scenario() -> None:
        async with records_port(store) as site:
            site.reviews.error = UnreachableError("refused", sent=False)
            assert (await send(site, body_of([admission()])))[0] == 503
            site.reviews.error = None
            assert (await send(site, body_of([admission()])))[0] == 200

    play(scenario)


def test_who_fails_again_and_again_must_wait(store: RecordStore) -> None:
    """No API server is asked for ever about tokens of nobody."""

    async def scenario() -> None:
        async with records_port(store) as site:
            statuses = [(await send(site, b"{}", who=f"guess-{number}"))[0] for number in range(12)]
            assert statuses == [401] * 10 + [429] * 2
            assert len(site.reviews.asked) == 10

    play(scenario)


def test_other_paths_and_methods_are_not_there(store: RecordStore) -> None:
    """The port does one thing."""

    async def scenario() -> None:
        async with records_port(store) as site:
            for method, path, status in (
                ("GET", "/v1/records", 405),
                ("GET", "/v2/records", 405),
                ("GET", "/v3/records", 405),
                ("POST", "/v4/records", 404),
                ("POST", "/v1/records/", 404),
                ("POST", "/", 404),
                ("GET", "/api/v1/records", 404),
            ):
                url = f"{site.url}{path}"
                found = await answer(url, tls=SENDER, method=method, headers=bearer("webhook"))
                assert found[0] == status

    play(scenario)
