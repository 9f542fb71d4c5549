"""The catalogue has each message of the pages, none besides, and the values of each."""

import re
from pathlib import Path
from string import Formatter

import pytest

from console.languages.catalogue_files import catalogue
from console.languages.choice import Language
from tests.harness.page_messages import (
    UnwrittenMessageError,
    messages_of_code,
    messages_of_template,
    written_messages,
)

CHINESE = catalogue(Language.CHINESE)
# Names that are the same in Chinese.
SAME = {"Pod", "Pods", "pod", "GPUs", "UUID", "ConfigMap", "uid {pod_uid}", "{healthy} of {gpus}"}


def placeholders(template: str) -> set[tuple[str | None, str | None]]:
    """Return the names in *template*, each with its format."""
    return {(name, spec) for _, name, spec, _ in Formatter().parse(template) if name is not None}


def test_every_message_is_translated_and_nothing_else() -> None:
    assert written_messages() - set(CHINESE) == set()
    assert set(CHINESE) - written_messages() == set()


def test_a_translation_has_the_values_of_its_template() -> None:
    """With the same formats: numbers look the same in every language."""
    wrong = {text for text, said in CHINESE.items() if placeholders(text) != placeholders(said)}

    assert wrong == set()


def test_a_translation_is_chinese() -> None:
    """It has Chinese characters or marks, but for names that have no other form."""
    same = {
        text
        for text, said in CHINESE.items()
        if not re.search("[\u3000-\u9fff\uff00-\uff5e]", said)
    }

    assert same == SAME


def test_no_translation_ends_in_what_its_template_does_not() -> None:
    """A colon before a command, and a full stop, are kept as Chinese writes them."""
    marks = {":": "\uff1a", ".": "\u3002", "?": "\uff1f"}
    wrong = {
        text
        for text, said in CHINESE.items()
        if len(text) > 1 and text[-1] in marks and said[-1] != marks[text[-1]]
    }

    assert wrong == set()


def test_english_needs_no_catalogue() -> None:
    assert catalogue(Language.ENGLISH) == {}


def test_a_message_that_is_made_while_the_program_runs_is_found() -> None:
    """No catalogue could have it."""
    file = Path("x.py")

    assert list(messages_of_code('message("a {b}", b=1)', file)) == ["a {b}"]
    assert list(messages_of_template('{{ message("a") }}', file)) == ["a"]
    with pytest.raises(UnwrittenMessageError):
        list(messages_of_code('message(f"a {b}")', file))
    with pytest.raises(UnwrittenMessageError):
        list(messages_of_template("{{ message(a) }}", file))
