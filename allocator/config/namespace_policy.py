"""What an administrator wrote on a namespace about the modes of its pods."""

from collections.abc import Mapping
from typing import Final

from allocator.catalog.keys import (
    ISOLATE_KEY,
    LIBRARY_KEY,
    MIN_ISOLATION_KEY,
    PREFER_KEY,
)
from allocator.config.settings import Prefer
from allocator.model.decision import Finding, Reason
from allocator.model.request import Mode, PodRequest
from allocator.model.untrusted import quote
from allocator.model.value import Value
from allocator.request.wording import vocabulary_of

_LEVELS: Final = {str(Mode.MEMORY_ONLY): 0, str(Mode.HAMI_CORE): 1, str(Mode.MIG): 2}
# How modes that no namespace demands by name isolate.
_OTHER_LEVELS: Final = {Mode.MPS: 1, Mode.SGPU: 1, Mode.NATIVE: 2}


class NamespacePolicy(Value, frozen=True):
    """The preference between modes of a namespace, and the weakest mode that it admits."""

    prefer: Prefer | None = None
    min_isolation: str | None = None  # as written, so perhaps not a mode

    @property
    def only_mode(self) -> Mode | None:
        """Return the one mode that is strong enough, where there is but one."""
        return Mode.MIG if self.min_isolation == Mode.MIG else None


ANY_MODE: Final = NamespacePolicy()


def namespace_policy(annotations: Mapping[str, str]) -> NamespacePolicy:
    """Return the policy in the annotations of a namespace.

    An unknown preference is none. An unreadable demand stays, because it must refuse all pods.
    """
    prefer = annotations.get(PREFER_KEY, "")
    return NamespacePolicy(
        prefer=Prefer(prefer) if prefer in set(Prefer) else None,
        min_isolation=annotations.get(MIN_ISOLATION_KEY),
    )


def isolation_finding(
    policy: NamespacePolicy, request: PodRequest, mode: Mode | None
) -> Finding | None:
    """Find a mode that isolates less than the namespace demands, or a demand that is unreadable.

    *mode* is the final one. ``None`` means the one that *request* names; where it names none, the
    mode is open, and nothing is wrong with it yet.
    """
    demanded = policy.min_isolation
    if demanded is None:
        return None
    if demanded not in _LEVELS:
        return _unreadable_demand(demanded)
    chosen = mode or request.named_mode
    if chosen is None or _level(chosen) >= _LEVELS[demanded]:
        return None
    return Finding(
        reason=Reason.ISOLATION,
        place="pod",
        field="metadata.annotations",
        what=f"mode {chosen} isolates less than {demanded}, which the namespace demands with "
        f"{MIN_ISOLATION_KEY}",
        remedy=_stronger(request, demanded),
    )


def _level(mode: Mode) -> int:
    return _OTHER_LEVELS[mode] if mode in _OTHER_LEVELS else _LEVELS[mode]


def _unreadable_demand(text: str) -> Finding:
    return Finding(
        reason=Reason.ISOLATION,
        place="pod",
        field="metadata.namespace",
        what=f"{MIN_ISOLATION_KEY} {quote(text)} on the namespace is none of {', '.join(_LEVELS)}",
        remedy="ask an administrator to correct it",
    )


def _stronger(request: PodRequest, demanded: str) -> str:
    """Return what the user changes to get the demanded mode."""
    names = vocabulary_of(request)
    if names.mode is not None and demanded == Mode.HAMI_CORE:
        return f'set {ISOLATE_KEY} to "true"'
    if names.mode is not None:  # its resources go with no mode of hardware
        return f"ask for {names.slot} and its memory in MiB instead of {names.memory}"
    named_by = (LIBRARY_KEY if request.library_off else None, request.mode_key)
    if keys := [key for key in named_by if key is not None]:
        return f"remove {' and '.join(keys)}"
    named = request.named_mode is not None
    return f"use mode {demanded}" if named else "delete the pod so that it is created anew"
