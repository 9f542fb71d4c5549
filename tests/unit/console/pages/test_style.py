"""The style sheet: its contrast, its size, and what the content policy lets through."""

import re
from itertools import product

import pytest

from console.serve.static_files import FOLDER

CSS = (FOLDER / "console.css").read_text()
SCRIPT = (FOLDER / "console.js").read_text()
TEXTS = ("text", "muted", "good", "warn", "bad", "link")
GROUNDS = ("ground", "raised")


def schemes() -> dict[str, dict[str, str]]:
    """Return the variables of each colour scheme."""
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in blocks[:2])
    return {"light": light, "dark": dark}


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme: str) -> None:
    """Each text colour has 4.5:1 on each ground, as WCAG 1.4.3 asks for."""
    colours = schemes()[scheme]

    weak = {
        (text, ground): round(contrast(colours[text], colours[ground]), 2)
        for text, ground in product(TEXTS, GROUNDS)
        if contrast(colours[text], colours[ground]) < 4.5
    }
    assert weak == {}
    assert contrast(colours["text"], colours["faint"]) >= 4.5  # text in a busy box


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_have_contrast(scheme: str) -> None:
    """The edges of inputs and the outline of the focus have 3:1, as WCAG 1.4.11 asks for."""
    colours = schemes()[scheme]

    for line, ground in product(("line", "link"), GROUNDS):
        assert contrast(colours[line], colours[ground]) >= 3, (line, ground)


def test_the_style_sheet_is_small_and_asks_nobody() -> None:
    """It is loaded by every page, and clusters are often offline."""
    assert len(CSS.encode()) <= 15_000
    assert "url(" not in CSS
    assert "@import" not in CSS


def test_focus_is_shown_and_motion_and_forced_colours_are_heeded() -> None:
    """Nobody has to guess where the keyboard is."""
    assert re.search(r":focus-visible \{ outline: 2px solid", CSS)
    assert not re.search(r"outline:\s*(none|0)", CSS)
    for feature in (
        "prefers-color-scheme: dark",
        "prefers-reduced-motion",
        "forced-colors",
        "print",
    ):
        assert feature in CSS


def test_the_script_evaluates_nothing() -> None:
    """The content policy would stop it."""
    assert not re.search(r"\beval\b|new Function|document\.write|https?://", SCRIPT)
