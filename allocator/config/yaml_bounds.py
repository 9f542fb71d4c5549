"""Bounds on a YAML text before it is built: depth, and size with its aliases written out."""

from dataclasses import dataclass, field
from typing import Final

import yaml

MAX_DEPTH: Final = 32
# Bytes of scalars, and one for each value. Nine lines of aliases of aliases stand for gigabytes.
MAX_EXPANDED: Final = 2 * 1024 * 1024


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


def check_bounds(text: str, *, most: int = MAX_EXPANDED) -> None:
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
