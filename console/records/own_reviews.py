"""Which reviews of a request were those of one pod, of several that ask for the same.

The review that decides does not know the uid of a pod, and often not its name: only the digest of
the request, which all pods of a template share. The review that confirms knows the uid. Each pod is
decided before it is confirmed, so decisions are matched with confirmations in their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from allocator.audit.record import AdmissionRecord

LONGEST_MS: Final = 10_000  # from a decision to its confirmation; hooks time out before
LATER_MS: Final = 2_000  # in which pods that were created together are confirmed


def own_reviews(reviews: Iterable[AdmissionRecord], uid: str) -> frozenset[str]:
    """Return the ids of the reviews of the pod *uid* before its uid was known.

    *reviews* are all those of one digest about the time when the pod was confirmed.
    """
    ordered = sorted(reviews, key=lambda one: (one.at, bool(one.pod_uid), one.id))
    confirmed = [one for one in ordered if one.pod_uid == uid]
    if not confirmed:
        return frozenset()
    alike = [one for one in ordered if _alike(one, confirmed[0])]
    confirmations = _first_of_each_pod(alike)
    decisions = [one for one in alike if not one.pod_uid]
    # A pod that other hooks have changed is decided again, which then changes nothing.
    begun = _match([one for one in decisions if not _is_again(one)], confirmations, {})
    again = _match([one for one in decisions if _is_again(one)], confirmations, begun)
    return frozenset(each[uid].id for each in (begun, again) if uid in each)


def _alike(one: AdmissionRecord, other: AdmissionRecord) -> bool:
    """Say whether *one* may be about the pod of *other*, or about one made like it."""
    owners = [part[0].uid if part else "" for part in (one.owners, other.owners)]
    same = (one.namespace, one.generate_name, one.user) == (
        other.namespace,
        other.generate_name,
        other.user,
    )
    named = other.generate_name or not one.pod or one.pod == other.pod
    return same and bool(named) and owners[0] == owners[1]


def _first_of_each_pod(reviews: Iterable[AdmissionRecord]) -> list[AdmissionRecord]:
    """Return the first review of each pod whose uid is known."""
    first: dict[str, AdmissionRecord] = {}
    for one in reviews:
        if one.pod_uid:
            first.setdefault(one.pod_uid, one)
    return list(first.values())


def _is_again(decision: AdmissionRecord) -> bool:
    return not (decision.changes or decision.cut)


def _match(
    decisions: Sequence[AdmissionRecord],
    confirmations: Sequence[AdmissionRecord],
    begun: Mapping[str, AdmissionRecord],
) -> dict[str, AdmissionRecord]:
    """Return one of *decisions* for each pod, by its uid, no earlier than what it has *begun* with.

    From the last confirmation on, each has the latest decision before it that is earlier than that
    of the next. So a decision whose pod was refused by others belongs to nobody.
    """
    left, matched = list(decisions), dict[str, AdmissionRecord]()
    for confirmation in reversed(confirmations):
        while left and left[-1].at > confirmation.at:
            left.pop()
        if not left:
            break
        first = begun.get(confirmation.pod_uid)
        if first is None or left[-1].at >= first.at:
            matched[confirmation.pod_uid] = left.pop()
    return matched
