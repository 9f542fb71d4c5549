"""Messages: text of ours on pages, marked so that it can be said in another language.

A message is its English text, so whatever is no page (JSON, CSV, a log) needs no language. Values
are set in, and are never looked up: a namespace with the name "Pods" stays "Pods".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from allocator.model.untrusted import inert


class PageMessage(str):
    """A text of ours: in English, with the template and the values that it was made from."""

    __slots__ = ("template", "values")
    template: str
    values: Mapping[str, object]

    def __repr__(self) -> str:
        """Return the text with the mark that it bears."""
        return f"message({str(self)!r})"


def message(template: str, /, **values: object) -> PageMessage:
    """Return *template* with *values* in the place of its ``{names}``.

    The template is written where this is called: a test reads all of them, and wants each in every
    catalogue. Values may be messages themselves.
    """
    made = PageMessage(template.format(**values) if values else template)
    made.template, made.values = template, values
    return made


def joined_text(separator: str, texts: Iterable[str]) -> PageMessage:
    """Return *texts* behind each other; each that is a message can still be translated."""
    parts: Sequence[str] = tuple(texts)
    if not parts:
        return NOTHING
    values = {f"part{number}": part for number, part in enumerate(parts)}
    return _unlisted(separator.join(f"{{{name}}}" for name in values), values)


def inert_text(text: str) -> PageMessage:
    """Return *text* with its values escaped, as of a message that quotes what others wrote."""
    if not isinstance(text, PageMessage):
        return joined_text("", (inert(text),))
    values = {
        name: inert_text(value) if isinstance(value, str) else value
        for name, value in text.values.items()
    }
    return _unlisted(text.template, values)


def _unlisted(template: str, values: Mapping[str, object]) -> PageMessage:
    """Return a message whose template has no words, or was listed where it was written first."""
    return message(template, **values)


def translation(text: str, catalogue: Mapping[str, str]) -> str:
    """Return a message in the language of *catalogue*, and any other text as it is."""
    if not isinstance(text, PageMessage):
        return text
    template = catalogue.get(text.template, text.template)
    if not text.values:
        return template
    values = {
        name: translation(value, catalogue) if isinstance(value, str) else value
        for name, value in text.values.items()
    }
    return template.format(**values)


NOTHING: Final = message("")
