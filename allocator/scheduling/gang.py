"""Gangs: PodGroups, whose pods start together or not at all, and hold GPUs while they wait.

Schedulers bind the members of a gang one by one. Two gangs that each got part of what both need
block each other for ever. Stuck gangs are reported, never evicted.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocator.catalog.vocabularies import Vocabulary
from allocator.request.pod_summary import PodSummary

Name = tuple[str, str]  # namespace and name of a group


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The running and pending pods of a group."""

    bound: int  # how many are bound, with or without GPUs
    holding: tuple[PodSummary, ...]  # bound pods that ask for GPUs
    waiting: tuple[PodSummary, ...]  # unbound pods that ask for GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A PodGroup with its members."""

    name: Name
    uid: str
    least: int  # spec.minMember
    members: Members

    @property
    def is_stuck(self) -> bool:
        """Say whether it holds GPUs and cannot start, because members wait for more."""
        members = self.members
        return bool(members.holding and members.waiting) and members.bound < self.least


def members_of(
    pods: Iterable[PodSummary], vocabularies: Sequence[Vocabulary]
) -> dict[Name, Members]:
    """Return the members of every group that has any."""
    groups: defaultdict[Name, list[PodSummary]] = defaultdict(list)
    for pod in pods:
        if pod.group and not pod.over and not pod.deleting:
            groups[pod.namespace, pod.group].append(pod)
    return {name: _members(group, vocabularies) for name, group in groups.items()}


def _members(pods: Sequence[PodSummary], vocabularies: Sequence[Vocabulary]) -> Members:
    asking = [pod for pod in pods if pod.requests_gpus(vocabularies)]
    return Members(
        bound=sum(bool(pod.node) for pod in pods),
        holding=tuple(pod for pod in asking if pod.node),
        waiting=tuple(pod for pod in asking if not pod.node),
    )
