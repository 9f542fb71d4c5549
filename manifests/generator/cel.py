"""CEL conditions for the API server, built from the vocabularies.

Every optional field is guarded: an error in an expression refuses a request or skips a hook.
"""

from collections.abc import Iterable

from allocator.catalog.vocabularies import VOCABULARIES


def text(value: str) -> str:
    """Return *value*, a name of ours without quotes and backslashes, as a string literal."""
    return f"'{value}'"


def strings(values: Iterable[str]) -> str:
    """Return a list literal of *values*, sorted."""
    return f"[{', '.join(map(text, sorted(values)))}]"


def is_ours(variable: str) -> str:
    """Return the condition that *variable* names a resource of a vocabulary."""
    prefixes = sorted({prefix for v in VOCABULARIES for prefix in v.prefixes})
    names = {name for v in VOCABULARIES for name in v.resources if not name.startswith(v.prefixes)}
    parts = [f"{variable}.startsWith({text(prefix)})" for prefix in prefixes]
    parts += [f"{variable} == {text(name)}" for name in sorted(names)]
    return " || ".join(parts)


def asks_for_vgpu(spec: str = "object.spec") -> str:
    """Return the condition that a container of the pod *spec* asks for vGPU.

    Limits suffice, because the API server refuses an extended resource that is only requested;
    and it admits no resources on ephemeral containers or on the pod itself. The type checker
    of policies knows no map of quantities, hence ``dyn``.
    """
    return f"({containers_of(spec)})\n  .exists(c, {asks()})"


def containers_of(spec: str) -> str:
    """Return a list expression of the containers that a pod *spec* is created with."""
    return (
        f"dyn({spec}.containers) + (has({spec}.initContainers) ? dyn({spec}.initContainers) : [])"
    )


def asks() -> str:
    """Return the condition that container ``c`` asks for vGPU."""
    return (
        "has(c.resources) && has(c.resources.limits) &&\n"
        f"    c.resources.limits.exists(r, {is_ours('r')})"
    )


def asks_for_none() -> str:
    """Return the opposite condition, so that each pod matches exactly one hook."""
    return f"!({asks_for_vgpu()})"


def makes_vgpu_pods() -> str:
    """Return the condition that a pod template of a workload asks for vGPU.

    Volcano's jobs have a template for each task, CronJobs have it in that of their Jobs. Where a
    part is missing, the condition is an error, and the API server skips the hook.
    """
    asking = asks_for_vgpu("t.spec")
    return (
        "(has(object.spec.tasks) ? dyn(object.spec.tasks.map(k, dyn(k.template))) :\n"
        "  has(object.spec.jobTemplate) ? dyn([object.spec.jobTemplate.spec.template]) :\n"
        "  dyn([object.spec.template]))\n"
        f"  .exists(t, {asking})"
    )


def changes_pods() -> str:
    """Return the condition that a workload is new or its spec changed.

    Controllers write annotations and finalizers, and nobody reads what they are warned of. The
    ``generation`` of a Deployment counts changes of its annotations, too.
    """
    return "request.operation == 'CREATE' || object.spec != oldObject.spec"
