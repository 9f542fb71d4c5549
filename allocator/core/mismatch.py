"""Mismatches: what msgspec says about a value of the wrong type, in the words of our problems."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from allocator.core.document import describe
from allocator.core.wording import escaped
from allocator.model.problem import Problem

_SAID: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$[^`]*)`)?", re.DOTALL)
_TYPES: Final = re.compile(r"Expected `(?P<accepted>[^`]+)`, got `(?P<found>[^`]+)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")

_WORDS: Final = {
    "str": "a text",
    "int": "a whole number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def explain_error(error: msgspec.ValidationError, document: object) -> Problem:
    """Return where *document* is not what was expected, with the value that stands there."""
    said = _SAID.fullmatch(str(error))
    what, path = (said["what"], said["path"] or "$") if said else (str(error), "$")
    if missing := _MISSING.fullmatch(what):
        return Problem(path=f"{path[2:]}.{missing['name']}", what="missing", accepted="a text")
    types = _TYPES.fullmatch(what)
    if types is None:
        return Problem(path=path[2:], what=what[:128].lower(), accepted="what Kubernetes accepts")
    place, value = _offender(document, path, types["found"])
    return Problem(path=place, what=f"{describe(value)} found", accepted=_words(types["accepted"]))


def _offender(document: object, path: str, found: str) -> tuple[str, object]:
    """Return the value that *path* means; of several, the first of the type *found*."""
    steps = [named or f"[{index}]" for named, index in _STEP.findall(path)]
    values = _values(document, steps, "")
    fallback = path[2:], None
    return next((item for item in values if _type(item[1]) == found), fallback)


def _values(node: object, steps: Sequence[str], path: str) -> Iterator[tuple[str, object]]:
    if not steps:
        yield path, node
        return
    step, rest = steps[0], steps[1:]
    if step == "[...]" and isinstance(node, dict):
        for key, value in node.items():
            yield from _values(value, rest, f'{path}["{escaped(key)}"]')
    elif step.startswith("[") and isinstance(node, list):
        index = int(step[1:-1])
        yield from _values(node[index], rest, f"{path}{step}")
    elif isinstance(node, dict):
        yield from _values(node.get(step), rest, f"{path}.{step}" if path else step)


def _type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return type(value).__name__


def _words(accepted: str) -> str:
    names = (name for name in accepted.split(" | ") if name != "null")
    return " or ".join(_WORDS.get(name, name) for name in names)
