"""Messages: marked text of ours, which values never become."""

import json

import orjson
import pytest

from console.languages.messages import (
    NOTHING,
    PageMessage,
    inert_text,
    joined_text,
    message,
    translation,
)

CATALOGUE = {
    "Pods": "一",
    "{count:,} pods of {namespace}": "{namespace} 有 {count:,} 个",
    "{what}!": "{what}了",
}


def test_a_message_is_its_english_text() -> None:
    """Whatever is no page writes it down as any other string."""
    text = message("{count:,} pods of {namespace}", count=1234, namespace="a")

    assert text == "1,234 pods of a"
    assert json.loads(json.dumps([text])) == orjson.loads(orjson.dumps([text])) == [str(text)]
    assert type(str(text)) is str


def test_values_are_set_into_the_translation() -> None:
    text = message("{count:,} pods of {namespace}", count=1234, namespace="a")

    assert translation(text, CATALOGUE) == "a 有 1,234 个"


@pytest.mark.parametrize(
    "name",
    [
        "Pods",
        "{count}",
        "{0}",
        "{namespace.__class__}",
        "}{",
        "{{}}",
        "%s",
        "{count:,} pods of {namespace}",
        "\u202e",
        "\x00",
        "{" * 1000,
        "",
    ],
)
def test_a_name_of_a_tenant_is_neither_looked_up_nor_filled_in(name: str) -> None:
    """Be it a word of ours, or look it like a template."""
    text = message("{count:,} pods of {namespace}", count=1, namespace=name)

    assert translation(name, CATALOGUE) == name
    assert text == f"1 pods of {name}"
    assert translation(text, CATALOGUE) == f"{name} 有 1 个"


def test_a_message_within_a_message_is_translated() -> None:
    assert translation(message("{what}!", what=message("Pods")), CATALOGUE) == "一了"
    assert translation(message("{what}!", what="Pods"), CATALOGUE) == "Pods了"


def test_joined_texts_are_translated_one_by_one() -> None:
    """A template that is only joined stands in no catalogue."""
    text = joined_text(", ", ["Pods", message("Pods"), "{x}"])

    assert text == "Pods, Pods, {x}"
    assert translation(text, CATALOGUE) == "Pods, 一, {x}"
    assert joined_text(", ", ()) is NOTHING
    assert not NOTHING


def test_what_no_catalogue_has_stays_english() -> None:
    text = message("{count} slots", count=2)

    assert isinstance(text, PageMessage)
    assert translation(text, CATALOGUE) == translation(text, {}) == "2 slots"


def test_what_a_message_quotes_can_be_made_inert() -> None:
    """Also within messages that it quotes, and the translation stays."""
    inner = message("{what}!", what="a\x1b[2J")
    text = inert_text(message("{count:,} pods of {namespace}", count=1, namespace=inner))

    assert text.isprintable()
    assert translation(text, CATALOGUE) == "a\ufffd[2J了 有 1 个"
    assert inert_text("\x1f") == "\ufffd"
