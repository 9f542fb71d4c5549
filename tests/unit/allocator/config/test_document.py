"""Documents of any content end in a value or in one sentence."""

import pytest

from allocator.config.document import MAX_BYTES, DocumentError, DocumentTable, Notes, read_document


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: 1\nb: [x, y]\n", id="yaml"),
        pytest.param('{"a": 1, "b": ["x", "y"]}', id="json"),
        pytest.param('{\n\t"a": 1,\n\t"b": ["x", "y"]\n}', id="json-with-tabs"),
        pytest.param("{a: 1, b: [x, y]}", id="flow"),
        pytest.param("{a: &n 1, b: [x, y], <<: {a: *n}}", id="aliases"),
    ],
)
def test_yaml_and_json_are_read(text: str) -> None:
    """Both ways to write a mapping give the same value."""
    assert read_document(text) == {"a": 1, "b": ["x", "y"]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("a: *x\n", "no complete anchor", id="anchor"),
        pytest.param("a: " + "[" * 40 + "]" * 40, "nested", id="deep"),
        pytest.param("[" * 100_000, "nested", id="very-deep"),
        pytest.param('{"a":' * 100_000, ".", id="very-deep-json"),
        pytest.param("a" * (MAX_BYTES + 1), "bytes", id="large"),
        pytest.param("a: [", ".", id="broken"),
        pytest.param("--- a\n--- b\n", "single document", id="two-documents"),
        pytest.param("a: !!python/name:os.system ''\n", "tag", id="tag"),
        pytest.param("a: 2026-13-45\n", ".", id="no-such-day"),
        pytest.param("a: " + "9" * 5000, ".", id="long-number"),
        pytest.param("a: \ud800", ".", id="no-text"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, why: str) -> None:
    """Nothing but DocumentError comes out, in one line."""
    with pytest.raises(DocumentError, match=why) as refused:
        read_document(text)

    assert "\n" not in str(refused.value)


def test_wrong_values_are_noted_with_their_place() -> None:
    """A note holds the path, what was found and what would be accepted."""
    notes = Notes()
    table = DocumentTable.of({"n": -1, "x": "often", "t": [1], "l": "a"}, "top", notes)

    table.integer("n", 1, low=0, high=9)
    table.number("x", 1.0)
    table.text("t")
    table.texts("l")
    table.integer("absent", None, low=0, high=9)

    assert [str(problem) for problem in notes.errors] == [
        "top.n: -1 found; accepted: a whole number from 0 to 9",
        'top.x: "often" found; accepted: a number above 0',
        "top.t: a list found; accepted: a string",
        'top.l: "a" found; accepted: a list',
        "top.absent: missing; accepted: a whole number from 0 to 9",
    ]


def test_right_values_are_read() -> None:
    """Nothing is noted, and what Go takes for absent has the default."""
    notes = Notes()
    table = DocumentTable.of({"n": 3, "x": 2, "t": "a", "empty": "", "null": None}, "", notes)

    read = (
        table.integer("n", None, low=0, high=9),
        table.number("x", 1.0),
        table.text("t"),
        table.text("empty", "default"),
        table.integer("null", 7, low=0, high=9),
    )

    assert read == (3, 2.0, "a", "default", 7)
    assert notes.errors == []


@pytest.mark.parametrize("value", [True, 1.5, 2**70, float("nan")], ids=str)
def test_integers_are_whole_and_bounded(value: object) -> None:
    """A truth value, a fraction or a huge number is no count."""
    notes = Notes()

    DocumentTable.of({"n": value}, "", notes).integer("n", 1, low=0, high=9)

    assert len(notes.errors) == 1
