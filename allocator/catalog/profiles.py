"""Profile names: what the name of a MIG profile says, and which names mean the same shape."""

import re
from typing import Final, NamedTuple

from allocator.model.board import Board, Profile


class ProfileShape(NamedTuple):
    """The parts of a profile name: ``1g.10gb+me`` is one slice, 10 GB, attributes ``+me``."""

    slices: int
    gb: int
    attributes: str


_PROFILE_NAME: Final = re.compile(
    r"([1-9]\d?)g\.(\d{1,4})gb((?:[+-][a-z][a-z0-9.]*(?:,[a-z][a-z0-9.]*)*)?)", re.ASCII
)


def shape_of(profile: str) -> ProfileShape | None:
    """Take the name of a GPU instance profile apart; anything else is ``None``."""
    found = _PROFILE_NAME.fullmatch(profile)
    return ProfileShape(int(found[1]), int(found[2]), found[3]) if found else None


def canonical_profile(board: Board, name: str) -> Profile | None:
    """Return the profile of *board* that *name* means.

    Drivers round the same memory differently (7g.79gb is 7g.80gb, 1g.24gb is 1g.23gb), so one
    GB of difference is an alias; compute slices and attributes must agree.
    """
    exact = board.profile(name)
    wanted = shape_of(name)
    if exact is not None or wanted is None:
        return exact
    return next((p for p in board.profiles if _alias(wanted, shape_of(p.name))), None)


def _alias(wanted: ProfileShape, present: ProfileShape | None) -> bool:
    return (
        present is not None
        and wanted.slices == present.slices
        and wanted.attributes == present.attributes
        and abs(wanted.gb - present.gb) <= 1
    )
