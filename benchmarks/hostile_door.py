"""Doors: attacks by name, each a function that yields what got through.

A door that cannot be tried here raises :class:`UntriedError`, so that nobody takes it for closed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

Door = Callable[[], Iterator[str]]
DOORS: Final[dict[str, Door]] = {}


class UntriedError(Exception):
    """A door needs what this machine lacks; the text says what that is."""


@dataclass(frozen=True, slots=True)
class TriedDoors:
    """What came of trying doors, by their names."""

    breaches: dict[str, list[str]] = field(
        default_factory=dict
    )  # of every door that was tried, or is open
    untried: dict[str, str] = field(default_factory=dict)  # and why


def door(attack: Door) -> Door:
    """Add *attack* to the doors; raises ``ValueError`` for a second one of its name."""
    if attack.__name__ in DOORS:
        raise ValueError(f"there is a door {attack.__name__} already")
    DOORS[attack.__name__] = attack
    return attack


def try_doors(doors: Mapping[str, Door]) -> TriedDoors:
    """Try each of *doors* once; what got through one before it could not be tried on counts."""
    tried = TriedDoors()
    for name, attack in doors.items():
        found: list[str] = []
        try:
            found.extend(attack())
        except UntriedError as error:
            tried.untried[name] = str(error)
        if found or name not in tried.untried:
            tried.breaches[name] = found
    return tried
