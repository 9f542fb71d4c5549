"""The console of the demo."""

import asyncio
import re
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from importlib import resources

import aiohttp

from allocator.config.fleet_file import load_fleet
from allocator.model.problem import Loaded
from demo.day import DayResult
from demo.demo_console import day_before, serving_console
from tests.builders.model import T4, nodes_of

END = datetime(2026, 11, 24, 23, 0, tzinfo=UTC)
VERSION = "1.2.3"
PAGES = (
    "", "decisions?since=all", "pods", "nodes", "nodes/h100", "fit", "namespaces", "waiting",
    "health", "settings", "records", "reasons",
)  # fmt: skip


@cache
def day() -> DayResult:
    text = (resources.files("webhook") / "samples" / "fleet.yaml").read_text(encoding="utf-8")
    fleet = load_fleet(text)
    assert isinstance(fleet, Loaded)
    return asyncio.run(day_before(END, fleet.value, VERSION))


async def answers(told: DayResult, *paths: str) -> dict[str, tuple[int, str]]:
    """Return the status and the text of each of *paths* of a console."""
    found: dict[str, tuple[int, str]] = {}
    async with (
        serving_console(told, version=VERSION) as console,
        aiohttp.ClientSession() as calls,
    ):
        for path in paths:
            async with calls.get(console.url + path) as reply:
                found[path] = reply.status, await reply.text()
    return found


def test_every_page_shows_something() -> None:
    """Who opens the demo finds no dead end and no empty list of decisions."""
    found = asyncio.run(answers(day(), *PAGES))

    assert {path: status for path, (status, _) in found.items()} == dict.fromkeys(
        PAGES, HTTPStatus.OK
    )
    assert "language/" in found["decisions?since=all"][1]
    assert "h100" in found["nodes"][1]


def test_a_decision_is_decided_again_on_its_page() -> None:
    """The page of a bound pod says that admission and bind come out again."""

    async def page(told: DayResult) -> str:
        async with (
            serving_console(told, version=VERSION) as console,
            aiohttp.ClientSession() as calls,
        ):
            async with calls.get(f"{console.url}decisions?state=running&since=all") as reply:
                href = re.search(r'href="/(decisions/[^"?]+/[^"?]+)"', await reply.text())
            assert href is not None
            async with calls.get(console.url + href[1]) as reply:
                return await reply.text()

    text = asyncio.run(page(day()))

    assert text.count("decided again on its own snapshot: the same") == 2


def test_more_records_are_stored_while_it_serves() -> None:
    """What is sent to the webhook of the demo appears among the decisions."""
    records = [record for record in day().records if record.get("reason") == "ModelUnavailable"]

    async def page() -> str:
        empty = await day_before(END, [nodes_of(1, T4)], VERSION)
        empty.records.clear()
        async with (
            serving_console(empty, version=VERSION) as console,
            aiohttp.ClientSession() as calls,
        ):
            for record in records:
                console.sink.remember(record)
            async with asyncio.timeout(10):
                while True:
                    async with calls.get(f"{console.url}decisions?since=all") as reply:
                        text = await reply.text()
                    if "old-card" in text:
                        return text
                    await asyncio.sleep(0.05)

    assert "ModelUnavailable" in asyncio.run(page())


def test_any_fleet_has_a_day() -> None:
    """A fleet without the nodes of the story is no error; its decisions are others."""
    result = asyncio.run(day_before(END, [nodes_of(1, T4)], VERSION))

    assert any(record.get("outcome") == "refused" for record in result.records)
