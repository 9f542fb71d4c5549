"""A real server under real TLS keeps its connections while its certificate changes."""

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certs.issue import IssueParameters, Names, authority, leaf
from certs.pem import Pair, certificates, certificates_pem, fingerprint
from certs.refresh_controller import PairFiles, RefreshController
from certs.rotation_controller import new_key_material
from certs.tls_server import ServingPair
from tests.fakes.pki import Authority, Issued

POLICY = IssueParameters(names=Names(dns=("localhost",)))
NOW = datetime.now(UTC)
CA = authority(POLICY.lifetimes, new_key_material(NOW))
CLIENT = ssl.create_default_context(cadata=certificates_pem(CA.certificate).decode())


def pair() -> Pair:
    return leaf(CA, POLICY, new_key_material(NOW)).pair


def rsa_pair() -> Pair:
    key = rsa.generate_private_key(65537, 2048)
    template = leaf(CA, POLICY, new_key_material(NOW)).certificate
    builder = x509.CertificateBuilder(
        template.issuer,
        template.subject,
        key.public_key(),
        template.serial_number,
        template.not_valid_before_utc,
        template.not_valid_after_utc,
        list(template.extensions),
    )
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return Pair(
        certificate=certificates_pem(builder.sign(CA.key, hashes.SHA256())),
        key=key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain),
    )


def shown(offered: Pair) -> str:
    return fingerprint(certificates(offered.certificate)[0])


async def app(scope: dict[str, Any], _receive: object, send: Any) -> None:  # noqa: ANN401 - ASGI
    assert scope["type"] == "http"
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@dataclass(slots=True)
class Connection:
    """One keep-alive connection, and which certificate it met."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def met(self) -> str:
        handshake: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        presented = handshake.getpeercert(binary_form=True)
        assert presented is not None
        return fingerprint(x509.load_der_x509_certificate(presented))

    async def call(self) -> bool:
        self.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await self.reader.readuntil(b"\r\n\r\n")
        body = await self.reader.readexactly(2)
        return head.startswith(b"HTTP/1.1 200") and body == b"ok"

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def connected(port: int, name: str = "localhost") -> Connection:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=CLIENT, server_hostname=name
    )
    return Connection(reader, writer)


async def closed(connections: Sequence[Connection]) -> None:
    for connection in connections:
        await connection.close()


@asynccontextmanager
async def running(serving: ServingPair) -> AsyncIterator[int]:
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http="httptools",
        lifespan="off",
        log_level="error",
        timeout_keep_alive=120,
        ssl_context_factory=lambda _config, _default: serving.context,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["own", "uv"])
def test_no_connection_is_dropped_by_a_reload(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Calls go on over ten reloads; each new handshake meets the newest leaf."""
    pairs = [pair() for _ in range(11)]
    over = asyncio.Event()

    async def answered(connection: Connection) -> list[bool]:
        answers = []
        while not over.is_set():
            answers.append(await connection.call())
        return answers

    async def scenario() -> None:
        serving = ServingPair()
        serving.load(pairs[0])
        async with running(serving) as port:
            old = [await connected(port) for _ in range(8)]
            calls = [asyncio.create_task(answered(connection)) for connection in old]
            for newer in pairs[1:]:
                serving.load(newer)
                fresh = await connected(port)
                assert await fresh.call()
                assert fresh.met == shown(newer)
                await fresh.close()
            over.set()
            answers = await asyncio.gather(*calls)

            assert all(each and all(each) for each in answers)
            assert {connection.met for connection in old} == {shown(pairs[0])}
            await closed(old)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("kinds", [(pair, rsa_pair), (rsa_pair, pair)], ids=["to-rsa", "to-p256"])
def test_a_change_of_key_type_leaves_no_old_certificate_behind(kinds: tuple[Any, Any]) -> None:
    """A context that is loaded twice would go on offering the certificate of the first type."""

    async def scenario() -> None:
        serving = ServingPair()
        async with running(serving) as port:
            for kind in kinds:
                offered = kind()
                serving.load(offered)
                met = await connected(port)
                assert met.met == shown(offered)
                await met.close()

    asyncio.run(scenario())


def test_a_server_without_a_certificate_refuses_and_recovers() -> None:
    """It can listen before the first pair has been issued."""

    async def scenario() -> None:
        serving = ServingPair()
        async with running(serving) as port:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connected(port)
            serving.load(pair())
            late = await connected(port)
            assert await late.call()
            await late.close()

    asyncio.run(scenario())


def test_tls_is_new_enough() -> None:
    """1.3 is agreed on with who knows it; below 1.2 nobody is served."""
    old = ssl.create_default_context(cadata=certificates_pem(CA.certificate).decode())
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    async def scenario() -> tuple[str, str]:
        serving = ServingPair()
        serving.load(pair())
        async with running(serving) as port:
            versions = []
            for context in (CLIENT, old):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, server_hostname="localhost"
                )
                versions.append(writer.get_extra_info("ssl_object").version())
                writer.close()
                await writer.wait_closed()
            return versions[0], versions[1]

    assert asyncio.run(scenario()) == ("TLSv1.3", "TLSv1.2")
    assert ServingPair().context.minimum_version == ssl.TLSVersion.TLSv1_2


def mounted(directory: Path, version: str, offered: Pair) -> None:
    """Swap the files as kubelet does: a new directory, then one rename of the ``..data`` link."""
    (directory / version).mkdir()
    (directory / version / "tls.crt").write_bytes(offered.certificate)
    (directory / version / "tls.key").write_bytes(offered.key)
    (directory / "..tmp").symlink_to(version)
    (directory / "..tmp").rename(directory / "..data")


def test_mounted_files_are_followed_and_broken_ones_are_not(tmp_path: Path) -> None:
    """Kubelet's swap is noticed; a truncated file or another pair's key changes nothing."""
    first, second = pair(), pair()
    mounted(tmp_path, "one", first)
    files = PairFiles(certificate=tmp_path / "..data/tls.crt", key=tmp_path / "..data/tls.key")
    serving = ServingPair()
    keeper = RefreshController(serving=serving, read_pair=files, announce=lambda _: None)
    seen: list[str | None] = []

    changes = (
        lambda: None,
        lambda: files.certificate.write_bytes(second.certificate[:200]),
        lambda: files.certificate.write_bytes(second.certificate),
        lambda: mounted(tmp_path, "two", second),
    )

    for change in changes:
        change()
        asyncio.run(keeper.refresh())
        seen.append(serving.fingerprint)

    assert seen == [shown(first)] * 3 + [shown(second)]
    assert serving.ready


def caller(issued: Issued | None) -> ssl.SSLContext:
    """Return the context of a caller that shows what was *issued* to it, if anything."""
    context = ssl.create_default_context(cadata=certificates_pem(CA.certificate).decode())
    if issued is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(issued.certificate + issued.key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


async def is_answered(port: int, issued: Issued | None) -> bool:
    """Say whether a caller gets an answer; with TLS 1.3 it learns of a refusal only by reading."""
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=caller(issued), server_hostname="localhost"
        )
    except (ssl.SSLError, ConnectionError):
        return False
    connection = Connection(reader, writer)
    try:
        return await connection.call()
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await connection.close()


def test_client_authorities_come_and_go() -> None:
    """While there are any, callers without a certificate of theirs get no answer."""
    ours, theirs, demanded = Authority("ours"), Authority("theirs"), [""]
    callers = (None, ours.issue("api-server"), theirs.issue("api-server"))
    offered = pair()

    async def scenario() -> list[list[bool]]:
        serving = ServingPair(client_ca=lambda: demanded[-1])
        serving.load(offered)
        answers = []
        async with running(serving) as port:
            for text in ("", ours.certificate.decode(), theirs.certificate.decode(), ""):
                demanded.append(text)
                serving.load(offered)
                answers.append([await is_answered(port, issued) for issued in callers])
        return answers

    assert asyncio.run(scenario()) == [
        [True, True, True],
        [False, True, False],
        [False, False, True],
        [True, True, True],
    ]
