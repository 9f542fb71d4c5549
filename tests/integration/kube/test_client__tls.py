"""Whom we believe and who believes us, over real TLS."""

import asyncio
import ssl
from pathlib import Path

import pytest

from kube.client import Client
from kube.config import Access
from kube.errors import UnreachableError
from tests.fakes.api_server import ApiServer
from tests.fakes.kube_clock import FakeClock
from tests.fakes.pki import Authority

NODES = "/api/v1/nodes"


async def call(context: ssl.SSLContext, **access: object) -> None:
    async with (
        ApiServer(tls=context) as server,
        Client(Access(url=server.url, **access)) as client,  # type: ignore[arg-type]  # a test's shorthand
    ):
        await client.get(NODES)


def test_a_server_of_our_authority_is_believed() -> None:
    """The authority of the access is what counts, not the system's."""
    ours = Authority("ours")

    asyncio.run(call(ours.server(), ca=ours.certificate))


def test_a_server_of_another_authority_is_not() -> None:
    """Nothing is sent to a server that cannot prove itself, and the error is ours."""
    ours, theirs = Authority("ours"), Authority("theirs")

    with pytest.raises(UnreachableError, match="certificate verify failed") as raised:
        asyncio.run(call(theirs.server(), ca=ours.certificate))

    assert not raised.value.sent


def test_unless_we_were_told_not_to_look() -> None:
    """Without verification any server will do."""
    ours, theirs = Authority("ours"), Authority("theirs")

    asyncio.run(call(theirs.server(), ca=ours.certificate, verify=False))


def test_a_client_certificate_from_memory() -> None:
    """A kubeconfig's inline certificate and key identify us."""
    ours = Authority("ours")
    us = ours.issue("us")

    asyncio.run(
        call(ours.server(clients=True), ca=ours.certificate, certificate=us.certificate, key=us.key)
    )


def test_a_replaced_authority_is_believed_within_a_minute(tmp_path: Path) -> None:
    """When the mounted authority changes, new connections are checked against the new one."""
    old, new = Authority("old"), Authority("new")
    file = tmp_path / "ca.crt"
    file.write_bytes(old.certificate)
    time = FakeClock()

    async def play() -> None:
        async with ApiServer(tls=new.server()) as server:
            access = Access(url=server.url, ca=file)
            async with Client(access, clock=time.clock()) as client:
                with pytest.raises(UnreachableError):
                    await client.get(NODES)
                file.write_bytes(new.certificate)
                time.now += 60
                await client.get(NODES)

    asyncio.run(play())
