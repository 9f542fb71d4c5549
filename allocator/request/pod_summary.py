"""Pod summaries: the few fields kept of every pod that may concern us."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from allocator.catalog.hami_keys import ALLOCATED_KEY, NODE_KEY
from allocator.catalog.keys import ASSIGNMENT_KEY, POD_GROUP_KEYS
from allocator.catalog.vocabularies import CATALOGUE, Vocabulary
from allocator.model.untrusted import is_safe_name
from allocator.request.pod_fields import WatchedContainer, WatchedPod, decode_watched, shared

MOST_SHARED: Final = 256  # different lists of resources that exist once
MOST_RESOURCES: Final = 32  # names kept of a pod; tenants may write a megabyte of them
_NOTHING: Final = frozenset({b'"0"', b"0"})  # the JSON of an amount
_KNOWN: Final = tuple(text for v in CATALOGUE for text in (*v.prefixes, *v.resources))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSummary:
    """One pod."""

    uid: str
    namespace: str = ""
    name: str = ""
    node: str  # empty until the pod is bound
    deleting: bool  # it has a deletion timestamp
    over: bool  # its containers have ended for good
    # extended resources of which limits name more than nothing, at most MOST_RESOURCES
    extended: tuple[str, ...] = ()
    # Of a bound pod's annotation; may be empty, and anybody may have written it.
    assignment_json: str = ""
    group: str = ""  # its PodGroup as its annotations name it; may be empty or not exist
    # It is bound, and carries a list of devices that HAMi's scheduler counts on its node.
    hami_counted: bool = False

    def requests_gpus(self, vocabularies: Iterable[Vocabulary]) -> bool:
        """Say whether it names resources of any of *vocabularies*."""
        return bool(self.extended) and any(
            name in v.resources or name.startswith(v.prefixes)
            for v in vocabularies
            for name in self.extended
        )


def pod_summary(raw: bytes) -> PodSummary:
    """Read a pod that the API server sent; raises ``ValueError`` for anything else."""
    return summary_of(decode_watched(raw))


def summary_of(pod: WatchedPod) -> PodSummary:
    """Return the summary of *pod*; values that many pods share exist once."""
    metadata, spec = pod.metadata, pod.spec
    annotations = metadata.annotations or {}
    return PodSummary(
        uid=metadata.uid,
        namespace=shared(metadata.namespace),
        name=metadata.name,
        node=shared(spec.node_name),
        deleting=metadata.deletion_timestamp is not None,
        over=pod.status.over,
        extended=_shared_names(_extended_of(pod)),
        assignment_json=annotations.get(ASSIGNMENT_KEY, "") if spec.node_name else "",
        group=_group_of(annotations),
        hami_counted=_is_counted_by_hami(annotations, spec.node_name),
    )


def _is_counted_by_hami(annotations: Mapping[str, str], node: str) -> bool:
    return bool(node) and annotations.get(NODE_KEY) == node and ALLOCATED_KEY in annotations


def summary_if_needed(pod: WatchedPod, _: bytes) -> PodSummary | None:
    """Return the summary of *pod*, ``None`` where nobody needs it.

    That is a pod without extended resources, which asks for no GPU, and without a PodGroup.
    """
    needed = _extended_of(pod) or _group_of(pod.metadata.annotations)
    return summary_of(pod) if needed else None


def _extended_of(pod: WatchedPod) -> tuple[str, ...]:
    spec = pod.spec
    return _extended_resources((*spec.containers, *(spec.init_containers or ())))


def _group_of(annotations: Mapping[str, str] | None) -> str:
    """Return the PodGroup that *annotations* name; it may not exist."""
    if not annotations:
        return ""
    return next(filter(is_safe_name, (annotations.get(key, "") for key in POD_GROUP_KEYS)), "")


@lru_cache(maxsize=MOST_SHARED)
def _shared_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


def _extended_resources(containers: Sequence[WatchedContainer]) -> tuple[str, ...]:
    """Return the names with a slash, which only extended resources have, each once.

    One of which a container may use nothing is left out. Of too many, those of a known vocabulary
    come first, so that no pod hides its request.
    """
    names = {
        name: None
        for container in containers
        if container.resources is not None
        for name, amount in (container.resources.limits or {}).items()
        if "/" in name and bytes(amount) not in _NOTHING
    }
    if len(names) <= MOST_RESOURCES:
        return tuple(names)
    return tuple(sorted(names, key=lambda name: not name.startswith(_KNOWN))[:MOST_RESOURCES])
