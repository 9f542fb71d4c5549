"""Prometheus over HTTP: what it answers is bounded, and what it does not answer is told."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from console.pages.fleet import prometheus_client
from console.pages.fleet.prometheus_client import PrometheusClient, PrometheusError
from console.pages.fleet.usage import series_of
from tests.harness.console_site import serving

ANSWER = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"namespace":"a"},'
ANSWER += b'"value":[1763728496,"1048576"]}]}}'


async def answer(request: Request) -> Response:
    question = dict([(await request.body()).decode().split("=", 1)])["query"]
    if question == "moved":
        return RedirectResponse("/elsewhere")
    if question == "large":
        return Response(b" " * (prometheus_client.MOST_ANSWER + 1))
    bodies = {"good": ANSWER, "broken": b"{", "deep": b"[" * 100_000}
    return Response(
        bodies.get(question, b"unknown"), status_code=200 if question in bodies else 400
    )


APP = Starlette(routes=[Route("/api/v1/query", answer, methods=["POST"])])


def test_an_answer_is_read() -> None:
    with serving(APP) as address:
        [one] = series_of(asyncio.run(PrometheusClient(f"{address}/").query("good")))

    assert (one.labels, one.points) == ({"namespace": "a"}, ((1763728496.0, 1048576.0),))


@pytest.mark.parametrize("question", ["bad", "broken", "deep", "large", "moved"])
def test_anything_else_is_an_error_that_names_the_address(question: str) -> None:
    """Neither a long answer, nor a redirect, nor what is no JSON is taken."""
    with serving(APP) as address, pytest.raises(PrometheusError):
        asyncio.run(PrometheusClient(address).query(question))


def test_nobody_there_is_an_error() -> None:
    with pytest.raises(PrometheusError, match=r"127\.0\.0\.1:9"):
        asyncio.run(PrometheusClient("http://127.0.0.1:9").query("good"))
