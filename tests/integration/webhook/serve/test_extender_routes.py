"""The extender's port where callers must be known: who brings no certificate is not heard."""

import asyncio
import ssl
from pathlib import Path

import msgspec
import orjson
import pytest

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from certs.pem import Pair
from tests.fakes.pki import Authority, Issued
from tests.properties.test_hostile_questions import extender
from webhook.serve.extender import CachedPodDecoder, loopback, mutually
from webhook.serve.extender_routes import app
from webhook.serve.http import Listen, serve_app

AUTHORITY = Authority("ours")
SERVER = AUTHORITY.issue("server")
QUESTION = b"POST /extender/filter HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


def client(folder: Path, issued: Issued | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    if issued is not None:
        file = folder / "client.pem"
        file.write_bytes(issued.certificate + issued.key)
        context.load_cert_chain(file)
    return context


async def asked(context: ssl.SSLContext, clients: Path) -> bytes:
    """Return the first line of the answer, nothing where there is none."""

    async def look() -> Pair:
        return Pair(certificate=SERVER.certificate, key=SERVER.key)

    found, looked = mutually(clients, look)
    assert found is not None
    await looked()
    listen = Listen(host="127.0.0.1", port=0)
    async with serve_app(app(extender()), listen, context=found.context, drain=1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            writer.write(QUESTION)
            return await asyncio.wait_for(reader.readline(), 5)
        except (ssl.SSLError, ConnectionError):  # how soon the refusal is heard depends
            return b""
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("issued", "heard"),
    [
        pytest.param(AUTHORITY.issue("scheduler"), True, id="known"),
        pytest.param(Authority("theirs").issue("scheduler"), False, id="of-another-authority"),
        pytest.param(None, False, id="nobody"),
    ],
)
def test_only_known_callers_are_heard(
    tmp_path: Path, issued: Issued | None, *, heard: bool
) -> None:
    """Authorities come from a file, the server's own pair is admission's."""
    clients = tmp_path / "clients.pem"
    clients.write_bytes(AUTHORITY.certificate)
    context = client(tmp_path, issued)

    assert asyncio.run(asked(context, clients)) == (
        b"HTTP/1.1 400 Bad Request\r\n" if heard else b""
    )


@pytest.mark.parametrize(
    ("host", "near"),
    [
        pytest.param("127.0.0.1", True, id="v4"),
        pytest.param("::1", True, id="v6"),
        pytest.param("localhost", True, id="name"),
        pytest.param("10.0.0.1", False, id="address"),
        pytest.param("example.com", False, id="elsewhere"),
    ],
)
def test_what_is_loopback(host: str, *, near: bool) -> None:
    """Only there plain HTTP is good enough, and a bind without a certificate."""
    assert loopback(host) is near


def test_a_pod_that_is_asked_about_twice_is_read_once() -> None:
    """Until it changes, or the words that it is read in do."""
    words: tuple[Vocabulary, ...] = VOCABULARIES
    reading = CachedPodDecoder(lambda: words)
    first, second = (msgspec.Raw(orjson.dumps({"metadata": {"uid": u}})) for u in ("a", "b"))

    found = reading(first)

    assert reading(msgspec.Raw(bytes(first))) is found
    assert (found.uid, reading(second).uid, reading(first).uid) == ("a", "b", "a")
    last = reading(first)
    words = VOCABULARIES[:1]
    assert reading(first) is not last
