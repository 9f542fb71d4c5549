"""Reviews of pods that could not be read, as far as they are known; records are made of them."""

from typing import Final

import msgspec

from allocator.model.decision import Reason
from webhook.review.admission_review import BadObjectError, uid_at_start

INTERNAL: Final = "InternalError"  # an error of ours, of which the log has more
_STEPS: Final = {
    "/mutate/pods": "mutate",
    "/validate/pods": "validate",
    "/mutate/pods/ephemeralcontainers": "ephemeral",
}


class UnreadReview(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a review could not be read, and what is known of it; empty where it is not."""

    step: str
    why: str
    reason: str
    size: int  # bytes that were read
    uid: str = ""
    operation: str = ""
    name: str = ""
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False


def unread_object(error: BadObjectError, step: str, size: int) -> UnreadReview:
    """Return the review of *size* bytes whose object could not be read."""
    known = error.known
    return UnreadReview(
        step=step,
        why=str(error),
        reason=Reason.UNREADABLE,
        size=size,
        uid=error.uid,
        operation=known.operation,
        name=known.name or "",
        namespace=known.namespace,
        user=known.user_info.username,
        groups=known.user_info.groups or (),
        dry_run=bool(known.dry_run),
    )


def unread_body(
    hook: str, why: str, *, size: int, start: bytes, reason: str = Reason.UNREADABLE
) -> UnreadReview | None:
    """Return the review that *hook* got *size* bytes of; ``None`` where it is not one of a pod."""
    step = _STEPS.get(hook)
    if step is None:
        return None
    return UnreadReview(step=step, why=why, reason=reason, size=size, uid=uid_at_start(start))
