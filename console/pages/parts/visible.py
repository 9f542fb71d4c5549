"""What a viewer may see of the cluster as it is now: nodes with other tenants without their names.

Whoever may not read GPUNodes sees neither nodes nor ledgers, as with ``kubectl vgpu``. Whoever
may, but not the pods of a namespace, learns that "another namespace" holds a grant.
"""

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView
from console.explain.why import PodWhy
from console.languages.messages import message
from console.records.query import Scope

ANOTHER: Final = message("another namespace")


def sees(scope: Scope, namespace: str) -> bool:
    """Say whether the pods of *namespace* may be seen."""
    return scope.namespaces is None or namespace in scope.namespaces


def visible_name(scope: Scope, namespace: str, name: str) -> str:
    """Return ``namespace/name`` of a pod, or that it is of another namespace."""
    return f"{namespace}/{name}" if sees(scope, namespace) else ANOTHER


def visible_names(scope: Scope, pods: Iterable[str]) -> tuple[str, ...]:
    """Return each ``namespace/name`` of *pods* as it may be seen, one after the other."""
    pairs = (pod.partition("/") for pod in pods)
    return tuple(visible_name(scope, namespace, name) for namespace, _, name in pairs)


def visible_pods(scope: Scope, pods: Iterable[PodView]) -> tuple[PodView, ...]:
    """Return those of *pods* that may be seen."""
    return tuple(pod for pod in pods if sees(scope, pod.namespace))


def visible_site(scope: Scope, site: ClusterView) -> ClusterView:
    """Return *site*, without its nodes where they may not be seen."""
    if scope.cluster:
        return site
    return replace(
        site,
        ledgers=MappingProxyType({}),
        accounts=MappingProxyType({}),
        created=MappingProxyType({}),
        machines=None,
        unreadable=(),
        blind=True,
    )


def visible_why(scope: Scope, pod_why: PodWhy) -> PodWhy:
    """Return *pod_why* without the names of pods that may not be seen."""
    return replace(
        pod_why,
        answers=tuple(
            replace(
                answer,
                strangers=tuple(use for use in answer.strangers if sees(scope, use.namespace)),
            )
            for answer in pod_why.answers
        ),
        freeing_pods=tuple(pod for pod in pod_why.freeing_pods if sees(scope, pod.namespace)),
    )
