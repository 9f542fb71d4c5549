"""Logging in and out in Chinese: the language of the address goes with the person."""

import contextlib
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from console.access.login_server import login_address
from console.store.opening import open_store
from console.store.store import RecordStore
from tests.integration.console.access.test_login_server import console
from tests.integration.console.ports import play

LOGIN, LOGOUT = "\u767b\u5f55", "\u9000\u51fa\u767b\u5f55"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordStore]:
    folder: Path = tmp_path_factory.mktemp("store")
    with contextlib.closing(open_store(str(folder / "records.db"))) as opened:
        yield opened


def switch(html: str) -> str:
    match = re.search(r'<p class="language"><a href="([^"]*)"', html)
    assert match is not None
    return unescape(match[1])


def test_a_language_goes_from_a_page_through_the_login_and_back(store: RecordStore) -> None:
    """And through the logout."""

    async def scenario() -> None:
        async with console(store) as browser:
            assert await browser.ask("/pods?ns=a&lang=zh") == 303
            assert browser.location == "/login?next=%2Fpods%3Fns%3Da%26lang%3Dzh&lang=zh"
            assert await browser.ask(browser.location) == 200
            assert f"<h1>{LOGIN}</h1>" in browser.text
            assert 'action="/login?lang=zh"' in browser.text

            fields = {name: unescape(value) for name, value in browser.hidden.items()}
            assert await browser.ask("/login?lang=zh", {**fields, "token": "wrong"}) == 401
            assert "\u4ee4\u724c\u5df2\u8fc7\u671f" in browser.text
            fields = {name: unescape(value) for name, value in browser.hidden.items()}
            assert await browser.ask("/login?lang=zh", {**fields, "token": "t-amy"}) == 303
            assert browser.location == "/pods?ns=a&lang=zh"

            assert await browser.ask("/logout?lang=zh") == 200
            assert f"<h1>{LOGOUT}</h1>" in browser.text
            assert await browser.ask("/logout?lang=zh", browser.hidden) == 303
            assert browser.location == "/login?lang=zh"

    play(scenario)


def test_a_browser_that_prefers_chinese_gets_it_and_no_address_says_so(store: RecordStore) -> None:
    async def scenario() -> None:
        async with console(store) as browser:
            await browser.ask("/login?next=%2Fpods", Accept_Language="zh-CN,en;q=0.5")

            assert '<html lang="zh-Hans">' in browser.text
            assert "lang=zh" not in browser.text
            assert browser.hidden["next"] == "/pods"
            assert switch(browser.text) == "/login?next=%2Fpods%3Flang%3Den&lang=en"

    play(scenario)


def test_the_switch_changes_what_follows_too(store: RecordStore) -> None:
    """Whoever changes to English at the login wants the next page in English."""

    async def scenario() -> None:
        async with console(store) as browser:
            await browser.ask("/login?next=%2Fpods%3Flang%3Dzh&lang=zh")
            await browser.ask(switch(browser.text))

            assert "<h1>Log in</h1>" in browser.text
            assert browser.hidden["next"] == "/pods?lang=en"
            await browser.ask("/login?lang=zh&next=%2Fpods")
            assert browser.hidden["next"] == "/pods?lang=zh"
            await browser.ask("/login?lang=zh")
            assert switch(browser.text) == "/login?lang=en"

    play(scenario)


def test_too_many_attempts_are_told_in_chinese(store: RecordStore) -> None:
    async def scenario() -> None:
        async with console(store) as browser:
            statuses = []
            for _ in range(11):
                await browser.ask("/login?lang=zh")
                answer = await browser.ask("/login?lang=zh", {**browser.hidden, "token": "x"})
                statuses.append(answer)
            assert statuses[-1] == 429
            assert "\u767b\u5f55\u5931\u8d25\u6b21\u6570\u8fc7\u591a" in browser.text

    play(scenario)


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("lang=zh", "&lang=zh"),
        ("lang=en", "&lang=en"),
        ("lang=xx", ""),
        ("lang=", ""),
        ("lang", ""),
        ("xlang=zh", ""),
        ("lang=%7Ah", ""),
        ("lang=zh%0d%0aset-cookie:a", ""),
        ("lang=zh\r\nset-cookie:a", ""),
        ("lang=zh&lang=<b>", ""),
        ("a=1;lang=zh", ""),
        ("&" * 5000, ""),
    ],
)
def test_the_way_to_the_login_names_a_language_of_ours_only(query: str, language: str) -> None:
    address = login_address("/pods", query)

    assert address.partition("lang=")[2] == "" if not language else address.endswith(language)
    assert address.count("&lang=") == bool(language)
    assert address.isprintable()
