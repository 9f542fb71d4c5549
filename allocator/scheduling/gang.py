"""Gangs: groups of pods that start together or not at all, and hold GPUs while they wait.

Schedulers bind a gang's members one by one. Two gangs that each got part of what both need keep
each other from starting for ever. They are reported; which one lets go is for its owner to say.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocator.catalog.vocabularies import Vocabulary
from allocator.request.pod_summary import PodSummary

Name = tuple[str, str]  # namespace and name of a group


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """A group's living pods: how many are bound, which of these hold a GPU, which wait for one."""

    bound: int
    holding: tuple[PodSummary, ...]
    waiting: tuple[PodSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A group with its object's uid and least number of members."""

    name: Name
    uid: str
    least: int
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
    asking = [pod for pod in pods if pod.asks(vocabularies)]
    return Members(
        bound=sum(bool(pod.node) for pod in pods),
        holding=tuple(pod for pod in asking if pod.node),
        waiting=tuple(pod for pod in asking if not pod.node),
    )
