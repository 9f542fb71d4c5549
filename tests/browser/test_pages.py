"""Every page in a browser: axe-core's checks, widths, colours, and nothing from elsewhere."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.axe import violations
from tests.browser.chromium import Browser
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


@dataclass(frozen=True, slots=True)
class Opened:
    """A browser and the address of a console."""

    browser: Browser
    site: str


@pytest.fixture
def opened(browser: Browser, site: str) -> Opened:
    return Opened(browser, site)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("look", LOOKS)
def test_a_page_is_accessible(opened: Opened, axe: str, *, name: str, look: str) -> None:
    """axe-core finds nothing, and the page is as wide as the window: only tables scroll."""
    width, dark = LOOKS[look]
    tab = opened.browser.tab(width=width, dark=dark)
    tab.open(opened.site + PATHS[name])

    if PICTURES:
        tab.screenshot(Path(PICTURES, f"{name}-{look}.png"))
    assert violations(tab, axe) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints() == []
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
@pytest.mark.parametrize("look", LOOKS)
def test_charts_and_the_login_are_accessible(
    browser: Browser, measured_site: str, axe: str, *, path: str, look: str
) -> None:
    """So they are with a Prometheus, and before anybody is known."""
    width, dark = LOOKS[look]
    tab = browser.tab(width=width, dark=dark)
    tab.open(measured_site + path)

    if PICTURES:
        tab.screenshot(Path(PICTURES, f"measured{path.replace('/', '-')}-{look}.png"))
    assert violations(tab, axe) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints() == []


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("look", ["360-light", "1440-dark"])
def test_a_page_in_chinese_is_accessible(opened: Opened, axe: str, *, name: str, look: str) -> None:
    """So it is in the other language, whose words are shorter but do not break at blanks."""
    width, dark = LOOKS[look]
    tab = opened.browser.tab(width=width, dark=dark)
    tab.open(in_chinese(opened.site + PATHS[name]))

    if PICTURES:
        tab.screenshot(Path(PICTURES, f"{name}-zh-{look}.png"))
    assert violations(tab, axe) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("document.documentElement.lang") == "zh-Hans"
    assert tab.complaints() == []


@pytest.mark.parametrize("look", ["360-light", "1440-dark"])
def test_the_login_in_chinese_is_accessible(
    browser: Browser, measured_site: str, axe: str, *, look: str
) -> None:
    width, dark = LOOKS[look]
    tab = browser.tab(width=width, dark=dark)
    tab.open(in_chinese(f"{measured_site}/login"))

    if PICTURES:
        tab.screenshot(Path(PICTURES, f"login-zh-{look}.png"))
    assert violations(tab, axe) == []
    assert "\u767b\u5f55" in tab.text()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


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
