"""Conditions on pods that the API server evaluates, in CEL, built from the vocabularies.

Every optional field is guarded: an error in an expression refuses a request or skips a hook.
"""

from collections.abc import Iterable
from typing import Any, Final

from allocator.catalog.keys import OPT_IN_LABEL, OPT_IN_VALUE
from allocator.catalog.vocabularies import OTHER_PLUGINS, VOCABULARIES, Vocabulary

SYSTEM_NAMESPACE: Final = "vgpu-admission-system"
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
# The evaluator's time grows with the square of a list (100,000 variables took it 20 seconds), so
# longer lists are not searched. No container that runs has as many.
MOST_LIMITS: Final = 1000
MOST_VARIABLES: Final = 10_000


def text(value: str) -> str:
    """Return *value*, a name of ours without quotes and backslashes, as a string literal."""
    return f"'{value}'"


def literal(pattern: str) -> str:
    """Return *pattern*, a regular expression of ours without quotes, as a string literal."""
    return f"r'{pattern}'" if "\\" in pattern else text(pattern)


def strings(values: Iterable[str]) -> str:
    """Return a list literal of *values*, sorted."""
    return f"[{', '.join(map(text, sorted(values)))}]"


def is_ours(variable: str, vocabularies: Iterable[Vocabulary] = VOCABULARIES) -> str:
    """Return the condition that *variable* names a resource of one of *vocabularies*."""
    known = tuple(vocabularies)
    prefixes = sorted({prefix for v in known for prefix in v.prefixes})
    names = {name for v in known for name in v.resources if not name.startswith(v.prefixes)}
    parts = [f"{variable}.startsWith({text(prefix)})" for prefix in prefixes]
    parts += [f"{variable} == {text(name)}" for name in sorted(names)]
    return " || ".join(parts)


def asks(vocabularies: Iterable[Vocabulary] = VOCABULARIES) -> str:
    """Return the condition that container ``c`` asks for vGPU.

    More limits than are searched count as asking, so that the hook decides that must answer.
    """
    return (
        "has(c.resources) && has(c.resources.limits) &&\n"
        f"    (c.resources.limits.size() > {MOST_LIMITS} ||\n"
        f"    c.resources.limits.exists(r, {is_ours('r', vocabularies)}))"
    )


def asks_for_vgpu(
    spec: str = "object.spec", vocabularies: Iterable[Vocabulary] = VOCABULARIES
) -> str:
    """Return the condition that a container of the pod *spec* asks for vGPU.

    Limits suffice, because the API server refuses an extended resource that is only requested;
    and it admits no resources on ephemeral containers or on the pod itself. The type checker
    of policies knows no map of quantities, hence ``dyn``.
    """
    return f"({containers_of(spec)})\n  .exists(c, {asks(vocabularies)})"


def asks_for_none(vocabularies: Iterable[Vocabulary] = VOCABULARIES) -> str:
    """Return the opposite condition, so that each pod matches exactly one hook."""
    return f"!({asks_for_vgpu(vocabularies=vocabularies)})"


def containers_of(spec: str) -> str:
    """Return a list expression of the containers that a pod *spec* is created with."""
    return (
        f"dyn({spec}.containers) + (has({spec}.initContainers) ? dyn({spec}.initContainers) : [])"
    )


def is_given_gpu() -> str:
    """Return the condition that another device plugin gives container ``c`` a GPU.

    Quantities are as the API server writes them, so any zero is ``0``; it refuses negative ones.
    """
    names = " || ".join(f"r.startsWith({text(prefix)})" for prefix in OTHER_PLUGINS)
    return (
        "has(c.resources) && has(c.resources.limits) &&\n"
        f"    c.resources.limits.exists(r, ({names}) && c.resources.limits[r] != '0')"
    )


def opt_in_selector() -> dict[str, Any]:
    """Select opted-in namespaces, never the two that must start before we can answer."""
    return {
        "matchExpressions": [
            {"key": OPT_IN_LABEL, "operator": "In", "values": [OPT_IN_VALUE]},
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": [SYSTEM_NAMESPACE, "kube-system"],
            },
        ]
    }
