"""The extender's port where callers must be known: who brings no certificate is not heard."""

import asyncio
import ssl
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import msgspec
import orjson
import pytest

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.cli.http_server import Listen
from certs.issue import Credential, IssueParameters, Names, authority, client, leaf
from certs.pem import Pair, certificates_pem
from certs.rotation_controller import new_key_material
from certs.rotation_policy import DEFAULT
from tests.properties.test_hostile_questions import extender
from webhook.serve.certificates import MutualPair
from webhook.serve.extender import CachedPodDecoder, ExtenderService, loopback
from webhook.serve.extender_routes import app
from webhook.serve.http import serve_app

NOW = datetime.now(UTC)
NAMES = IssueParameters(names=Names(dns=("localhost",), addresses=(ip_address("127.0.0.1"),)))
OURS, NEXT, THEIRS = (authority(DEFAULT, new_key_material(NOW)) for _ in range(3))
SERVER = leaf(OURS, NAMES, new_key_material(NOW))
VERBS = ("filter", "prioritize", "preempt", "bind")
HERE = Listen(host="127.0.0.1", port=0)


def scheduler(of: Credential) -> Pair:
    return client(of, "scheduler", new_key_material(NOW)).pair


def bundle(*several: Credential) -> bytes:
    return certificates_pem(*(one.certificate for one in several))


def as_caller(folder: Path, pair: Pair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=bundle(OURS).decode())
    if pair is not None:
        file = folder / "client.pem"
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
    return context


async def look() -> Pair:
    return SERVER.pair


async def asked(port: int, context: ssl.SSLContext, verb: str) -> bytes:
    """Return the first line of the answer, nothing where there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        question = f"POST /extender/{verb} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}"
        writer.write(question.encode())
        return await asyncio.wait_for(reader.readline(), 5)
    except (ssl.SSLError, ConnectionError):  # how soon the refusal is heard depends
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("pair", "heard"),
    [
        pytest.param(scheduler(OURS), True, id="known"),
        pytest.param(scheduler(NEXT), True, id="of-the-next-authority"),
        pytest.param(scheduler(THEIRS), False, id="of-another-authority"),
        pytest.param(SERVER.pair, False, id="a-serving-certificate"),
        pytest.param(None, False, id="nobody"),
    ],
)
def test_only_known_callers_are_heard(
    tmp_path: Path, pair: Pair | None, verb: str, *, heard: bool
) -> None:
    """No verb is for strangers: a forged question decides where pods are tried and hinted."""
    mutual = MutualPair(read_pair=look, authorities=lambda: bundle(OURS, NEXT))

    async def scenario() -> bytes:
        await mutual()
        context = mutual.serving.context
        async with serve_app(app(extender()), HERE, context=context, drain=1) as port:
            return await asked(port, as_caller(tmp_path, pair), verb)

    assert asyncio.run(scenario()) == (b"HTTP/1.1 400 Bad Request\r\n" if heard else b"")


def test_an_authority_that_is_dropped_vouches_for_nobody(tmp_path: Path) -> None:
    """Although the serving pair stays the same; one that is added is known at once."""
    trusted = [OURS]
    mutual = MutualPair(read_pair=look, authorities=lambda: bundle(*trusted))
    (tmp_path / "next").mkdir()
    old = as_caller(tmp_path, scheduler(OURS))
    new = as_caller(tmp_path / "next", scheduler(NEXT))

    async def scenario() -> list[bool]:
        await mutual()
        context = mutual.serving.context
        async with serve_app(app(extender()), HERE, context=context, drain=1) as port:
            before = [bool(await asked(port, who, "filter")) for who in (old, new)]
            trusted[:] = [NEXT]
            await mutual()
            return [*before, *[bool(await asked(port, who, "filter")) for who in (old, new)]]

    assert asyncio.run(scenario()) == [True, False, False, True]


def test_authorities_that_cannot_be_read_leave_those_there_were(tmp_path: Path) -> None:
    """Admission's own pair is read all the same."""
    file = tmp_path / "clients.pem"
    file.write_bytes(bundle(OURS))
    mutual = MutualPair(read_pair=look, authorities=file.read_bytes)

    async def scenario() -> Pair | None:
        await mutual()
        file.unlink()
        return await mutual()

    assert asyncio.run(scenario()) == SERVER.pair
    assert mutual.serving.ready


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "example.com"])  # noqa: S104 -- all there are
def test_where_others_reach_it_nobody_is_served_unknown(host: str) -> None:
    """The program ends instead, whoever put it together."""
    service = object.__new__(ExtenderService)

    async def scenario() -> None:
        listen = Listen(host=host, port=0)
        async with ExtenderService.serve(service, listen, lambda *_: None, drain=1):
            raise AssertionError

    with pytest.raises(ValueError, match="callers must be known"):
        asyncio.run(scenario())


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
