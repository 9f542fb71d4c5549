"""The person behind a pod: who created it, or who created or last changed its template.

A pod of a controller is followed through its owners, by uid, as far as records of workloads name
them. Where one of them is missing the person is unknown, and is not guessed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from allocator.audit.record import OwnerPart, RequesterSource

DEEPEST: Final = 5  # owners above each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """A person, and how they were found."""

    user: int = 0  # the number of their name
    source: RequesterSource = RequesterSource.UNKNOWN


UNKNOWN: Final = Requester()


class WorkloadVersion(msgspec.Struct, frozen=True, order=True):
    """One review of a workload: sorts by its time in milliseconds since 1970, then by its id."""

    at: int
    id: bytes
    user: int  # the number of their name
    template: int  # number of the pod template's digest, 0 where unknown
    owner: int = 0  # number of the uid of the object that owns the workload


Histories = Mapping[int, Sequence[WorkloadVersion]]  # by the number of the workload's uid


def uid_number(text: str) -> int:
    """Return a number for a uid or a digest, 0 for an empty one; two share one hardly ever."""
    if not text:
        return 0
    digest = blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True) or 1


def requester_of(user: int, owner: OwnerPart | None, *, at: int, histories: Histories) -> Requester:
    """Return the person behind a pod that *user* created at the time *at*.

    *histories* holds the reviews of the workloads above *owner*, as far as they are known. Users
    are numbers of their names, 0 where unknown.
    """
    if owner is None:
        source = RequesterSource.DIRECT if user else RequesterSource.UNKNOWN
        return Requester(user=user, source=source)
    uid, seen = uid_number(owner.uid), set[int]()
    while uid and uid not in seen and len(seen) < DEEPEST:
        seen.add(uid)
        versions = [version for version in sorted(histories.get(uid, ())) if version.at <= at]
        if not versions:
            return UNKNOWN
        above = versions[-1].owner
        if not above:
            author = template_author(versions)
            return Requester(user=author, source=RequesterSource.WORKLOAD) if author else UNKNOWN
        uid = above
    return UNKNOWN


def template_author(versions: Sequence[WorkloadVersion]) -> int:
    """Return who brought in the template of the last of *versions*, which are in order.

    Whoever changes something else, such as a controller that writes an annotation, is not its
    author. Where templates are unknown and several users wrote, nobody can be named.
    """
    if any(not version.template for version in versions):
        users = {version.user for version in versions}
        return users.pop() if len(users) == 1 else 0
    template = versions[-1].template
    author = versions[-1].user
    for version in reversed(versions):
        if version.template != template:
            break
        author = version.user
    return author


def versions_to_keep(versions: Sequence[WorkloadVersion], cutoff: int) -> set[WorkloadVersion]:
    """Return which of *versions*, in order, still tell who wrote a template since *cutoff*.

    Those are all since *cutoff*, the last one before, and the one that brought in its template. Of
    templates that are unknown, some of different users stay, because then nobody can be named.
    """
    kept = {version for version in versions if version.at >= cutoff}
    before = [version for version in versions if version.at < cutoff]
    if before:
        kept.add(before[-1])
        first = before[-1]
        for version in reversed(before):
            if version.template != first.template:
                break
            first = version
        kept.add(first)
        if not first.template:
            kept.update(_of_two_users(before))
    return kept


def _of_two_users(versions: Sequence[WorkloadVersion]) -> Iterable[WorkloadVersion]:
    """Return the first versions of two users: with a second one nobody can be named."""
    first: dict[int, WorkloadVersion] = {}
    for version in versions:
        first.setdefault(version.user, version)
    return [*first.values()][:2]
