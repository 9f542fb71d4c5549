"""Catalogues: a file of templates and their translations for each language but English."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from console.languages.choice import Language


def catalogue(language: Language) -> Mapping[str, str]:
    """Return the translations into *language* by their English templates.

    English has none. Raises ``OSError`` and ``tomllib.TOMLDecodeError``.
    """
    if language is Language.ENGLISH:
        return MappingProxyType({})
    text = Path(__file__).with_name(f"{language}.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text)["messages"])
