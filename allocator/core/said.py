"""Said: JSON in a pod's annotation, which whoever made the pod may have written."""

from typing import Final

import msgspec

DEEPEST: Final = 16  # levels; an assignment has four


def parse_untrusted_json(text: str) -> object:
    """Return what *text* says, ``None`` where it says nothing that can be read.

    A document may be as deep as it is long. Nothing that walks through what this returns is at
    the end of its stack.
    """
    try:
        found: object = msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return found if _is_shallow(found, DEEPEST) else None


def _is_shallow(value: object, levels: int) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(part, levels - 1) for part in parts)
