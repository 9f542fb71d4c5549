"""Logging in and out, as a browser does it, and as somebody does who forges."""

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp import ClientError
from structlog.testing import capture_logs

from console.access.login_server import LARGEST_FORM, LONGEST_NEXT, login_address, safe_next
from console.access.session import FORM_COOKIE, SESSION_COOKIE
from console.store.opening import open_store
from console.store.store import RecordStore
from kube.errors import UnreachableError
from tests.fakes.kube_clock import EPOCH, FakeClock
from tests.integration.console.ports import (
    Site,
    answer,
    asked,
    bearer,
    client_tls,
    pages_port,
    play,
)

TLS = client_tls()
FORM = "application/x-www-form-urlencoded"
HIDDEN = re.compile(r'name="(csrf|next)" value="([^"]*)"')


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordStore]:
    folder: Path = tmp_path_factory.mktemp("store")
    with contextlib.closing(open_store(str(folder / "records.db"))) as opened:
        yield opened


@dataclass(slots=True)
class Browser:
    """Keeps cookies, and the hidden fields of the form that it was shown last."""

    site: Site
    cookies: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    attributes: list[str] = field(default_factory=list)
    location: str = ""
    retry_after: str = ""
    text: str = ""

    async def ask(self, path: str, fields: Mapping[str, str] | None = None, **headers: str) -> int:
        """GET a page, or POST *fields*, and return the status."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if fields is not None:
            sent.setdefault("Content-Type", FORM)
        async with asked(
            f"{self.site.url}{path}",
            tls=TLS,
            method="GET" if fields is None else "POST",
            headers=sent,
            data=b"" if fields is None else urlencode(fields).encode(),
        ) as response:
            self.text = await response.text()
            self.retry_after = response.headers.get("retry-after", "")
            self.location = response.headers.get("location", "")
            self.attributes = response.headers.getall("set-cookie", [])
            for line in self.attributes:
                for name, morsel in SimpleCookie(line).items():
                    self.cookies[name] = morsel.value
            self.hidden = dict(HIDDEN.findall(self.text)) or self.hidden
            return response.status

    async def log_in(self, who: str, **headers: str) -> int:
        await self.ask("/login")
        return await self.ask("/login", {**self.hidden, "token": who}, **headers)

    def logins(self) -> dict[str, int]:
        """Return how many logins were counted, by what became of them."""
        lines = self.site.metrics.text()[1].decode().splitlines()
        found = [line for line in lines if line.startswith("vgpu_console_logins_total")]
        counts = {line.split('"')[1]: int(float(line.split()[-1])) for line in found}
        return {result: number for result, number in counts.items() if number}

    def seconds_of(self, name: str) -> int:
        """Return for how long the cookie that was set last is kept."""
        [line] = [line for line in self.attributes if line.startswith(f"{name}=")]
        return int(SimpleCookie(line)[name]["max-age"])

    async def sees(self) -> int:
        """Return the status of data that only viewers get."""
        return await self.ask("/api/v1/overview")


@contextlib.asynccontextmanager
async def console(store: RecordStore, clock: FakeClock | None = None) -> AsyncIterator[Browser]:
    """Yield a browser at a console that knows amy."""
    async with pages_port(store, clock=(clock or FakeClock()).clock()) as site:
        site.reviews.add_user("t-amy", "amy", ("get", "pods", "a"))
        yield Browser(site)


def test_a_token_becomes_a_session(store: RecordStore) -> None:
    """Until somebody logs out; no copy of the cookie is of use then."""

    async def scenario() -> None:
        async with console(store) as browser:
            assert await browser.sees() == 401
            assert await browser.log_in("t-amy") == 303
            assert browser.location == "/"
            assert browser.seconds_of(SESSION_COOKIE) == 8 * 3600
            assert browser.seconds_of(FORM_COOKIE) == 0
            assert await browser.sees() == 200
            copy = dict(browser.cookies)

            assert await browser.ask("/logout") == 200
            assert "<bdi>amy</bdi>" in browser.text
            assert await browser.ask("/logout", browser.hidden) == 303
            assert browser.location == "/login"
            assert browser.cookies[SESSION_COOKIE] == ""
            assert browser.seconds_of(SESSION_COOKIE) == 0
            assert await browser.sees() == 401
            browser.cookies = copy
            assert await browser.sees() == 401
            assert await browser.ask("/logout") == 303

    play(scenario)


def test_cookies_are_kept_from_scripts_and_other_sites(store: RecordStore) -> None:
    """And from plain HTTP, and subdomains."""

    async def scenario() -> None:
        async with console(store) as browser:
            await browser.log_in("t-amy")
            assert len(browser.attributes) == 2
            for line in browser.attributes:
                for part in ("HttpOnly", "Secure", "SameSite=strict", "Path=/", "Max-Age="):
                    assert part.lower() in line.lower()
                assert "domain" not in line.lower()
                assert line.startswith("__Host-")

    play(scenario)


def test_a_session_ends_by_itself(store: RecordStore) -> None:
    """After eight hours, whatever the browser keeps."""
    clock = FakeClock()

    async def scenario() -> None:
        async with console(store, clock) as browser:
            await browser.log_in("t-amy")
            clock.now += 8 * 3600 - 1
            assert await browser.sees() == 200
            clock.now += 1
            assert await browser.sees() == 401

    play(scenario)


def test_a_session_ends_with_its_token(store: RecordStore) -> None:
    """As far as the token says when it ends."""
    clock = FakeClock()
    ends = int((EPOCH.timestamp()) + clock.now + 60)
    body = base64.urlsafe_b64encode(json.dumps({"exp": ends}).encode()).decode().rstrip("=")

    async def scenario() -> None:
        async with console(store, clock) as browser:
            browser.site.reviews.add_user(f"e30.{body}.x", "amy")
            assert await browser.log_in(f"e30.{body}.x") == 303
            assert browser.seconds_of(SESSION_COOKIE) == 60
            assert await browser.sees() == 200
            clock.now += 61
            assert await browser.sees() == 401
            assert await browser.log_in(f"e30.{body}.x") == 303
            assert browser.seconds_of(SESSION_COOKIE) == 0
            assert await browser.sees() == 401

    play(scenario)


def test_an_unknown_token_is_refused(store: RecordStore) -> None:
    """The form says so, and does not repeat the token."""

    async def scenario() -> None:
        async with console(store) as browser:
            assert await browser.log_in("t-unknown-<b>") == 401
            assert "does not know this token" in browser.text
            assert "t-unknown" not in browser.text
            assert SESSION_COOKIE not in browser.cookies

    play(scenario)


def test_whoever_is_known_is_not_slowed_by_others(store: RecordStore) -> None:
    """All who come through a port-forward have the same address."""

    async def scenario() -> None:
        async with console(store) as browser:
            url, known = f"{browser.site.url}/api/v1/overview", bearer("t-amy")
            assert (await answer(url, tls=TLS, headers=known))[0] == 200
            for number in range(11):
                await browser.log_in(f"guess-{number}")
            assert (await answer(url, tls=TLS, headers=bearer("guess-99")))[0] == 429
            assert (await answer(url, tls=TLS, headers=known))[0] == 200

    play(scenario)


def test_guessing_is_slow(store: RecordStore) -> None:
    """After ten failures even a good token must wait."""
    clock = FakeClock()

    async def scenario() -> None:
        async with console(store, clock) as browser:
            for number in range(10):
                assert await browser.log_in(f"guess-{number}") == 401
            asked_before = len(browser.site.reviews.asked)
            assert await browser.log_in("guess-10") == 429
            assert "Too many failed logins; try again in" in browser.text
            assert await browser.log_in("t-amy") == 429
            assert browser.retry_after == "7"  # whole seconds, so one more than the six
            assert len(browser.site.reviews.asked) == asked_before
            assert browser.logins() == {"refused": 10, "throttled": 2}
            assert SESSION_COOKIE not in browser.cookies

    play(scenario)


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"csrf": ""}, {}),
        ({"csrf": "forged"}, {}),
        ({"csrf": "é"}, {}),
        ({}, {"Sec_Fetch_Site": "cross-site"}),
        ({}, {"Sec_Fetch_Site": "same-site"}),
        ({}, {"Origin": "https://evil.example"}),
        ({}, {"Origin": "null"}),
        ({}, {"Content_Type": "text/plain"}),
        ({}, {"Content_Type": "application/json"}),
        ({}, {"Content_Type": "multipart/form-data; boundary=x"}),
    ],
)
def test_a_form_of_another_site_logs_nobody_in(
    store: RecordStore, fields: dict[str, str], headers: dict[str, str]
) -> None:
    """Whoever is logged in unawares would look at somebody else's view."""

    async def scenario() -> None:
        async with console(store) as browser:
            await browser.ask("/login")
            form = {**browser.hidden, "token": "t-amy", **fields}
            assert await browser.ask("/login", form, **headers) == 403
            assert await browser.sees() == 401
            assert not browser.site.reviews.asked

    play(scenario)


@pytest.mark.parametrize("site", ["same-origin", "none", ""])
def test_a_form_of_ours_says_where_it_is_from(store: RecordStore, site: str) -> None:
    """Browsers name the origin of each form that is posted."""

    async def scenario() -> None:
        async with console(store) as browser:
            headers = {"Origin": browser.site.url, "Sec_Fetch_Site": site}
            assert await browser.log_in("t-amy", **headers) == 303
            assert await browser.sees() == 200

    play(scenario)


def test_a_form_needs_its_own_cookie(store: RecordStore) -> None:
    """Of this browser, and of this hour."""
    clock = FakeClock()

    async def scenario() -> None:
        async with console(store, clock) as browser:
            await browser.ask("/login")
            form = {**browser.hidden, "token": "t-amy"}
            mine = browser.cookies.pop(FORM_COOKIE)
            assert await browser.ask("/login", form) == 403
            await browser.ask("/login")
            assert await browser.ask("/login", form) == 403
            clock.now += 3601
            browser.cookies[FORM_COOKIE] = mine
            assert await browser.ask("/login", form) == 403

    play(scenario)


@pytest.mark.parametrize("csrf", ["", "forged"])
def test_a_form_of_another_site_logs_nobody_out(store: RecordStore, csrf: str) -> None:
    """Nor does one of ours for another session."""

    async def scenario() -> None:
        async with console(store) as browser:
            await browser.log_in("t-amy")
            assert await browser.ask("/logout", {"csrf": csrf}) == 403
            await browser.ask("/logout")
            assert await browser.ask("/logout", browser.hidden, Origin="https://x.example") == 403
            assert await browser.sees() == 200

    play(scenario)


def test_who_is_not_logged_in_may_log_out(store: RecordStore) -> None:
    """The session may have ended a moment ago."""

    async def scenario() -> None:
        async with console(store) as browser:
            assert await browser.ask("/logout", {}) == 303
            assert browser.location == "/login"

    play(scenario)


def test_what_is_no_form_logs_nobody_out(store: RecordStore) -> None:
    """It carries no token."""

    async def scenario() -> None:
        async with console(store) as browser:
            await browser.log_in("t-amy")
            await browser.ask("/logout")
            hidden = browser.hidden
            assert await browser.ask("/logout", hidden, Content_Type="text/plain") == 403
            assert await browser.sees() == 200

    play(scenario)


def test_logins_are_counted_and_logged(store: RecordStore) -> None:
    """With a name that does nothing to a terminal and does not fill the log."""

    async def scenario() -> None:
        async with console(store) as browser:
            browser.site.reviews.add_user("t-long", "\x1b[31m" + "n" * 500)
            for token in ("t-amy", "t-long", "t-unknown"):
                await browser.log_in(token)
            assert browser.logins() == {"accepted": 2, "refused": 1}
            browser.site.reviews.error = UnreachableError("refused", sent=False)
            await browser.log_in("t-late")

    with capture_logs() as logs:
        play(scenario)
    users = [line["user"] for line in logs if line["event"] == "logged in"]
    assert users[0] == "amy"
    assert len(users[1]) == 253
    assert users[1].isprintable()
    assert [line["log_level"] for line in logs if line["event"] == "login not reviewed"] == [
        "warning"
    ]


def test_who_must_log_in_comes_back_to_where_they_were(store: RecordStore) -> None:
    """With the search that they had."""

    async def scenario() -> None:
        async with console(store) as browser:
            assert await browser.ask("/login?next=/decisions%3Fns%3Da") == 200
            form = {**browser.hidden, "token": "t-amy"}
            assert await browser.ask("/login", form) == 303
            assert browser.location == "/decisions?ns=a"

    play(scenario)


def test_no_login_leads_to_another_site(store: RecordStore) -> None:
    """Whatever the form said."""

    async def scenario() -> None:
        async with console(store) as browser:
            await browser.ask("/login?next=https://evil.example/")
            assert browser.hidden["next"] == "/"
            form = {**browser.hidden, "token": "t-amy", "next": "//evil.example"}
            assert await browser.ask("/login", form) == 303
            assert browser.location == "/"

    play(scenario)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "decisions",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/a\r\nSet-Cookie: x=y",
        "/a\0",
        "/é",
        "/a\\b",
        "/a?b=\\",
        "/" + "a" * LONGEST_NEXT,
    ],
)
def test_only_our_own_addresses_follow(text: str) -> None:
    """Others become the first page."""
    assert safe_next(text) == "/"


def test_an_address_of_ours_follows() -> None:
    """With its query; the first page needs no mention."""
    assert safe_next("/decisions?pod=a%20b") == "/decisions?pod=a%20b"
    assert safe_next("/".ljust(LONGEST_NEXT, "a")) == "/".ljust(LONGEST_NEXT, "a")
    assert login_address("/", "") == "/login"
    assert login_address("/pods", "ns=a") == "/login?next=%2Fpods%3Fns%3Da"


@pytest.mark.parametrize(
    "body",
    [
        b"token=" + b"a" * (LARGEST_FORM + 1),
        b"&".join(b"a%d=1" % number for number in range(1000)),
        b"token=a&token=b",
        b"token=%ff",
        b"\xff",
        b"",
    ],
    ids=range(6),
)
def test_a_form_is_small(store: RecordStore, body: bytes) -> None:
    """What is no form of ours is answered, and nothing of it kept."""

    async def scenario() -> None:
        async with console(store) as browser:
            url, headers = f"{browser.site.url}/login", {"Content-Type": FORM}
            with contextlib.suppress(OSError, ClientError):
                found = await answer(url, tls=TLS, method="POST", headers=headers, data=body)
                assert found[0] == 403
            assert await browser.log_in("t-amy") == 303

    play(scenario)


def test_while_tokens_cannot_be_reviewed_nobody_logs_in(store: RecordStore) -> None:
    """The form says whose fault it is."""

    async def scenario() -> None:
        async with console(store) as browser:
            browser.site.reviews.error = UnreachableError("refused", sent=False)
            assert await browser.log_in("t-amy") == 503
            assert "The API server cannot be asked" in browser.text
            browser.site.reviews.error = None
            assert await browser.log_in("t-amy") == 303

    play(scenario)


def test_who_has_too_many_groups_is_told(store: RecordStore) -> None:
    """Rather than logged in with some of them."""

    async def scenario() -> None:
        async with console(store) as browser:
            groups = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(300)]
            browser.site.reviews.add_user("t-many", "many", groups=groups)
            assert await browser.log_in("t-many") == 403
            assert "300 groups do not fit" in browser.text
            assert browser.logins() == {"refused": 1}
            assert SESSION_COOKIE not in browser.cookies

    play(scenario)


def test_pages_may_load_nothing_from_elsewhere(store: RecordStore) -> None:
    """Nor be shown in a frame, kept in a cache, or guessed to be something else."""

    async def scenario() -> None:
        async with console(store) as browser:
            for path in ("/login", "/api/v1/overview", "/nothing"):
                async with asked(f"{browser.site.url}{path}", tls=TLS) as response:
                    policy = response.headers["content-security-policy"]
                    assert "default-src 'none'" in policy
                    assert "frame-ancestors 'none'" in policy
                    assert "unsafe" not in policy
                    assert response.headers["x-content-type-options"] == "nosniff"
                    assert response.headers["cache-control"] == "no-store"

    play(scenario)
