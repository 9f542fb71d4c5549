"""What a stranger wrote cannot break out of a sentence of ours."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.untrusted import (
    LONGEST,
    all_shown,
    escaped,
    inert,
    inert_lines,
    is_plain,
    is_shown,
    plain_json,
    quote,
    zoned_time,
)
from tests.builders.hostile_text import HOSTILE_TEXTS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("main", '"main"', id="plain"),
        pytest.param("a\nb", r'"a\nb"', id="newline"),
        pytest.param("\x1b[31m", r'"\x1b[31m"', id="terminal-escape"),
        pytest.param('a"b\\', r'"a\"b\\"', id="quote-and-backslash"),
        pytest.param("abc\u202e", r'"abc\u202e"', id="direction-override"),
        pytest.param("\ud800", r'"\ud800"', id="lone-surrogate"),
        pytest.param("显存", '"显存"', id="another-script"),
        pytest.param("", '""', id="empty"),
    ],
)
def test_only_printable_text_is_shown(text: str, expected: str) -> None:
    """Whatever is not printable is escaped."""
    assert quote(text) == expected


@pytest.mark.parametrize("length", [0, 99, 100, 101, 1000])
def test_a_long_text_is_no_plainer_than_a_short_one(length: int) -> None:
    """Long texts are searched another way; what is plain is the same, for each character."""
    around = "a" * length
    for number in (*range(0x200), 0x202E, 0x2800, 0xD800, 0xFFFD):
        assert is_plain(around + chr(number)) == is_plain(chr(number))
    assert [n for n in range(0x80) if is_plain(chr(n))] == list(range(0x20, 0x7F))


@pytest.mark.parametrize(
    "text", ["x" * 1000, "\n" * 1000, 10**500], ids=["long", "escapes", "number"]
)
def test_what_is_shown_is_short(text: str | int) -> None:
    """A megabyte in a name does not become a megabyte in a log."""
    assert len(escaped(text)) == LONGEST


HOSTILE = pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)


@HOSTILE
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    """As many characters, each of which a reader sees; what is plain stays."""
    shown = inert(f"a{text}显存")

    assert is_plain(shown)
    assert (len(shown), shown[0], shown[-2:]) == (len(text) + 3, "a", "显存")
    assert inert(shown) == shown
    assert is_plain(escaped(text))


@given(st.lists(st.text(max_size=9) | st.sampled_from([*HOSTILE_TEXTS.values(), "a\x7f"])))
def test_what_needs_no_escape_is_known(texts: list[str]) -> None:
    """Of one text, and of several at once."""
    for text in texts:
        assert is_shown(text, 9) == (escaped(text, 9) == text)
    assert list(all_shown(texts, 9)) == [escaped(text, 9) for text in texts]


@pytest.mark.parametrize("before", [1, 200])
@pytest.mark.parametrize("number", range(0x100))
def test_each_character_needs_an_escape_or_not(number: int, before: int) -> None:
    """In short texts and in long ones, which are looked through otherwise."""
    character = chr(number)
    text = f"{'a' * before}{character}"
    shown = is_plain(character) and character not in '"\\'

    assert is_shown(text, 300) == shown
    assert (escaped(text, 300) == text) == shown
    assert (list(all_shown([text, "b"], 300)) == [text, "b"]) == shown


@HOSTILE
def test_lines_stay_lines(text: str) -> None:
    """A message of several lines is not folded into one."""
    first, *_, last = inert_lines(f"first\n{text}\nlast").split("\n")

    assert (first, last) == ("first", "last")


@HOSTILE
@pytest.mark.parametrize("indent", [None, 2])
def test_escaped_json_means_the_same(text: str, indent: int | None) -> None:
    """Also in names, and for characters that JSON writes as two halves."""
    value = {text: [text, "显存 \U000e0001"]}
    written = json.dumps(value, ensure_ascii=False, indent=indent)
    shown = plain_json(written)

    assert all(map(is_plain, shown.split("\n")))
    assert json.loads(shown) == value


@pytest.mark.parametrize("character", ["\u034f", "\u115f", "\u2800", "\u3164", "\uffa0"])
def test_what_nobody_sees_is_shown(character: str) -> None:
    """Unicode calls fillers printable, and two names would look alike."""
    assert inert(f"a{character}b") == "a�b"
    assert quote(f"a{character}b") == f'"a\\u{ord(character):04x}b"'


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-21T12:00:00Z", datetime(2026, 11, 21, 12, tzinfo=UTC)),
        ("2026-11-21T12:00:00.5Z", datetime(2026, 11, 21, 12, 0, 0, 500_000, tzinfo=UTC)),
        (
            "2026-11-21T12:00:00+08:00",
            datetime(2026, 11, 21, 12, tzinfo=timezone(timedelta(hours=8))),
        ),
    ],
)
def test_a_time_with_a_zone_is_read(text: str, time: datetime) -> None:
    """As the API server and the runtimes write it."""
    assert zoned_time(text) == time


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "2026-11-21T12:00:00",
        "2026-11-21",
        "10000-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-11-21T12:00:00+24:00",
        "1764072000",
        "٢٠٢٦-11-21T12:00:00Z",
        "2026-11-21T12:00:00Z\x1b[31m",
        "\ud800",
        "9" * 5000,
    ],
)
def test_what_states_no_time_is_none(text: str | None) -> None:
    """A time without a zone means another moment to each reader."""
    assert zoned_time(text) is None
