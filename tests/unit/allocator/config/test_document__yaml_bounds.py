"""YAML's anchors are read; what they stand for is bounded before anything is built."""

import time

import orjson
import pytest

from allocator.config.document import MAX_EXPANDED, DocumentError, read_document


def chain(first: str, step: str, length: int) -> str:
    """Return *length* anchors, each of them made of the one before it."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{i}: &a{i} {step.replace('@', f'*a{i - 1}')}" for i in range(1, length)]
    return "\n".join(lines)


def test_an_alias_is_what_its_anchor_is() -> None:
    """Also where one mapping is merged into another, and for single values."""
    text = "x: &a {m: 1, n: 1}\ny: {<<: *a, n: 2}\nz: [*a]\nv: &c 3\nw: *c\n"

    assert read_document(text) == {
        "x": {"m": 1, "n": 1},
        "y": {"m": 1, "n": 2},
        "z": [{"m": 1, "n": 1}],
        "v": 3,
        "w": 3,
    }


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(chain("[lol, lol]", "[@, @, @, @, @, @, @, @, @]", 10), id="billion-laughs"),
        pytest.param(chain("{x: lol}", "{a: @, b: @}", 40), id="mappings"),
        pytest.param(chain("[1]", "[@]", 60), id="deeper-than-it-looks"),
        pytest.param(chain("{k: v}", "{<<: [@, @]}", 40), id="merged"),
        pytest.param("a: &a [*a]", id="itself"),
        pytest.param("a: &a {b: {c: *a}}", id="itself-further-in"),
        pytest.param("a: &a {<<: *a}", id="merged-into-itself"),
        pytest.param("a: &a 1\nb: &a [*a]", id="a-name-used-again-inside"),
        pytest.param("a: *x", id="unknown"),
        pytest.param(f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 2000)}]", id="long-text"),
        pytest.param(
            f"a: &a {{{', '.join(f'k{i}: v' for i in range(1000))}}}\n"
            f"b: {{<<: [{', '.join(['*a'] * 5000)}]}}",
            id="merged-often",
        ),
        pytest.param("&a [1, 2]: x\n? *a\n: y", id="key"),
    ],
)
def test_hostile_aliases_are_refused_at_once(text: str) -> None:
    """One sentence, and no time or memory spent on what they stand for."""
    began = time.process_time()

    with pytest.raises(DocumentError):
        read_document(text)

    assert time.process_time() - began < 1


@pytest.mark.parametrize(("times", "fits"), [(1900, True), (2200, False)])
def test_the_bound_is_on_what_is_written_out(times: int, *, fits: bool) -> None:
    """As many aliases as come to two mebibytes."""
    text = f"a: &a {'x' * 1000}\nb: [{', '.join(['*a'] * times)}]"

    if fits:
        assert len(orjson.dumps(read_document(text))) < MAX_EXPANDED
    else:
        with pytest.raises(DocumentError, match="with its aliases written out, over 2097152 bytes"):
            read_document(text)
