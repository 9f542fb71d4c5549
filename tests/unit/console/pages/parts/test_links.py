"""Addresses: what a browser sends back is what was meant."""

from urllib.parse import parse_qs, unquote, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from console.pages.parts.links import address, below, decision_address, encoded, node_address

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(TEXTS)
def test_a_text_is_got_back(text: str) -> None:
    assert unquote(encoded(text), errors="strict") == text


@given(st.dictionaries(st.sampled_from(["ns", "q"]), TEXTS.filter(bool)))
def test_values_are_got_back(values: dict[str, str]) -> None:
    """Whatever they are, none ends the address or adds a value."""
    query = urlsplit(address("/decisions", values)).query

    assert {key: one for key, [one] in parse_qs(query).items()} == values


@given(TEXTS)
def test_a_segment_stays_one(text: str) -> None:
    """What a server or a browser would take apart has no address."""
    path = below("/nodes", text)

    assert path == "" or path.count("/") == 2
    assert "?" not in path
    assert "#" not in path


def test_what_cannot_be_addressed_has_no_link() -> None:
    assert below("/nodes", "..") == node_address(".") == decision_address("") == ""
    assert decision_address("a/b") == decision_address("a", "\ud800") == ""
    assert encoded("\ud800") == "%3F"
    assert decision_address("k7", "uid") == "/decisions/k7/uid"
