"""Workloads: the kinds that make pods, by the names that kubectl has for them, and one as read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import orjson

from allocator.config.manifest import ManifestPod, pods_in
from allocator.model.problem import Rejected
from allocator.model.untrusted import quote
from console.cluster.event import CreationRefusal, EventView
from console.cluster.pod import PodMetadata, PodView

_POD_NAMES: Final = frozenset({"pod", "pods", "po"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """A kind whose objects create pods, themselves or through another kind of their group."""

    name: str
    group: str
    plural: str
    short: str = ""  # as kubectl abbreviates it
    version: str = "v1"
    through: str = ""  # plural of the kind between, such as replicasets; "" for none

    @property
    def resource(self) -> str:
        """Return the name that the API server uses in its messages."""
        return f"{self.plural}.{self.group}"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that kubectl accepts."""
        single = self.name.lower()
        return self.short, single, self.plural, f"{single}.{self.group}", self.resource


# In kubectl, too, a job without its group is the one of Kubernetes.
KINDS: Final = (
    WorkloadKind(
        name="Deployment", group="apps", plural="deployments", short="deploy", through="replicasets"
    ),
    WorkloadKind(name="ReplicaSet", group="apps", plural="replicasets", short="rs"),
    WorkloadKind(name="StatefulSet", group="apps", plural="statefulsets", short="sts"),
    WorkloadKind(name="DaemonSet", group="apps", plural="daemonsets", short="ds"),
    WorkloadKind(name="CronJob", group="batch", plural="cronjobs", short="cj", through="jobs"),
    WorkloadKind(name="Job", group="batch", plural="jobs", short="job"),
    WorkloadKind(
        name="Job", group="batch.volcano.sh", version="v1alpha1", plural="jobs", short="vcjob"
    ),
)


@dataclass(frozen=True, slots=True)
class NamedObject:
    """The object that a person named."""

    kind: WorkloadKind | None  # None: a pod
    name: str
    namespace: str = ""  # "": none was named with it


def parse_target(text: str) -> NamedObject | str:
    """Read a name as lists print it: ``NAME``, ``NAMESPACE/NAME``, ``KIND/NAME`` or all three.

    Returns a message where the text is none of these. What may be a kind is one.
    """
    *before, name = text.split("/")
    if not name or not all(before):
        return f"{quote(text)} does not name an object; accepted: {_ACCEPTED}"
    if len(before) > _MOST_BEFORE:
        return f"{quote(text)} has more than two /; accepted: {_ACCEPTED}"
    if not before:
        return NamedObject(None, name)
    first, namespace = before[0], before[1] if len(before) == _MOST_BEFORE else ""
    workload_kind = next((kind for kind in KINDS if first.lower() in kind.names), None)
    if workload_kind is not None or first.lower() in _POD_NAMES:
        return NamedObject(workload_kind, name, namespace)
    if not namespace and first not in _OTHER_KINDS and _NAMESPACE.fullmatch(first):
        return NamedObject(None, name, first)
    return f"{quote(first)} in {quote(text)} is not a kind that creates pods; accepted: {_ACCEPTED}"


# What somebody who knows kubectl may write before a name, though it makes no pods.
_OTHER_KINDS: Final = frozenset(
    {
        "cm", "configmap", "gpunode", "gpunodes", "namespace", "no", "node", "nodes", "ns", "pg",
        "podgroup", "podgroups", "pv", "pvc", "queue", "quota", "secret", "service", "svc",
    }
)  # fmt: skip
_MOST_BEFORE: Final = 2  # parts of a name before the last: a kind and a namespace
_NAMESPACE: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # an RFC 1123 label
_ACCEPTED: Final = ", ".join(
    ("NAME", "NAMESPACE/NAME", "pod/NAME", *(f"{kind.short}/NAME" for kind in KINDS))
)


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True):
    selector: _Selector | None = None
    replicas: int | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: PodMetadata
    spec: _Spec = _Spec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """An object that creates pods."""

    metadata: PodMetadata
    labels: str = ""  # a selector that all of its pods match
    replicas: int | None = None  # pods that it wants; None where its kind has no such field


def maker_of(document: Mapping[str, Any]) -> Maker:
    """Read a workload that was parsed from JSON; raises ``ValueError``."""
    workload = msgspec.convert(document, _Object)
    # Expressions only narrow the selection; owner references decide whose a pod is.
    selector = workload.spec.selector.match_labels if workload.spec.selector else None
    return Maker(
        metadata=workload.metadata,
        labels=",".join(f"{key}={value}" for key, value in (selector or {}).items()),
        replicas=workload.spec.replicas,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload with its pods, its Events and its pod templates."""

    kind: WorkloadKind
    maker: Maker
    pods: tuple[PodView, ...] = ()
    events: tuple[EventView, ...] = ()
    templates: tuple[ManifestPod[PodView], ...] = ()
    refusal: CreationRefusal | None = None  # of its latest pods

    @property
    def title(self) -> str:
        """Return its kind, namespace and name."""
        metadata = self.maker.metadata
        return f"{self.kind.name} {metadata.namespace}/{metadata.name}"


_ONLY: Final = "document 1: "  # there is no other


def templates(document: Mapping[str, Any], namespace: str) -> tuple[ManifestPod[PodView], ...]:
    """Return the pods that a stored workload would create, none where it cannot be read."""
    parsed = pods_in(orjson.dumps(document).decode(), PodView, namespace=namespace)
    pods = () if isinstance(parsed, Rejected) else parsed.value
    return tuple(replace(pod, place=pod.place.removeprefix(_ONLY)) for pod in pods)
