"""The pods of jobs that may have groups, followed by the watch of all pods."""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from allocator.catalog.keys import GROUP_SIZE_KEY
from allocator.cluster.pod_messages import pod_json
from allocator.groups.members import GroupPod, job_of
from allocator.model.untrusted import zoned_time
from allocator.request.amounts import group_size
from allocator.request.pod_fields import WatchedPod, decode_owned, shared
from kube.shared_informer import SharedInformer

_DIGITS: Final = 9  # of an amount of a resource
_NOBODY: Final[Mapping[str, GroupPod]] = {}


class GroupPods:
    """Pods that ask for extended resources and belong to a job, by job; those over are left out."""

    def __init__(self) -> None:
        """Know nobody yet."""
        self._by_uid: dict[str, GroupPod] = {}
        self._by_job: dict[str, dict[str, GroupPod]] = {}
        self._sized: dict[str, set[str]] = {}  # by job, the uids of pods that name a size

    def follow(self, watch: SharedInformer[WatchedPod]) -> None:
        """Take part in a watch of all pods."""
        watch.add(group_pod, self.update)

    def update(self, changes: Mapping[str, GroupPod | None]) -> None:
        """Take *changes* of pods, by uid."""
        for uid, pod in changes.items():
            before = self._by_uid.pop(uid, None)
            if before is not None:
                self._remove(before)
            if pod is not None:
                self._by_uid[uid] = pod
                self._by_job.setdefault(pod.job, {})[uid] = pod
                if pod.size:
                    self._sized.setdefault(pod.job, set()).add(uid)

    def pod(self, uid: str) -> GroupPod | None:
        """Return a pod by its uid, ``None`` where it is of no job, over or not known yet."""
        return self._by_uid.get(uid)

    def job(self, name: str) -> Collection[GroupPod]:
        """Return the pods of a job."""
        return self._by_job.get(name, _NOBODY).values()

    def waiting_jobs(self, made_after: datetime) -> list[str]:
        """Return the jobs that have groups, and pods without a node or made after that time."""
        return [
            job
            for job in self._sized
            if any(
                not pod.node or (pod.created is not None and pod.created > made_after)
                for pod in self._by_job[job].values()
            )
        ]

    def has_groups(self) -> bool:
        """Say whether any job has groups."""
        return bool(self._sized)

    def _remove(self, pod: GroupPod) -> None:
        there = self._by_job[pod.job]
        del there[pod.uid]
        if not there:
            del self._by_job[pod.job]
        sized = self._sized.get(pod.job)
        if sized is not None:
            sized.discard(pod.uid)
            if not sized:
                del self._sized[pod.job]


def group_pod(pod: WatchedPod, raw: bytes) -> GroupPod | None:
    """Return *pod* if it may be in a group: it asks for extended resources, and has not ended."""
    if pod.status.over or pod.metadata.deletion_timestamp is not None or not _asks(pod):
        return None
    try:
        owned = decode_owned(pod_json(raw))
    except ValueError:
        return None
    metadata = owned.metadata
    annotations = metadata.annotations or {}
    job = job_of(metadata.namespace, annotations, metadata.owner_references)
    if job is None:
        return None
    return GroupPod(
        uid=metadata.uid,
        job=shared(job),
        name=metadata.name,
        size=group_size(annotations.get(GROUP_SIZE_KEY, "")),
        node=shared(owned.spec.node_name),
        created=zoned_time(metadata.creation_timestamp),
        limits=_limits(pod),
    )


def _limits(pod: WatchedPod) -> tuple[tuple[str, int], ...]:
    """Return what the containers of *pod* ask for of each extended resource.

    An amount that is no whole number is left out: no GPUs are counted by it.
    """
    sums = Counter[str]()
    for container in pod.spec.containers:
        limits = (container.resources.limits if container.resources else None) or {}
        for name, amount in limits.items():
            digits = bytes(amount).strip(b'"')
            if "/" in name and digits.isdigit() and len(digits) <= _DIGITS:
                sums[shared(name)] += int(digits)
    return tuple(sums.items())


def _asks(pod: WatchedPod) -> bool:
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    return any(
        "/" in name
        for container in containers
        if container.resources is not None
        for name in container.resources.limits or ()
    )
