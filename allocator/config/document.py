"""Bounded YAML/JSON that people wrote; every defect noted with its path."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

import msgspec
import yaml

from allocator.model.problem import Problem
from allocator.model.untrusted import escaped, quote

MAX_BYTES: Final = 512 * 1024  # half of what a ConfigMap can hold
MAX_DEPTH: Final = 32
# Bytes of scalars, and one for each value. Nine lines of aliases of aliases stand for gigabytes.
MAX_EXPANDED: Final = 2 * 1024 * 1024
_DIGITS: Final = 10**18  # Python refuses to print an integer of thousands of digits


class BoundsError(ValueError):
    """The text would be too deep or too large; the message says which."""


@dataclass(slots=True)
class _Extent:
    """What a value amounts to, with its aliases written out."""

    anchor: str | None = None
    size: int = 1
    depth: int = 0  # of the collections in it


@dataclass(slots=True)
class _Measure:
    """The collections that are open, and the extent of each anchor that is complete."""

    most: int
    open: list[_Extent] = field(default_factory=lambda: [_Extent()])
    anchors: dict[str, _Extent] = field(default_factory=dict)

    def add(self, extent: _Extent) -> None:
        """Count a complete value in the collection around it."""
        parent = self.open[-1]
        parent.size += extent.size
        parent.depth = max(parent.depth, extent.depth)
        if extent.anchor is not None:
            self.anchors[extent.anchor] = extent
        if len(self.open) - 1 + extent.depth > MAX_DEPTH:
            raise BoundsError(f"nested more than {MAX_DEPTH} levels deep")
        if parent.size > self.most:
            raise BoundsError(f"with its aliases written out, over {self.most} bytes")

    def begin(self, anchor: str | None) -> None:
        """Open a collection; its anchor means nothing until it is complete."""
        if anchor is not None:
            self.anchors.pop(anchor, None)
        self.open.append(_Extent(anchor))
        if len(self.open) - 1 > MAX_DEPTH:
            raise BoundsError(f"nested more than {MAX_DEPTH} levels deep")

    def end(self) -> None:
        """Close the innermost collection."""
        extent = self.open.pop()
        extent.depth += 1
        self.add(extent)

    def repeat(self, anchor: str) -> None:
        """Count what an alias stands for; raises BoundsError for one inside its own anchor."""
        extent = self.anchors.get(anchor)
        if extent is None:
            raise BoundsError(f"the alias *{anchor[:64]} has no complete anchor before it")
        self.add(_Extent(None, extent.size, extent.depth))


def _check_bounds(text: str, *, most: int = MAX_EXPANDED) -> None:
    """Raise :class:`BoundsError` where *text* is too deep or too large, ``YAMLError`` where broken.

    *most* is the size in bytes with aliases written out, and one for each value. The parser is a
    loop in C, while building the value is a recursion: so this comes first.
    """
    measure = _Measure(most)
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        match event:
            case yaml.AliasEvent(anchor=str(anchor)):
                measure.repeat(anchor)
            case yaml.ScalarEvent(anchor=anchor, value=value):
                measure.add(_Extent(anchor, 1 + len(value)))
            case yaml.CollectionStartEvent(anchor=anchor):
                measure.begin(anchor)
            case yaml.CollectionEndEvent():
                measure.end()
            case _:
                pass


class DocumentError(ValueError):
    """The text cannot be read as a document."""


def read_document(text: str, *, most: int = MAX_BYTES) -> object:
    """Return the one YAML or JSON document in *text* of at most *most* bytes.

    Raises DocumentError for text that is malformed, too deep, or too large as it stands or with
    its YAML aliases written out.
    """
    try:
        _check_size(text, most)
        if text.lstrip().startswith("{"):
            return _read_json(text, most)
        return _read_yaml(text, most)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first = " ".join(str(error).split())
        raise DocumentError(first[:256] or "nested too deeply") from error


def _check_size(text: str, most: int) -> None:
    size = len(text.encode())
    if size > most:
        raise DocumentError(f"{size} bytes are more than {most}")


def _read_json(text: str, most: int) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return _read_yaml(text, most)  # a flow mapping, or the better message


def _read_yaml(text: str, most: int) -> object:
    _check_bounds(text, most=max(most, MAX_EXPANDED))
    return yaml.load(text, Loader=yaml.CSafeLoader)


def describe(value: object) -> str:
    """Return *value* as messages show it: text is quoted and cut short."""
    match value:
        case str():
            return quote(value)
        case dict() | list():
            return "a list" if isinstance(value, list) else "a mapping"
        case bool() | None:
            return {True: "true", False: "false", None: "nothing"}[value]
        case int() | float() if abs(value) < _DIGITS:
            return str(value)
        case _:
            return "a value of another type"


@dataclass(frozen=True, slots=True)
class Notes:
    """Defects found so far; all tables of one document share it."""

    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def error(self, path: str, what: str, accepted: str) -> None:
        """Note something that makes the document unusable."""
        self.errors.append(Problem(path=path, what=what, accepted=accepted))

    def warning(self, path: str, what: str, accepted: str) -> None:
        """Note a defect that has no effect."""
        self.warnings.append(Problem(path=path, what=what, accepted=accepted))


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """A mapping of a document; a missing or wrong value is noted and replaced by a default."""

    values: Mapping[str, object]
    path: str
    notes: Notes

    @classmethod
    def of(cls, value: object, path: str, notes: Notes) -> "DocumentTable":
        """Return *value* as a table; notes an error unless it is a mapping with text keys."""
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return cls(value, path, notes)
        notes.error(path or "document", f"{describe(value)} found", "a mapping of names to values")
        return cls({}, path, notes)

    def at(self, key: str) -> str:
        """Return the path of *key*."""
        return f"{self.path}.{key}" if self.path else key

    def _value(self, key: str, default: object) -> object:
        """Return the value of *key*; null and "" count as absent, as they do for Go."""
        value = self.values.get(key)
        return default if value is None or value == "" else value

    def note_wrong(self, key: str, accepted: str) -> None:
        """Note that the value of *key* is not what is accepted."""
        what = f"{describe(self.values[key])} found" if key in self.values else "missing"
        self.notes.error(self.at(key), what, accepted)

    def lower_keys(self) -> "DocumentTable":
        """Return this table with keys in lower case, as Go's JSON decoder compares them."""
        return DocumentTable({k.lower(): v for k, v in self.values.items()}, self.path, self.notes)

    def check_keys(self, known: Iterable[str], *, refuse: bool) -> None:
        """Note keys that are not *known*: a warning in others' formats, an error in ours."""
        note = self.notes.error if refuse else self.notes.warning
        for key in sorted(self.values.keys() - set(known)):
            note(self.at(key), f"unknown key {describe(key)}", ", ".join(known))

    def integer(self, key: str, default: int | None, *, low: int, high: int) -> int:
        """Return an integer within bounds; without *default* the key is required."""
        value = self._value(key, default)
        if _is_int_within(value, low=low, high=high):
            return value
        self.note_wrong(key, f"a whole number from {low} to {high}")
        return low

    def number(self, key: str, default: float) -> float:
        """Return a number above zero."""
        value = self._value(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and _is_usable(value):
            return float(value)
        self.note_wrong(key, "a number above 0")
        return default

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty; without *default* the key is required."""
        value = self._value(key, default)
        if isinstance(value, str) and value:
            return value
        self.note_wrong(key, "a string")
        return ""

    def items(self, key: str, *, required: bool = False) -> tuple[object, ...]:
        """Return the elements of a list; a missing list is empty unless required."""
        value = self.values.get(key)
        if isinstance(value, list) and (value or not required):
            return tuple(value)
        if value is not None or required:
            self.note_wrong(key, "a list of at least one element" if required else "a list")
        return ()

    def tables(self, key: str, *, required: bool = False) -> tuple["DocumentTable", ...]:
        """Return the elements of a list of mappings."""
        return tuple(
            DocumentTable.of(item, f"{self.at(key)}[{i}]", self.notes)
            for i, item in enumerate(self.items(key, required=required))
        )

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        """Return the elements of a list of texts; others are noted and left out."""
        elements = self.items(key, required=required)
        for i, item in enumerate(elements):
            if not (isinstance(item, str) and item):
                self.notes.error(f"{self.at(key)}[{i}]", f"{describe(item)} found", "a string")
        return tuple(item for item in elements if isinstance(item, str) and item)

    def integers(self, key: str, *, high: int) -> tuple[int, ...]:
        """Return the elements of a list of integers from 0; others are noted and left out."""
        elements = self.items(key)
        for i, item in enumerate(elements):
            if not _is_int_within(item, low=0, high=high):
                accepted = f"a whole number from 0 to {high}"
                self.notes.error(f"{self.at(key)}[{i}]", f"{describe(item)} found", accepted)
        return tuple(item for item in elements if _is_int_within(item, low=0, high=high))


def _is_int_within(value: object, *, low: int, high: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_usable(value: float) -> bool:
    return 0 < value < 2**53 and math.isfinite(value)


_MESSAGE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$[^`]*)`)?", re.DOTALL)
_TYPES: Final = re.compile(r"Expected `(?P<accepted>[^`]+)`, got `(?P<found>[^`]+)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_WORDS: Final = {
    "str": "a string",
    "int": "a whole number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def explain_error(error: msgspec.ValidationError, document: object) -> Problem:
    """Return the problem that *error* means, with its place and value in *document*."""
    match = _MESSAGE.fullmatch(str(error))
    what, path = (match["what"], match["path"] or "$") if match else (str(error), "$")
    if missing := _MISSING.fullmatch(what):
        return Problem(path=f"{path[2:]}.{missing['name']}", what="missing", accepted="a string")
    types = _TYPES.fullmatch(what)
    if types is None:
        return Problem(
            path=path[2:], what=what[:128].lower(), accepted="a value that Kubernetes accepts"
        )
    place, value = _offender(document, path, types["found"])
    return Problem(
        path=place, what=f"{describe(value)} found", accepted=_type_words(types["accepted"])
    )


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


def _type_words(accepted: str) -> str:
    names = (name for name in accepted.split(" | ") if name != "null")
    return " or ".join(_WORDS.get(name, name) for name in names)
