"""What surrounds the reviews of pods: who asks, and what our answer rests on.

Most reviews share both with the one before. So there is one object for all of them, whose JSON is
made once, and what a review is compared with is in the caches of the processor. Runs for every
review.
"""

from typing import Final

import orjson

from allocator.audit.lines import fields_of
from allocator.audit.record import SCHEMA
from allocator.model.untrusted import inert
from webhook.admission.audit_record import json_texts, user_texts
from webhook.review.admission_review import UserInfo

MOST_USERS: Final = 64  # that are kept
_LONGEST_KEPT: Final = 512  # characters of what is kept of one
_MOST_GROUPS: Final = 16  # of one that is kept


class PassContext:
    """What the answers of a pass rest on, besides the pods."""

    def __init__(
        self,
        program: tuple[str, str, str],
        *,
        caller: tuple[str, ...],
        step: str,
        settings: str,
        snapshot: str,
    ) -> None:
        """Write it as JSON.

        *program* is component, instance and version; *caller* is what the caller showed.
        *settings* and *snapshot* are digests.
        """
        self.caller = caller
        self.step = step
        self.settings = settings
        self.snapshot = snapshot
        texts = [inert(text) for text in program]
        named = fields_of(dict(zip(("component", "instance", "version"), texts, strict=True)))
        shown = orjson.dumps(caller).decode()
        seen = f'"snapshot":"{snapshot}",' if snapshot else ""
        # The value of `schema`, and fields.
        self.json = (
            f'{SCHEMA},{named.decode()},"caller":{shown},"step":"{step}",{seen}'
            f'"settings":"{settings}",'
        ).encode()

    def is_of(self, caller: tuple[str, ...], *, settings: str, snapshot: str) -> bool:
        """Say whether an answer of the same step rests on the same."""
        return self.settings == settings and self.snapshot == snapshot and self.caller == caller


class ReviewUser:
    """Who asks."""

    def __init__(self, info: UserInfo) -> None:
        """Write it as JSON fields."""
        self.info = info
        name, *groups = json_texts(user_texts(info))
        listed = ",".join([f'"{group}"' for group in groups])
        self.json = f'"user":"{name}","groups":[{listed}],'.encode()
        # Whether it takes little, which is less than what may be kept of a review.
        self.is_small = _is_small(info)


def _is_small(info: UserInfo) -> bool:
    groups = info.groups or ()
    length = len(info.username)
    for group in groups:
        length += len(group)
    return length <= _LONGEST_KEPT and len(groups) <= _MOST_GROUPS


class ReviewUsers:
    """The users who asked of late; most are controllers, and few."""

    def __init__(self) -> None:
        """Know nobody."""
        self._users: dict[str, ReviewUser] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._users)

    def user(self, info: UserInfo) -> ReviewUser:
        """Return the user with *info*, the same object as long as it is kept."""
        kept = self._users.get(info.username)
        if kept is not None and kept.info == info:
            return kept
        made = ReviewUser(info)
        if made.is_small:
            if len(self._users) >= MOST_USERS:
                self._users.clear()
            self._users[info.username] = made
        return made
