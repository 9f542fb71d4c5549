"""The whole program: its three ports, its certificates, its end."""

import asyncio
import contextlib
import os
import signal
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from allocator.cli.http_server import Listen
from console.cluster.live_informer import CLIENT_CA
from console.serve.console import run
from console.serve.options import AccessOptions, ConsoleOptions
from console.store.opening import open_store
from kube.config import Access
from tests.builders.sent_records import body_of, health
from tests.cluster.ports import free_port
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.fakes.pki import Authority
from tests.integration.console.ports import answer, play
from tests.integration.waiting import until

LOOPBACK = "127.0.0.1"
CONFIG_MAP = "/api/v1/namespaces/vgpu-admission-system/configmaps"


@dataclass(slots=True)
class Running:
    """A console of this process, and the files it reads."""

    folder: Path
    ports: dict[str, int] = field(
        default_factory=lambda: {name: free_port() for name in ("pages", "records", "health")}
    )

    def issue(self, authority: Authority, *trusted: Authority) -> None:
        """Write a pair of *authority*, and the authorities of senders."""
        issued = authority.issue("console")
        text = b"".join(each.certificate for each in (trusted or (authority,)))
        for name, content in {
            "tls.crt": issued.certificate,
            "tls.key": issued.key,
            "ca.crt": text,
        }.items():
            new = self.folder / f"{name}.new"
            new.write_bytes(content)
            new.rename(self.folder / name)

    def options(self, url: str, viewers: AccessOptions) -> ConsoleOptions:
        return ConsoleOptions(
            access=Access(url=url),
            pages=Listen(LOOPBACK, self.ports["pages"]),
            records=Listen(LOOPBACK, self.ports["records"]),
            health=Listen(LOOPBACK, self.ports["health"]),
            certificates=self.folder,
            namespace="vgpu-admission-system",
            agents="vgpu-admission-agents",
            store=str(self.folder / "records.db"),
            viewers=viewers,
            drain=1,
        )

    async def status(self, path: str) -> tuple[int, str]:
        url = f"http://{LOOPBACK}:{self.ports['health']}{path}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status, await response.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until_ready(self) -> None:
        async with asyncio.timeout(20):
            while (await self.status("/readyz"))[0] != 200:  # noqa: ASYNC110 -- as kubelet does
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    *authorities: Authority,
    viewers: AccessOptions | None = None,
    client_ca: Authority | None = None,
) -> AsyncIterator[tuple[Running, ApiServer]]:
    """Run the program beside an API server; at the end, end it as kubelet does."""
    console = Running(folder)
    if authorities:
        console.issue(*authorities)
    async with ApiServer() as server:
        if client_ca is not None:
            namespace, name, key = CLIENT_CA
            place = parsed(f"/api/v1/namespaces/{namespace}/configmaps")
            data = {key: client_ca.certificate.decode()}
            server.objects.create(place, {"metadata": {"name": name}, "data": data})
            server.delays[f"/api/v1/namespaces/{namespace}/configmaps"] = 0.5
        options = console.options(server.url, viewers or AccessOptions())
        task = asyncio.create_task(run(options, open_store(options.store)))
        try:
            async with asyncio.timeout(20):
                while (await console.status("/healthz"))[0] != 200:
                    assert not task.done(), task.exception()
                    await asyncio.sleep(0.05)
            yield console, server
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(task, 20)


def tls(trusted: Authority, shown: Authority | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusted.certificate.decode())
    if shown is not None:
        issued = shown.issue("sender")
        descriptor = os.memfd_create("pair")
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(issued.certificate + issued.key)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    return context


ONE, OTHER, FOREIGN = Authority("one"), Authority("other"), Authority("foreign")


def test_without_a_certificate_it_waits(tmp_path: Path) -> None:
    """It lives, but is not ready; once there is one, it is."""

    async def scenario() -> None:
        async with running(tmp_path) as (console, _):
            assert await console.status("/readyz") == (503, "no valid serving certificate yet\n")
            console.issue(ONE)
            await console.until_ready()
            url = f"https://{LOOPBACK}:{console.ports['pages']}/login"
            assert (await answer(url, tls=tls(ONE)))[0] == 200

    play(scenario)


def test_it_is_ready_once_it_knows_whose_certificates_to_ask_for(tmp_path: Path) -> None:
    """A certificate of the cluster's authority counts from the first call; a foreign one never."""

    async def scenario() -> None:
        async with running(tmp_path, ONE, client_ca=OTHER) as (console, _):
            await console.until_ready()
            url = f"https://{LOOPBACK}:{console.ports['pages']}/login"
            with pytest.raises(aiohttp.ClientError):
                await answer(url, tls=tls(ONE, shown=FOREIGN))
            assert (await answer(url, tls=tls(ONE, shown=OTHER)))[0] == 200

    play(scenario)


def test_a_new_certificate_ends_no_request(tmp_path: Path) -> None:
    """Requests go on while pair and authority are replaced; then the old authority is none."""

    async def scenario() -> None:
        async with running(tmp_path, ONE) as (console, _):
            await console.until_ready()
            url = f"https://{LOOPBACK}:{console.ports['records']}/v1/records"
            failures: list[BaseException] = []
            statuses: set[int] = set()
            done = asyncio.Event()

            async def traffic(context: ssl.SSLContext) -> None:
                """Send on one connection, without a token that is known."""
                async with aiohttp.ClientSession() as session:
                    while not done.is_set():
                        try:
                            async with session.post(
                                url, ssl=context, data=body_of([health()])
                            ) as response:
                                statuses.add(response.status)
                        except (aiohttp.ClientError, OSError) as error:
                            failures.append(error)
                        await asyncio.sleep(0.02)

            both = ssl.create_default_context(cadata=(ONE.certificate + OTHER.certificate).decode())
            issued = ONE.issue("sender")
            descriptor = os.memfd_create("pair")
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                file.write(issued.certificate + issued.key)
                both.load_cert_chain(f"/proc/self/fd/{descriptor}")
            task = asyncio.create_task(traffic(both))
            await asyncio.sleep(0.3)
            console.issue(OTHER, ONE, OTHER)
            await until_served(console, OTHER)
            await asyncio.sleep(0.3)
            done.set()
            await task
            assert failures == []
            assert statuses in ({401, 429}, {401})

            console.issue(OTHER)
            await until_refused(url, tls(OTHER, ONE))
            assert (await answer(url, tls=tls(OTHER, OTHER), method="POST"))[0] in {401, 429}

    play(scenario)


async def until_served(console: Running, authority: Authority) -> None:
    url = f"https://{LOOPBACK}:{console.ports['pages']}/login"
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                if (await answer(url, tls=tls(authority)))[0] == 200:
                    return
            await asyncio.sleep(0.1)


async def until_refused(url: str, context: ssl.SSLContext) -> None:
    async with asyncio.timeout(20):
        with contextlib.suppress(aiohttp.ClientError, OSError):
            while True:
                await answer(url, tls=context, method="POST")
                await asyncio.sleep(0.1)


def test_its_authority_is_published(tmp_path: Path) -> None:
    """For kubectl vgpu."""

    async def scenario() -> None:
        async with running(tmp_path, ONE) as (console, server):
            await console.until_ready()
            await until(lambda: any(request.method == "PATCH" for request in server.requests))
            [patch, *_] = [each for each in server.requests if each.method == "PATCH"]
            assert patch.path == f"{CONFIG_MAP}/vgpu-console-ca"

    play(scenario)


def test_to_try_it_everything_is_shown_on_loopback(tmp_path: Path) -> None:
    """In plain HTTP, with a line that says so, and for requests that name loopback only."""

    async def scenario() -> None:
        viewers = AccessOptions(read_all=True)
        async with running(tmp_path, ONE, viewers=viewers) as (console, _):
            await console.until_ready()
            root = f"http://{LOOPBACK}:{console.ports['pages']}"
            anything = tls(ONE)
            status, text = await answer(f"{root}/decisions", tls=anything)
            assert status == 200
            assert "--insecure-read-all" in text
            assert (await answer(f"{root}/api/v1/overview", tls=anything))[0] == 200
            assert (await answer(f"{root}/login", tls=anything))[0] == 404
            for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""):
                headers = {"Host": host}
                assert (await answer(root, tls=anything, headers=headers))[0] == 421
            for host in ("localhost", "LOCALHOST:8444", "[::1]:8444", "127.1.2.3"):
                headers = {"Host": host}
                assert (await answer(f"{root}/health", tls=anything, headers=headers))[0] == 200

    play(scenario)


@pytest.mark.parametrize("port", ["pages", "records", "health"])
def test_a_port_that_is_taken_ends_the_program(tmp_path: Path, port: str) -> None:
    """With an error, not with two ports instead of three."""

    async def scenario() -> None:
        console = Running(tmp_path)
        console.issue(ONE)
        async with ApiServer() as server:
            options = console.options(server.url, AccessOptions())
            taken = await asyncio.start_server(lambda *_: None, LOOPBACK, console.ports[port])
            async with taken:
                with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="in use")):
                    await run(options, open_store(options.store))

    play(scenario)


def test_strangers_are_sent_to_the_login(tmp_path: Path) -> None:
    """Pages lead there, data does not."""

    async def scenario() -> None:
        async with running(tmp_path, ONE) as (console, _):
            await console.until_ready()
            root = f"https://{LOOPBACK}:{console.ports['pages']}"
            for path in ("/", "/decisions", "/pods", "/nodes", "/fit", "/records", "/settings"):
                assert (await answer(f"{root}{path}", tls=tls(ONE)))[0] == 303
            assert (await answer(f"{root}/api/v1/decisions", tls=tls(ONE)))[0] == 401

    play(scenario)
