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


def asks_for_vgpu() -> str:
    """Return the condition that a container asks for vGPU.

    Limits suffice, because the API server refuses an extended resource that is only requested;
    and it admits no resources on ephemeral containers or on the pod itself. The type checker
    of policies knows no map of quantities, hence ``dyn``.
    """
    return (
        "(dyn(object.spec.containers) + "
        "(has(object.spec.initContainers) ? dyn(object.spec.initContainers) : []))\n"
        "  .exists(c, has(c.resources) && has(c.resources.limits) &&\n"
        f"    c.resources.limits.exists(r, {is_ours('r')}))"
    )


def asks_for_none() -> str:
    """Return the opposite condition, so that each pod matches exactly one hook."""
    return f"!({asks_for_vgpu()})"
