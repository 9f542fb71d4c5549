"""Mode, MIG profile, GPU filters, priority and policies named on the pod."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from allocator.catalog.keys import (
    GPU_POLICY_KEY,
    LIBRARY_KEY,
    LIBRARY_OFF,
    MODE_KEY,
    NODE_POLICY_KEY,
    PRIORITY_KEY,
    PROFILE_KEY,
)
from allocator.catalog.vocabularies import VOLCANO, Vocabulary
from allocator.model.decision import Finding, Findings, Reason, all_findings
from allocator.model.request import (
    ANY_FILL_POLICY,
    ContainerRequest,
    FillPolicies,
    FillPolicy,
    Filters,
    Mode,
    Priority,
)
from allocator.model.untrusted import escaped, quote
from allocator.model.value import Value

MOST_ITEMS: Final = 256  # in one list, which a decision reads for every kind of GPU
LONGEST_PROFILE: Final = 32  # characters; the longest that exists has 12
_MODES: Final = MappingProxyType({str(mode): mode for mode in (Mode.MIG, Mode.HAMI_CORE)})
_PRIORITIES: Final = MappingProxyType({p.name.lower(): p for p in Priority})
_LIBRARY_MODES: Final = frozenset({None, Mode.HAMI_CORE, Mode.MEMORY_ONLY})
_PROFILE: Final = re.compile(r"[0-9]++g\.[0-9]++gb([+-][a-z.]++)?+")
_NO_FILTERS: Final = Filters()


class AnnotationRequest(Value, frozen=True):
    """What the annotations of a pod ask for, for all its containers."""

    mode: Mode | None = None  # as the user named it
    mode_key: str | None = None  # the annotation that names it
    profile: str | None = None  # the MIG profile that the user named
    filters: Filters = _NO_FILTERS
    priority: Priority = Priority.LOW


_NOTHING_NAMED: Final = AnnotationRequest()


def annotation_request(
    annotations: Mapping[str, str], vocabulary: Vocabulary
) -> AnnotationRequest | Findings:
    """Return what the *annotations* that *vocabulary* has ask for, or what is wrong with them."""
    named = _named_mode(annotations, vocabulary)
    mode, mode_key = named if isinstance(named, tuple) else (named, None)
    profile = _profile(annotations, mode, vocabulary, mode_key=mode_key)
    filters = _filters(annotations, vocabulary)
    priority = _priority(annotations)
    if (
        isinstance(mode, Finding)
        or isinstance(profile, Finding)
        or isinstance(filters, list)
        or isinstance(priority, Finding)
    ):
        first = [part for part in (mode, profile, priority) if isinstance(part, Finding)]
        return all_findings([*first, *(filters if isinstance(filters, list) else ())])
    if profile is not None:
        mode = Mode.MIG
    if mode is None and filters is _NO_FILTERS and priority is Priority.LOW:
        return _NOTHING_NAMED
    return AnnotationRequest(
        mode=mode, mode_key=mode_key, profile=profile, filters=filters, priority=priority
    )


def _named_mode(
    annotations: Mapping[str, str], vocabulary: Vocabulary
) -> tuple[Mode | None, str | None] | Finding:
    """Return the mode with the annotation that names it, or the one of the vocabulary.

    Two annotations that name different modes are refused, so that none is ignored.
    """
    first: tuple[Mode, str] | None = None
    for key in mode_keys(vocabulary):
        if key not in annotations:
            continue
        mode = _mode_of(key, annotations[key], vocabulary)
        if isinstance(mode, Finding):
            return mode
        if first is None:
            first = mode, key
        elif first[0] is not mode:
            return _finding(
                key,
                f"{first[1]} asks for mode {first[0]}, but {key} for {mode}",
                "keep one",
                reason=Reason.CONFLICTING,
            )
    if first is None or first[0] is vocabulary.mode:
        return vocabulary.mode, None
    return first


@lru_cache(maxsize=8)
def mode_keys(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the annotations that name a mode for pods of *vocabulary*.

    Where an ecosystem has none, its users may write ours or Volcano's.
    """
    isolate = (vocabulary.isolate_key,) if vocabulary.isolate_key is not None else ()
    if vocabulary.mode_key is not None:
        return (*isolate, vocabulary.mode_key)
    volcano = (VOLCANO.mode_key,) if VOLCANO.mode_key is not None else ()
    return (*isolate, MODE_KEY, *volcano)


def _mode_of(key: str, text: str, vocabulary: Vocabulary) -> Mode | Finding:
    """Return the mode that the annotation *key* names by *text*."""
    if key == vocabulary.isolate_key:
        return _isolation_mode(key, text)
    if key == MODE_KEY and vocabulary.mode is not None and text == str(vocabulary.mode):
        return vocabulary.mode  # as an earlier pass of admission writes it
    if text == str(Mode.MIG) and vocabulary.mode is not None and vocabulary.named_modes:
        return _mig_elsewhere(key, vocabulary)
    if not vocabulary.named_modes:
        what = f"{key} {quote(text)} does not go with {vocabulary.slot}, whose mode is set already"
        return _finding(key, what, f"remove {key}", reason=Reason.MODE_UNAVAILABLE)
    return _MODES.get(text) or _finding(
        key,
        f"mode {quote(text)} is not known",
        f"use mig or hami-core, or remove {key}",
        reason=Reason.MODE_UNAVAILABLE,
    )


def _mig_elsewhere(key: str, vocabulary: Vocabulary) -> Finding:
    """Return why a pod of *vocabulary*, which has a mode of its own, cannot become MIG.

    A node has capacity of its resources for GPUs in that mode alone. Otherwise schedulers would try
    MIG nodes for the other pods of the vocabulary, which cannot be bound there.
    """
    return _finding(
        key,
        f"{key} mig does not go with {vocabulary.memory}, which GPUs in mode mig do not offer",
        f"use hami-core, or ask for {vocabulary.slot} and its memory in MiB instead",
        reason=Reason.MODE_UNAVAILABLE,
    )


def _isolation_mode(key: str, text: str) -> Mode | Finding:
    if text == "true":
        return Mode.HAMI_CORE
    return _finding(key, f"{key} {quote(text)} is not true", f'set it to "true", or remove {key}')


def _profile(
    annotations: Mapping[str, str],
    mode: Mode | Finding | None,
    vocabulary: Vocabulary,
    *,
    mode_key: str | None,
) -> str | Finding | None:
    """Return the MIG profile named; whether any board has it is not checked here."""
    text = annotations.get(PROFILE_KEY)
    if text is None:
        return None
    if len(text) > LONGEST_PROFILE or _PROFILE.fullmatch(text) is None:
        return _finding(
            PROFILE_KEY,
            f"{PROFILE_KEY} {quote(text)} is not a MIG profile",
            f"name one as nvidia-smi does, e.g. 1g.5gb, or remove {PROFILE_KEY}",
        )
    if mode is not None and mode is not Mode.MIG:
        ways = [f"remove {PROFILE_KEY}"]
        if vocabulary.mode is None:
            ways.append(f"set {mode_key or vocabulary.mode_key or MODE_KEY} to mig")
        return _finding(
            PROFILE_KEY,
            f"{PROFILE_KEY} {quote(text)} needs mode mig, but the mode is {mode}",
            ", or ".join(ways),
            reason=Reason.CONFLICTING,
        )
    return text


def _priority(annotations: Mapping[str, str]) -> Priority | Finding:
    """Return the priority of the kernels; whether the namespace allows it is checked later."""
    text = annotations.get(PRIORITY_KEY)
    if text is None:
        return Priority.LOW
    priority = _PRIORITIES.get(text)
    if priority is not None:
        return priority
    return _finding(
        PRIORITY_KEY,
        f"{PRIORITY_KEY} {quote(text)} is not a priority",
        f"use high or low, or remove {PRIORITY_KEY}",
    )


def _filters(annotations: Mapping[str, str], vocabulary: Vocabulary) -> Filters | list[Finding]:
    models = _items(annotations, vocabulary.use_models)
    not_models = _items(annotations, vocabulary.not_models, blank_excludes=True)
    uuids = _items(annotations, vocabulary.use_uuids)
    not_uuids = _items(annotations, vocabulary.not_uuids)
    if not (models or not_models or uuids or not_uuids):
        return _NO_FILTERS
    if (
        isinstance(models, Finding)
        or isinstance(not_models, Finding)
        or isinstance(uuids, Finding)
        or isinstance(not_uuids, Finding)
    ):
        filters = (models, not_models, uuids, not_uuids)
        return [item for item in filters if isinstance(item, Finding)]
    return Filters(models=models, not_models=not_models, uuids=uuids, not_uuids=not_uuids)


def _items(
    annotations: Mapping[str, str], key: str | None, *, blank_excludes: bool = False
) -> tuple[str, ...] | Finding:
    """Split a comma-separated list; empty items are dropped, as they would match everything.

    A blank list is no filter, as Volcano reads it: an empty model is part of every name, and empty
    UUIDs are dropped. A blank list of models not to use therefore excludes every GPU
    (*blank_excludes*), and is refused.
    """
    if key is None or key not in annotations:
        return ()
    text = annotations[key]
    items = tuple(item for part in text.split(",", MOST_ITEMS) if (item := part.strip()))
    if not items:
        if not blank_excludes:
            return ()
        what = f"{key} {quote(text)} excludes every GPU"
        return _finding(key, what, f"name a model, or remove {key}")
    if (number := text.count(",") + 1) > MOST_ITEMS:
        what = f"{key} {quote(text)} has {number} items"
        return _finding(key, what, f"name at most {MOST_ITEMS}")
    return items


def library_off(
    annotations: Mapping[str, str],
    named: AnnotationRequest,
    asking: Sequence[ContainerRequest],
    *,
    vocabulary: Vocabulary,
) -> bool | Finding:
    """Say whether the library is off in a pod that names *named*, or what is wrong with that.

    A mode that the vocabulary brings, rather than a person names, gives way.
    """
    text = annotations.get(LIBRARY_KEY)
    if text is None:
        return False
    if text != LIBRARY_OFF:
        what = f"{LIBRARY_KEY} {quote(text)} is not {LIBRARY_OFF}"
        return _finding(LIBRARY_KEY, what, f'set it to "{LIBRARY_OFF}", or remove it')
    if vocabulary.mode not in _LIBRARY_MODES:
        what = f"{LIBRARY_KEY} is about a library that mode {vocabulary.mode} does not use"
        return _finding(LIBRARY_KEY, what, f"remove {LIBRARY_KEY}", reason=Reason.CONFLICTING)
    mode, key = named.mode, PROFILE_KEY if named.profile is not None else named.mode_key
    if mode is not None and mode is not Mode.HAMI_CORE and mode is not vocabulary.mode:
        what = f"{LIBRARY_KEY} {LIBRARY_OFF} needs mode hami-core, but the mode is {mode}"
        remedy = f"remove {LIBRARY_KEY}, or remove {key}"
        return _finding(LIBRARY_KEY, what, remedy, reason=Reason.CONFLICTING)
    if not any(container.whole for container in asking):
        what = f"{LIBRARY_KEY} {LIBRARY_OFF} needs a container that gets whole GPUs, and none does"
        return _finding(LIBRARY_KEY, what, _whole_remedy(vocabulary), reason=Reason.CONFLICTING)
    return True


def _whole_remedy(vocabulary: Vocabulary) -> str:
    """Return how a container asks for a whole GPU in the resources of *vocabulary*."""
    if vocabulary.whole:
        return f"ask for {vocabulary.count} alone, or remove {LIBRARY_KEY}"
    return (
        f"ask for all memory (remove {vocabulary.memory}) and {vocabulary.cores}: 100, "
        f"or remove {LIBRARY_KEY}"
    )


def _finding(key: str, what: str, remedy: str, *, reason: Reason = Reason.MALFORMED) -> Finding:
    return Finding(
        reason=reason,
        place="pod",
        field=f'metadata.annotations["{escaped(key)}"]',
        what=what,
        remedy=remedy,
    )


HAMI_NODE_KEY: Final = "hami.io/node-scheduler-policy"
HAMI_GPU_KEY: Final = "hami.io/gpu-scheduler-policy"
_POLICIES: Final = MappingProxyType({str(packing): packing for packing in FillPolicy})
# Sort keys of HAMi that change nothing here: several GPUs are always chosen by topology.
_TOPOLOGY: Final = frozenset({"numa", "topology-aware"})
_LONGEST: Final = 256  # characters of one value


def fill_policies(annotations: Mapping[str, str]) -> FillPolicies | Findings:
    """Return the fill policies in *annotations*; our keys go before HAMi's.

    HAMi's list for GPUs holds sort keys, the most important first, so the first policy counts.
    """
    node = _fill_policy(annotations, NODE_POLICY_KEY, HAMI_NODE_KEY)
    gpu = _fill_policy(annotations, GPU_POLICY_KEY, HAMI_GPU_KEY)
    if isinstance(node, Finding) or isinstance(gpu, Finding):
        return all_findings([policy for policy in (node, gpu) if isinstance(policy, Finding)])
    return ANY_FILL_POLICY if node is None is gpu else FillPolicies(node=node, gpu=gpu)


def _fill_policy(annotations: Mapping[str, str], *keys: str) -> FillPolicy | Finding | None:
    key = next((key for key in keys if key in annotations), None)
    if key is None:
        return None
    text = annotations[key]
    if key != HAMI_GPU_KEY:
        return _POLICIES.get(text) or _unknown_policy(key, text)
    return _hami_policy(text[:_LONGEST])


def _hami_policy(text: str) -> FillPolicy | Finding | None:
    policies: list[FillPolicy] = []
    for word in map(str.strip, text.split(",")):
        if word == "mutex":
            return _policy_finding(
                HAMI_GPU_KEY,
                f"{HAMI_GPU_KEY} {quote(word)} asks for GPUs that are not shared",
                "ask for 100 cores, which reserve a whole GPU, and remove mutex",
            )
        if word in _POLICIES:
            policies.append(_POLICIES[word])
        elif word not in _TOPOLOGY:
            return _unknown_policy(HAMI_GPU_KEY, word)  # of a long list the wrong part is shown
    return policies[0] if policies else None


def _unknown_policy(key: str, text: str) -> Finding:
    return _policy_finding(
        key, f"{key} {quote(text)} is not a policy", f"use binpack or spread, or remove {key}"
    )


def _policy_finding(key: str, what: str, remedy: str) -> Finding:
    field = f'metadata.annotations["{escaped(key)}"]'
    return Finding(reason=Reason.MALFORMED, place="pod", field=field, what=what, remedy=remedy)
