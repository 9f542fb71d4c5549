"""What came of deciding again: the same, something else, or why it cannot be done."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocator.model.untrusted import plain_json
from console.languages.messages import PageMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SameDecision:
    """Every field of the decision came out again, byte for byte."""

    fields: Mapping[str, Any]  # of the decision, as JSON values


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedField:
    """A field that came out otherwise; both values are JSON, ``null`` where there is none."""

    name: str
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentDecision:
    """The decision came out otherwise.

    ``recorded_version`` is the program that decided, ``version`` the one that decided again. Where
    both are equal, the record and what it rests on do not belong together.
    """

    changed: tuple[ChangedField, ...]
    recorded_version: str
    version: str

    @property
    def by_version(self) -> bool:
        """Say whether another version of the program decided, which explains it."""
        return self.recorded_version != self.version


@dataclass(frozen=True, slots=True)
class NotReplayable:
    """Why a decision cannot be made again from its record, as a sentence without a full stop."""

    why: PageMessage


Replay = SameDecision | DifferentDecision | NotReplayable


def compared(
    recorded: Mapping[str, Any], replayed: Mapping[str, Any], *, versions: tuple[str, str]
) -> SameDecision | DifferentDecision:
    """Compare the fields of a decision; *versions* are of the record and of this program."""
    names = sorted(recorded.keys() | replayed.keys())
    pairs = [(name, _json(recorded.get(name)), _json(replayed.get(name))) for name in names]
    changed = tuple(
        ChangedField(name=name, recorded=before, replayed=after)
        for name, before, after in pairs
        if before != after
    )
    if not changed:
        return SameDecision(fields=replayed)
    return DifferentDecision(changed=changed, recorded_version=versions[0], version=versions[1])


def _json(value: object) -> str:
    """Return one value as canonical JSON, in which every character is seen.

    A record of a stranger may hold half characters, which no encoder of bytes takes.
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return plain_json(text)
