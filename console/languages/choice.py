"""The language of a page: that of its address, or else the one that a browser prefers."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

KEY: Final = "lang"  # the value of an address that names a language
_LONGEST: Final = 1024  # characters of a header that are read
_MOST: Final = 32  # languages of a header that are read
_RANGE: Final = re.compile(r"([a-z]{1,8}(?:-[a-z0-9]{1,8})*|\*)(?:\s*;\s*q=([01](?:\.\d{0,3})?))?")


class Language(StrEnum):
    """A language of the pages, as an address names it."""

    ENGLISH = "en"
    CHINESE = "zh"

    @property
    def tag(self) -> str:
        """Return its name in HTML (BCP 47)."""
        return "zh-Hans" if self is Language.CHINESE else "en"

    @property
    def own_name(self) -> str:
        """Return what its speakers call it."""
        return "中文" if self is Language.CHINESE else "English"


@dataclass(frozen=True, slots=True)
class LanguageChoice:
    """A language; the address names it, or the browser prefers it."""

    language: Language = Language.ENGLISH
    named: bool = False

    @property
    def translates(self) -> bool:
        """Say whether pages are in another language than the one they are written in."""
        return self.language is not Language.ENGLISH

    @property
    def other(self) -> Language:
        """Return the language that a page offers to change to."""
        english = self.language is Language.ENGLISH
        return Language.CHINESE if english else Language.ENGLISH

    def kept(self, href: str) -> str:
        """Return the address *href* of a page of ours; it names the language where this one did."""
        return with_language(href, self.language) if self.named else href


BROWSERS_ENGLISH: Final = LanguageChoice()
CHOICES: Final = tuple(
    LanguageChoice(language, named=named) for language in Language for named in (False, True)
)


def language_choice(named: str, header: str) -> LanguageChoice:
    """Return the language that an address names, or the best one of ``Accept-Language``.

    What is not understood is passed over, and English is what is left: no header is an error.
    """
    if named in tuple(Language):
        return LanguageChoice(Language(named), named=True)
    return LanguageChoice(preferred_language(header))


def named_language(query: str) -> str:
    """Return what the query of an address names as its language; the last of several."""
    values = (pair.partition("=") for pair in query.split("&"))
    return next((value for key, _, value in reversed(list(values)) if key == KEY), "")


def preferred_language(header: str) -> Language:
    """Return the language of ours with the largest weight, the earlier one of equals."""
    weights: dict[Language, float] = {}
    for part in header[:_LONGEST].lower().split(",")[:_MOST]:
        match = _RANGE.fullmatch(part.strip())
        language = None if match is None else _language_of(match[1])
        if match is not None and language is not None:
            weight = min(1.0, float(match[2] or 1))
            weights[language] = max(weight, weights.get(language, 0))
    accepted = {language: weight for language, weight in weights.items() if weight > 0}
    return max(accepted, key=lambda one: accepted[one], default=Language.ENGLISH)


def _language_of(language_range: str) -> Language | None:
    """Return the language of ours that a range such as ``zh-CN`` is about."""
    primary = language_range.partition("-")[0]
    if primary == "*":
        return Language.ENGLISH
    return Language(primary) if primary in tuple(Language) else None


def with_language(href: str, language: Language) -> str:
    """Return the address *href* with *language*; a fragment alone stays on its page as it is."""
    if not href or href.startswith("#"):
        return href
    address, hash_sign, fragment = href.partition("#")
    path, _, query = address.partition("?")
    pairs = [pair for pair in query.split("&") if pair and pair.partition("=")[0] != KEY]
    return f"{path}?{'&'.join([*pairs, f'{KEY}={language}'])}{hash_sign}{fragment}"
