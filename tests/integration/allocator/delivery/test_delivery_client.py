"""Over real TLS, only an answer that accounts for every record counts as one."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from allocator.delivery.delivery_client import (
    LARGEST_ANSWER,
    LONGEST_PAUSE,
    Acknowledged,
    Answer,
    DeliveryClient,
    NotDelivered,
    TooLarge,
)
from tests.fakes.pki import Authority
from tests.fakes.records_console import RecordsConsole, SenderFiles, listening, response

LINES = b'{"id":"a"}\n{"id":"b"}\n'
AUTHORITY = Authority("ours")


@dataclass(slots=True)
class Desk:
    """A sender and its console."""

    console: RecordsConsole
    port: int
    files: SenderFiles

    def post(self, *, host: str = "127.0.0.1", seconds: float = 5) -> Answer:
        async def call() -> Answer:
            access = self.files.access(f"https://{host}:{self.port}")
            async with DeliveryClient(access, timeout=seconds) as client:
                return await client.post(LINES, records=2)

        return asyncio.run(call())

    def answer(self, raw: bytes) -> None:
        """Let the console send *raw* and close the connection."""

        async def script(
            _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _body: bytes
        ) -> None:
            writer.write(raw)
            await writer.drain()
            writer.close()

        self.console.script = script


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    files = SenderFiles(tmp_path / "files")
    files.write(AUTHORITY)
    console = RecordsConsole()
    with listening(console, AUTHORITY) as port:
        yield Desk(console, port, files)


def test_records_are_acknowledged(desk: Desk) -> None:
    """Also those that the console knows already; the token is in the call."""
    first, second = desk.post(), desk.post()

    assert first == second == Acknowledged(delivered=2)
    assert desk.console.stored == {"a": 2, "b": 2}
    assert desk.console.heads[0].startswith("POST /v3/records HTTP/1.1\r\n")
    assert "\r\nAuthorization: Bearer token-1\r\n" in desk.console.heads[0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"stored":1,"known":0,"rejected":[{"line":1,"why":"no id\\u001b[0m"}]}',
            ("no id\ufffd[0m",),
        ),
        (b'{"stored":0,"known":1,"rejected":[{"why":"x"}],"more":{}}', ("x",)),
    ],
)
def test_rejected_records_are_told(desk: Desk, body: bytes, expected: tuple[str, ...]) -> None:
    """With reasons that no terminal obeys."""
    desk.answer(response("200 OK", body))

    assert desk.post() == Acknowledged(delivered=1, rejected=1, reasons=expected)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>200 OK</html>", id="a-page"),
        pytest.param(b"\xff\xfe", id="no-text"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"stored":2}', id="incomplete"),
        pytest.param(b'{"stored":"2","known":0}', id="another-type"),
        pytest.param(b'{"stored":1,"known":0}', id="a-record-is-missing"),
        pytest.param(b'{"stored":3,"known":0}', id="one-too-many"),
        pytest.param(b'{"stored":3,"known":-1}', id="negative"),
        pytest.param(b'{"stored":1e99,"known":0}', id="no-integer"),
    ],
)
def test_an_answer_that_accounts_for_too_little_is_none(desk: Desk, body: bytes) -> None:
    """The records are sent again."""
    desk.answer(response("200 OK", body))

    assert isinstance(desk.post(), NotDelivered)


@pytest.mark.parametrize(
    ("status", "header_and_pause"),
    [
        ("503 Service Unavailable", ("retry-after: 7", 7.0)),
        ("429 Too Many Requests", ("retry-after: 999999999", LONGEST_PAUSE)),
        ("503 Service Unavailable", ("retry-after: soon", None)),
        ("503 Service Unavailable", ("retry-after: -1", None)),
        ("500 Internal Server Error", ("retry-after: 7", None)),
        ("401 Unauthorized", ("retry-after: 7", None)),
        ("404 Not Found", ("x: y", None)),
        ("204 No Content", ("x: y", None)),
    ],
)
def test_a_refusal_is_no_acknowledgement(
    desk: Desk, status: str, header_and_pause: tuple[str, float | None]
) -> None:
    """A pause is kept within bounds, where the console is busy."""
    header, pause = header_and_pause
    desk.answer(response(status, b"", header))

    answer = desk.post()

    assert isinstance(answer, NotDelivered)
    assert answer.pause == pause
    assert answer.others_may_pass == (status[:3] in {"500", "404", "204"})


def test_a_body_that_is_too_large_is_told(desk: Desk) -> None:
    """It can be sent in parts."""
    desk.answer(response("413 Content Too Large"))

    assert desk.post() == TooLarge()


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_redirects_are_not_followed(desk: Desk, status: str) -> None:
    """They would take our token elsewhere."""
    desk.answer(response(status, b"", f"location: https://127.0.0.1:{desk.port}/elsewhere"))

    assert isinstance(desk.post(), NotDelivered)
    assert desk.console.calls == 1


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="closed"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{", id="cut"),
        pytest.param(b"220 smtp ready\r\n", id="another-protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5000 + b"\r\n", id="many-headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", id="long-header"),
        pytest.param(
            response("200 OK", b" " * (LARGEST_ANSWER + 1) + b'{"stored":2,"known":0}'), id="large"
        ),
        pytest.param(
            response("200 OK", b"\x1f\x8b not gzip", "content-encoding: gzip"), id="encoded"
        ),
    ],
)
def test_what_is_no_answer_is_told(desk: Desk, raw: bytes) -> None:
    """Whatever it is instead."""
    desk.answer(raw)

    assert isinstance(desk.post(), NotDelivered)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n", response("200 OK", b"{")[:-1]])
def test_an_answer_that_never_ends_is_given_up(desk: Desk, start: bytes) -> None:
    """Although something comes all the time."""
    piece = b"x" if b"\r\n\r\n" in start else b"x: y\r\n"

    async def script(
        _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _body: bytes
    ) -> None:
        writer.write(start.replace(b"content-length: 1", b"content-length: 100000"))
        while True:
            await asyncio.sleep(0.02)
            writer.write(piece if start else b"")
            await writer.drain()

    desk.console.script = script
    began = time.monotonic()

    answer = desk.post(seconds=0.5)

    assert isinstance(answer, NotDelivered)
    assert time.monotonic() - began < 30  # its pieces would take half an hour


def test_a_console_of_another_authority_gets_nothing(desk: Desk) -> None:
    """Nor our token."""
    with listening(desk.console, Authority("theirs")) as desk.port:
        answer = desk.post()

    assert isinstance(answer, NotDelivered)
    assert desk.console.heads == []


def test_a_console_of_another_name_gets_nothing(desk: Desk) -> None:
    """Its certificate is for 127.0.0.1."""
    assert isinstance(desk.post(host="localhost"), NotDelivered)
    assert desk.console.heads == []


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key", "token"])
@pytest.mark.parametrize("content", [None, b"nonsense\x00\n\r: x"])
def test_credentials_that_cannot_be_used_are_told(
    desk: Desk, name: str, content: bytes | None
) -> None:
    """Nothing is sent without them."""
    file = desk.files.folder / name
    file.unlink() if content is None else file.write_bytes(content)

    answer = desk.post()

    assert isinstance(answer, NotDelivered)
    assert "credentials" in answer.why
    assert desk.console.heads == []


@pytest.mark.parametrize("name", ["ca.crt", "tls.crt", "tls.key"])
def test_an_empty_certificate_is_told(desk: Desk, name: str) -> None:
    """An empty file of authorities does not mean those of the system."""
    (desk.files.folder / name).write_bytes(b"")

    answer = desk.post()

    assert isinstance(answer, NotDelivered)
    assert "credentials" in answer.why
    assert desk.console.heads == []


def test_nobody_who_listens_is_told(desk: Desk) -> None:
    """As any other failure."""
    desk.port = 1

    assert isinstance(desk.post(), NotDelivered)


def test_a_new_token_and_certificate_are_used_after_a_refusal(desk: Desk) -> None:
    """The console may have refused the old ones."""

    async def scenario() -> list[Answer]:
        async with DeliveryClient(desk.files.access(f"https://127.0.0.1:{desk.port}")) as client:
            answers = [await client.post(LINES, records=2)]
            desk.answer(response("401 Unauthorized"))
            desk.files.write(AUTHORITY, b"token-2")
            answers.append(await client.post(LINES, records=2))
            desk.console.script = None
            answers.append(await client.post(LINES, records=2))
            return answers

    first, second, third = asyncio.run(scenario())

    assert first == third == Acknowledged(delivered=2)
    assert isinstance(second, NotDelivered)
    assert "Bearer token-2" in desk.console.heads[-1]
