"""RecentDecisions: pods that are alike are decided once, as long as nothing else changes.

A decision is a function of the pod and of what surrounds it. Replicas come by the thousand and
differ in a few drawn characters, so that most decisions were made a moment ago. A decision is used
again only where all that it may depend on is equal: the whole pod, as far as we read one, and the
settings, the kinds of GPU and the namespace. Runs for every review.
"""

from typing import Final, TypeVar

from msgspec.structs import replace

from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.outcome import CHANGING, Outcome, Rewritten
from webhook.replicas.decided_pod import KEPT_END, DecidedPod
from webhook.replicas.kept_parts import KeptParts, SeenNames
from webhook.replicas.recent_choices import RecentChoices, choose_alike
from webhook.review.json_patch import encoded, operations
from webhook.review.pod_schema import Container, Pod, PodSpec, Volume, VolumeMount

MOST_BYTES: Final = 16 * 1024 * 1024
# Of pods whose owner was not seen of late. The other pods of a workload mostly come soon, and a
# pod that is alone must not take the place of a workload.
_MOST_FIRST: Final = MOST_BYTES // 4
LARGEST_REVIEW: Final = 64 * 1024  # bytes
_OBJECTS: Final = 6  # bytes that a pod takes, and its review, for each byte of it
# The API server mounts a token into most containers, from a volume with five drawn characters.
_TOKEN: Final = "kube-api-access-"  # noqa: S105 -- the name of a volume
_TOKEN_LENGTH: Final = len(_TOKEN) + 5
_Entry = TypeVar("_Entry", Volume, VolumeMount)


class _Decision:
    """A pod, and what was decided about it in a context."""

    def __init__(self, pod: Pod, context: AdmissionContext, decided: DecidedPod) -> None:
        self.decided = decided
        self._pod = pod
        self._context = context
        self._is_as_sent = True

    def is_of(self, pod: Pod, context: AdmissionContext) -> bool:
        """Say whether *pod* would be decided alike in *context*."""
        if not _are_same(self._context, context):
            return False
        self._context = context  # the next comparison is the faster
        if self._is_as_sent:
            self._pod, self._is_as_sent = without_drawn(self._pod), False
        return self._pod == without_drawn(pod)


class RecentDecisions:
    """Decides about pods at CREATE, and about those that are alike once."""

    def __init__(self) -> None:
        """Know no pod."""
        self._seen = SeenNames()
        self._choices = RecentChoices()
        # By the uid of the owner.
        most = MOST_BYTES - _MOST_FIRST
        self._first = KeptParts[_Decision](most_bytes=_MOST_FIRST, largest=_MOST_FIRST)
        self._kept = KeptParts[_Decision](most_bytes=most, largest=most)

    @property
    def size(self) -> int:
        """Return the bytes of all that is kept."""
        return self._first.size + self._kept.size

    def decide(self, pod: Pod, context: AdmissionContext, size: int) -> DecidedPod:
        """Decide about *pod*, whose review has *size* bytes, in *context*."""
        owners = pod.metadata.owner_references
        # The pods of a controller that draws no name for each are no replicas.
        if not owners or pod.metadata.name or size > LARGEST_REVIEW:
            return patched_pod(pod, decide(pod, context, self._choices.chosen_mode))
        owner = owners[0].uid
        kept = self._kept.get(owner) or self._first.get(owner)
        if kept is not None and kept.is_of(pod, context):
            return kept.decided
        decided = patched_pod(pod, decide(pod, context, self._choices.chosen_mode))
        parts = self._kept if self._seen.note(owner) else self._first
        if isinstance(decided.outcome, Rewritten):
            parts.keep(owner, _Decision(pod, context, decided), size * _OBJECTS + KEPT_END)
        return decided


def patched_pod(pod: Pod, outcome: Outcome) -> DecidedPod:
    """Return *outcome* about *pod* with the patch that carries it out."""
    ops = operations(pod, outcome.intent) if isinstance(outcome, CHANGING) else None
    return DecidedPod(outcome, encoded(ops) if ops else None)


def without_drawn(pod: Pod) -> Pod:
    """Return *pod* without the characters that the API server drew for its token's volume.

    Nothing depends on them, because they tell no other volume apart. A pod of which that is not
    sure stays as it is.
    """
    spec = pod.spec
    drawn = _drawn_volume(spec)
    if not drawn:
        return pod
    containers, first = spec.containers, spec.init_containers
    return replace(
        pod,
        spec=replace(
            spec,
            volumes=tuple([_without(volume, drawn) for volume in spec.volumes or ()]),
            containers=tuple([_mounting(container, drawn) for container in containers]),
            init_containers=first and tuple([_mounting(container, drawn) for container in first]),
        ),
    )


def _drawn_volume(spec: PodSpec) -> str:
    """Return the name of the volume; empty unless it is the only one that begins so."""
    drawn = ""
    for volume in spec.volumes or ():
        if volume.name.startswith(_TOKEN):
            if drawn or len(volume.name) != _TOKEN_LENGTH:
                return ""
            drawn = volume.name
    for containers in (spec.containers, spec.init_containers or ()):
        for container in containers:
            for mount in container.volume_mounts or ():
                if mount.name != drawn and mount.name.startswith(_TOKEN):
                    return ""
    return drawn


def _mounting(container: Container, drawn: str) -> Container:
    mounts = container.volume_mounts
    if not mounts:
        return container
    return replace(container, volume_mounts=tuple([_without(mount, drawn) for mount in mounts]))


def _without(entry: _Entry, drawn: str) -> _Entry:
    return replace(entry, name=_TOKEN) if entry.name == drawn else entry


def _are_same(one: AdmissionContext, other: AdmissionContext) -> bool:
    """Say whether decisions in both come out alike."""
    return (
        choose_alike(one, other)
        and (one.vocabularies is other.vocabularies or one.vocabularies == other.vocabularies)
        and (one.lost is other.lost or one.lost == other.lost)
        and (one.geometries is other.geometries or one.geometries == other.geometries)
        and one.host_paths == other.host_paths
        and one.namespace == other.namespace
        and one.high_priority == other.high_priority
        and one.extender == other.extender
    )
