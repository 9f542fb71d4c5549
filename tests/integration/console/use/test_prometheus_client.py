"""A Prometheus asked by the console: what it answers, and what else may answer in its place."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from console.use.prometheus_client import (
    LARGEST_ANSWER,
    PrometheusError,
    PrometheusTarget,
    connect_prometheus,
)
from tests.fakes.pki import Authority

AUTHORITY = Authority("site")
ANSWER = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def asked(handler: Handler, folder: Path, *, token: str = "", question: str = "up") -> object:
    """Return the answer to a question, from a server that answers by *handler*."""

    async def run() -> object:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=AUTHORITY.server()).start()
        port = runner.addresses[0][1]
        (folder / "ca.crt").write_bytes(AUTHORITY.certificate)
        (folder / "token").write_text(f"{token}\n")
        target = PrometheusTarget(
            url=f"https://127.0.0.1:{port}/prometheus/",
            ca=folder / "ca.crt",
            token=folder / "token",
        )
        try:
            async with connect_prometheus(target) as client:
                assert client is not None
                return await client.query(question)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_a_question_is_sent_whole_and_with_the_token(tmp_path: Path) -> None:
    """However many namespaces it names."""
    seen = []

    async def handler(request: web.Request) -> web.Response:
        form = await request.post()
        seen.append((request.path, request.headers.get("Authorization"), form["query"]))
        return web.Response(body=ANSWER)

    long = "a" * 100_000
    answer = asked(handler, tmp_path, token="secret", question=long)  # noqa: S106 -- of a test

    assert answer == {"resultType": "vector", "result": []}
    assert seen == [("/prometheus/api/v1/query", "Bearer secret", long)]


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (200, b"<html>", "HTTP 200, which is no answer of Prometheus"),
        (302, b"", "HTTP 302, which is no answer of Prometheus"),
        (400, b'{"status": "error", "error": "bad"}', "HTTP 400: bad"),
        (200, b"[" * 100_000, "which is no answer of Prometheus"),
    ],
    ids=["page", "redirect", "refusal", "deep"],
)
def test_what_is_no_answer_is_an_error(
    status: int, body: bytes, text: str, *, tmp_path: Path
) -> None:
    """A login page of a proxy, and a redirect that would take the token elsewhere."""
    calls = 0

    async def handler(_request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        return web.Response(status=status, body=body, headers={"Location": "/login"})

    with pytest.raises(PrometheusError, match=text):
        asked(handler, tmp_path)
    assert calls == 1


def test_an_answer_without_end_is_not_kept(tmp_path: Path) -> None:
    """The console has less memory than Prometheus has series."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2 * LARGEST_ANSWER >> 20):
            await response.write(b" " * (1 << 20))
        return response

    with pytest.raises(PrometheusError, match="exceeds"):
        asked(handler, tmp_path)


def test_nobody_answers(tmp_path: Path) -> None:
    """The error says so, and nothing hangs."""

    async def run() -> None:
        target = PrometheusTarget(url="http://127.0.0.1:1")
        async with connect_prometheus(target) as client:
            assert client is not None
            with pytest.raises(PrometheusError, match="no answer"):
                await client.query("up")
        async with connect_prometheus(None) as nothing:
            assert nothing is None

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (PrometheusTarget(url="http://prometheus:9090"), ""),
        (PrometheusTarget(url="https://prometheus", token=Path("t")), ""),
        (PrometheusTarget(url="http://prometheus", token=Path("t")), "over https only"),
        (PrometheusTarget(url="prometheus:9090"), "is not an address"),
        (PrometheusTarget(url="http://"), "is not an address"),
        (PrometheusTarget(url="http://a:99999"), "is not an address"),
        (PrometheusTarget(url="http://a?b"), "is not an address"),
    ],
    ids=lambda value: value.url if isinstance(value, PrometheusTarget) else "",
)
def test_an_address_is_judged_before_the_start(target: PrometheusTarget, text: str) -> None:
    """A token goes nowhere in the clear."""
    assert (text in target.fault()) if text else (target.fault() == "")
