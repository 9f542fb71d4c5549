"""Which pods belong together: the groups of a job, each of so many GPUs.

A job's pods are those of one PodGroup or one controlling owner. One of them, for example the
master, names the size of a group in GPUs. Pods are numbered through the job, task by task, and
consecutive ones form a group, as MetaX's own job manager numbers them.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from allocator.catalog.keys import POD_GROUP_KEYS
from allocator.model.untrusted import is_safe_name

# Of workers, replicas of a StatefulSet, and of an indexed Job, whose pods get five more letters. A
# number of five digits may be letters drawn by chance.
_NUMBERED: Final = re.compile(r"(.*-)([0-9]{1,4})(?:-[a-z0-9]{5})?")


POD_GROUP_JOB: Final = "/podgroup "  # in the name of a job, between its namespace and PodGroup
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPod:
    """A pod of a job that asks for GPUs and has not ended."""

    uid: str
    job: str  # its namespace, and its PodGroup or the uid of its controller
    name: str
    size: int = 0  # GPUs of a group as it names them itself; 0: it does not
    node: str = ""  # empty until it is bound
    created: datetime | None = None
    limits: tuple[tuple[str, int], ...] = ()  # extended resources of its containers together


class JobOwner(Protocol):
    """An owner reference."""

    @property
    def uid(self) -> str:
        """Return the uid of the owner."""

    @property
    def controller(self) -> bool | None:
        """Say whether it is the controller."""


def job_of(
    namespace: str, annotations: Mapping[str, str], owners: Iterable[JobOwner] | None
) -> str | None:
    """Return the job of a pod by its metadata; ``None`` where it is of none."""
    named = next(filter(is_safe_name, (annotations.get(key, "") for key in POD_GROUP_KEYS)), "")
    owner = next((one.uid for one in owners or () if one.controller), "")
    if not named and not owner:
        return None
    return f"{namespace}{POD_GROUP_JOB}{named}" if named else f"{namespace}/owner {owner}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pods that must sit together."""

    job: str
    number: int  # in the job
    size: int  # GPUs
    members: tuple[GroupPod, ...]

    @property
    def key(self) -> tuple[str, int]:
        """Return what tells it from other groups."""
        return self.job, self.number


def job_size(pods: Iterable[GroupPod]) -> int:
    """Return the GPUs of a group of a job with *pods*; 0 where none of them names it.

    Where they contradict each other the largest counts: it keeps together whom any of them names.
    """
    return max((pod.size for pod in pods), default=0)


def groups_of(pods: Collection[GroupPod], *, gpus: int) -> list[Group]:
    """Return the groups of a job with *pods* of *gpus* GPUs each; none where none names a size."""
    size = job_size(pods)
    if not size or gpus < 1:
        return []
    each = max(1, size // gpus)
    ranks = _ranks(pods)
    members: dict[int, list[GroupPod]] = {}
    for pod in sorted(pods, key=lambda one: ranks[one.uid]):
        members.setdefault(ranks[pod.uid] // each, []).append(pod)
    return [
        Group(job=found[0].job, number=number, size=size, members=tuple(found))
        for number, found in members.items()
    ]


def group_of(pod: GroupPod, pods: Collection[GroupPod], *, gpus: int) -> Group | None:
    """Return the group of *pod* among the *pods* of its job, which may lack it.

    ``None`` where the job has no groups.
    """
    known = {one.uid: one for one in pods} | {pod.uid: pod}
    groups = groups_of(list(known.values()), gpus=gpus)
    return next((group for group in groups if pod in group.members), None)


def _ranks(pods: Iterable[GroupPod]) -> dict[str, int]:
    """Return the numbers of *pods* in their job, by uid: task by task, by number within each.

    A pod whose name has no number of its own comes after the others, in the order of creation.
    """
    ordered = sorted(pods, key=lambda pod: (pod.created or _NEVER, pod.name))
    tasks: dict[str, list[tuple[int, GroupPod]]] = {}
    for pod in ordered:
        numbered = _NUMBERED.fullmatch(pod.name)
        if numbered is not None:
            tasks.setdefault(numbered[1], []).append((int(numbered[2]), pod))
    # A number that several have is not their own but that of their job.
    numbering = {task: dict(found) for task, found in tasks.items()}
    numbering = {task: found for task, found in numbering.items() if len(found) == len(tasks[task])}
    ranks, offset = dict[str, int](), 0
    for _, pod_by_number in sorted(numbering.items()):
        ranks |= {pod.uid: offset + number for number, pod in pod_by_number.items()}
        offset += 1 + max(pod_by_number)
    others = [pod for pod in ordered if pod.uid not in ranks]
    return ranks | {pod.uid: offset + number for number, pod in enumerate(others)}
