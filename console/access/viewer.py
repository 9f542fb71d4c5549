"""Viewer: the person behind a request to the console, and what they may see."""

from dataclasses import dataclass

from console.records.query import NOTHING, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Somebody who was authenticated; ``scope`` is what the API server let them read."""

    user: str
    groups: tuple[str, ...] = ()
    scope: Scope = NOTHING
    csrf: str = ""  # the token that a form of theirs must carry
