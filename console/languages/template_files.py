"""Templates that are rendered in one language: everything is escaped, nothing hides or turns text.

This is the only place where messages are translated. Whatever else a template writes down, such as
the names that tenants chose, is no message and stays as it is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from allocator.model.untrusted import inert_lines
from console.languages.catalogue_files import catalogue
from console.languages.choice import LanguageChoice
from console.languages.messages import PageMessage, message, translation

FOLDER: Final = Path(__file__).parents[1] / "templates"


def language_environment(choice: LanguageChoice) -> Environment:
    """Return the templates for the language of *choice*; raises ``OSError``.

    In a template ``message`` marks a text of ours, and ``link`` an address of ours, which keeps the
    language where the address of the page names it.
    """
    environment = Environment(
        loader=FileSystemLoader(FOLDER, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_Written(catalogue(choice.language)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"message": message, "link": choice.kept, "language": choice}
    return environment


class _Written:
    """What templates write for a value: text, in one language."""

    def __init__(self, translations: Mapping[str, str]) -> None:
        self._translations = translations

    def __call__(self, value: object) -> object:
        """Return *value* as text; what would turn text round or hide in it is replaced.

        Only strings and messages are values; the product of a macro is markup, escaped already.
        """
        if isinstance(value, PageMessage):
            return inert_lines(translation(value, self._translations))
        return inert_lines(value) if type(value) is str else value
