"""Every page in a browser: axe-core's checks, widths, colours, and nothing from elsewhere."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.axe import violations
from tests.browser.chromium import Browser, Tab
from tests.integration.console.serve.test_page_routes import PATHS

# Where the suite is the gate, the first test may have to wait for Debian's package.
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
# A folder in which pictures of all pages are wanted; they are looked at by eye.
PICTURES = os.environ.get("VGPU_PICTURES", "")
LOOKS = {
    "360-light": (360, False),
    "360-dark": (360, True),
    "1440-light": (1440, False),
    "1440-dark": (1440, True),
}
# Those of which each page is seen in the other language: both widths and both colours.
OTHER_LOOKS = ("360-light", "1440-dark")


@dataclass(frozen=True, slots=True)
class Opened:
    """A browser and the address of a console."""

    browser: Browser
    site: str


@pytest.fixture
def opened(browser: Browser, site: str) -> Opened:
    return Opened(browser, site)


def assert_accessible(tab: Tab, axe: str, *, picture: str, looks: Iterable[str] = LOOKS) -> None:
    """Look at the page in *tab* in some widths and colours.

    axe-core finds nothing, and the page is as wide as the window: only tables scroll.
    """
    for look in looks:
        width, dark = LOOKS[look]
        tab.look(width=width, dark=dark)

        if PICTURES:
            tab.screenshot(Path(PICTURES, f"{picture}-{look}.png"))
        assert violations(tab, axe) == [], look
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, look
    assert tab.complaints() == []


@pytest.mark.parametrize("name", PATHS)
def test_a_page_is_accessible(opened: Opened, axe: str, name: str) -> None:
    """So it is, and it asks for nothing elsewhere."""
    tab = opened.browser.tab()
    tab.open(opened.site + PATHS[name])

    assert_accessible(tab, axe, picture=name)
    assert {address.startswith((opened.site, "data:")) for address in tab.requests()} == {True}


def test_the_table_of_nodes_fits_a_small_laptop(opened: Opened) -> None:
    """Its last columns are seen without scrolling, with a driver's version of three parts too."""
    tab = opened.browser.tab(width=1300)
    tab.open(opened.site + PATHS["nodes"])
    tab.evaluate(
        "document.querySelectorAll('td code').forEach(each => {"
        " each.textContent = each.textContent.replace('550.54.15', '580.105.08') })"
    )

    assert "580.105.08" in tab.text()
    hidden = "(each => each.scrollWidth - each.clientWidth)(document.querySelector('.scroll'))"
    assert tab.evaluate(hidden) <= 0


@pytest.mark.parametrize("path", ["/", "/namespaces", "/login"])
def test_charts_and_the_login_are_accessible(
    browser: Browser, measured_site: str, axe: str, *, path: str
) -> None:
    """So they are with a Prometheus, and before anybody is known."""
    tab = browser.tab()
    tab.open(measured_site + path)

    assert_accessible(tab, axe, picture=f"measured{path.replace('/', '-')}")


@pytest.mark.parametrize("name", PATHS)
def test_a_page_in_chinese_is_accessible(opened: Opened, axe: str, name: str) -> None:
    """So it is in the other language, whose words are shorter but do not break at blanks."""
    tab = opened.browser.tab()
    tab.open(in_chinese(opened.site + PATHS[name]))

    assert_accessible(tab, axe, picture=f"{name}-zh", looks=OTHER_LOOKS)
    assert tab.evaluate("document.documentElement.lang") == "zh-Hans"


def test_the_login_in_chinese_is_accessible(browser: Browser, measured_site: str, axe: str) -> None:
    tab = browser.tab()
    tab.open(in_chinese(f"{measured_site}/login"))

    assert_accessible(tab, axe, picture="login-zh", looks=OTHER_LOOKS)
    assert "\u767b\u5f55" in tab.text()


def in_chinese(address: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}lang=zh"


@pytest.mark.parametrize(("language", "said"), [("en", "Paused"), ("zh", "\u5df2\u6682\u505c")])
def test_the_script_speaks_the_language_of_the_page(
    browser: Browser, site: str, *, language: str, said: str
) -> None:
    """It has English of its own, and a page in another language brings the words along."""
    tab = browser.tab()
    tab.open(f"{site}/decisions?lang={language}")
    tab.evaluate("document.getElementById('pause').click()")

    assert tab.evaluate("document.getElementById('status').textContent") == said
    tab.evaluate("document.getElementById('pause').click()")


@pytest.mark.parametrize("name", PATHS)
def test_a_page_reads_the_same_without_script(browser: Browser, site: str, name: str) -> None:
    """A browser without JavaScript shows all that one with it shows, but the buttons."""
    texts = []
    for script in (True, False):
        tab = browser.tab(script=script)
        tab.open(site + PATHS[name])
        lines = [line.strip() for line in tab.text().splitlines()]
        texts.append([line for line in lines if line not in ("", "Pause refreshing", "Copy")])

    assert texts[0] == texts[1]


def test_targets_are_large_enough(browser: Browser, site: str) -> None:
    """Links outside of sentences and all buttons take 24 pixels, as WCAG 2.5.8 asks for."""
    tab = browser.tab(width=360)
    tab.open(f"{site}/decisions")

    small = tab.evaluate(
        "[...document.querySelectorAll('nav a, .language a, button, .facets a, .after a, .chosen a,"
        " select')]"
        ".filter(e => e.getClientRects().length).map(e => [e.textContent,"
        " e.getBoundingClientRect()]).filter(([, r]) => r.height < 24 || r.width < 24)"
        ".map(([text, r]) => `${text} ${r.width}x${r.height}`)"
    )
    assert small == []


def test_the_worst_names_do_not_break_a_page(browser: Browser, hostile_site: str) -> None:
    """With names of strangers no script of theirs runs, and no page is wider than its window."""
    tab = browser.tab(width=360)
    for path in ("/decisions?since=all", "/records", "/decisions/hostile5/uid-5", "/waiting"):
        tab.open(hostile_site + path)

        assert tab.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert tab.complaints() == []
        assert {a.startswith((hostile_site, "data:")) for a in tab.requests()} == {True}
