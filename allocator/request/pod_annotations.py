"""Mode, MIG profile, GPU filters, priority and policies named on the pod."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from allocator.catalog.keys import (
    GPU_POLICY_KEY,
    MODE_KEY,
    NODE_POLICY_KEY,
    PRIORITY_KEY,
    PROFILE_KEY,
)
from allocator.catalog.vocabularies import VOLCANO, Vocabulary
from allocator.model.decision import Finding, Findings, Reason, all_findings
from allocator.model.request import (
    ANY_FILL_POLICY,
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
# Modes of a GPU for which no vocabulary with a mode of its own has capacity.
_APART: Final = frozenset({str(Mode.MIG), str(Mode.MPS)})
_PRIORITIES: Final = MappingProxyType({p.name.lower(): p for p in Priority})
_PROFILE: Final = re.compile(r"[0-9]++g\.[0-9]++gb([+-][a-z.]++)?+")
_NO_FILTERS: Final = Filters()


class AnnotationRequest(Value, frozen=True):
    """What the annotations of a pod ask for, for all its containers."""

    mode: Mode | None = None  # as the user named it
    mode_key: str | None = None  # the annotation that names it
    profile: str | None = None  # the MIG profile that the user named
    filters: Filters = _NO_FILTERS
    priority: Priority = Priority.LOW
    one_numa: bool = False  # all GPUs of a container are on one NUMA node


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
    one_numa = _truth(annotations, vocabulary.numa_key)
    if (
        isinstance(mode, Finding)
        or isinstance(profile, Finding)
        or isinstance(filters, list)
        or isinstance(priority, Finding)
        or isinstance(one_numa, Finding)
    ):
        parts = (mode, profile, priority, one_numa)
        first = [part for part in parts if isinstance(part, Finding)]
        return all_findings([*first, *(filters if isinstance(filters, list) else ())])
    if profile is not None:
        mode = Mode.MIG
    if mode is None and filters is _NO_FILTERS and priority is Priority.LOW and not one_numa:
        return _NOTHING_NAMED
    return AnnotationRequest(
        mode=mode,
        mode_key=mode_key,
        profile=profile,
        filters=filters,
        priority=priority,
        one_numa=one_numa,
    )


def _named_mode(
    annotations: Mapping[str, str], vocabulary: Vocabulary
) -> tuple[Mode | None, str | None] | Finding:
    """Return the mode with the annotation that names it, or the one of the vocabulary.

    Two annotations that name different modes are refused, so that none is ignored.
    """
    accepted = _accepted_modes(annotations, vocabulary)
    if isinstance(accepted, Finding):
        return accepted
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
            return annotation_finding(
                key,
                f"{first[1]} asks for mode {first[0]}, but {key} for {mode}",
                "keep one",
                reason=Reason.CONFLICTING,
            )
    if accepted:
        return _within(accepted, first, vocabulary.modes_key or "")
    if first is None or first[0] is vocabulary.mode:
        return vocabulary.mode, None
    return first


def _accepted_modes(
    annotations: Mapping[str, str], vocabulary: Vocabulary
) -> tuple[Mode, ...] | Finding:
    """Return the modes that a list of them accepts; none where there is no list, or a blank one."""
    modes = _items(annotations, vocabulary.modes_key)
    if isinstance(modes, Finding):
        return modes
    known = {str(mode): mode for mode in vocabulary.named_modes}
    for text in modes:
        if text not in known:
            return _unknown_mode(vocabulary.modes_key or "", text, vocabulary)
    return tuple(mode for text, mode in known.items() if text in modes)


def _within(
    accepted: tuple[Mode, ...], named: tuple[Mode, str] | None, key: str
) -> tuple[Mode | None, str | None] | Finding:
    """Return the one mode that a pod which accepts *accepted* names, if it is one.

    MPS is never chosen for a pod that accepts another mode too.
    """
    if named is not None:
        mode, other = named
        if mode in accepted:
            return named
        what = f"{other} asks for mode {mode}, but {key} for {' or '.join(accepted)}"
        return annotation_finding(key, what, "keep one", reason=Reason.CONFLICTING)
    chosen = tuple(mode for mode in accepted if mode is not Mode.MPS) or accepted
    return (chosen[0], key) if len(chosen) == 1 else (None, None)


def _unknown_mode(key: str, text: str, vocabulary: Vocabulary) -> Finding:
    *others, last = vocabulary.named_modes
    known = f"{', '.join(others)} or {last}" if others else str(last)
    return annotation_finding(
        key,
        f"mode {quote(text)} is not known",
        f"use {known}, or remove {key}",
        reason=Reason.MODE_UNAVAILABLE,
    )


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
    if text in _APART and vocabulary.mode is not None and vocabulary.named_modes:
        return _elsewhere(key, text, vocabulary)
    if not vocabulary.named_modes:
        what = f"{key} {quote(text)} does not go with {vocabulary.slot}, whose mode is set already"
        return annotation_finding(key, what, f"remove {key}", reason=Reason.MODE_UNAVAILABLE)
    named = next((mode for mode in vocabulary.named_modes if mode == text), None)
    return named or _unknown_mode(key, text, vocabulary)


def _elsewhere(key: str, mode: str, vocabulary: Vocabulary) -> Finding:
    """Return why a pod of *vocabulary*, which has a mode of its own, cannot get *mode*.

    A node has capacity of its resources for GPUs in that mode alone. Otherwise schedulers would try
    nodes of *mode* for the other pods of the vocabulary, which cannot be bound there.
    """
    return annotation_finding(
        key,
        f"{key} {mode} does not go with {vocabulary.memory}, which GPUs in mode {mode} do not "
        "offer",
        f"use hami-core, or ask for {vocabulary.slot} and its memory in MiB instead",
        reason=Reason.MODE_UNAVAILABLE,
    )


def _isolation_mode(key: str, text: str) -> Mode | Finding:
    if text == "true":
        return Mode.HAMI_CORE
    return annotation_finding(
        key, f"{key} {quote(text)} is not true", f'set it to "true", or remove {key}'
    )


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
        return annotation_finding(
            PROFILE_KEY,
            f"{PROFILE_KEY} {quote(text)} is not a MIG profile",
            f"name one as nvidia-smi does, e.g. 1g.5gb, or remove {PROFILE_KEY}",
        )
    if mode is not None and not isinstance(mode, Finding) and mode is not Mode.MIG:
        ways = [f"remove {PROFILE_KEY}"]
        if vocabulary.mode is None:
            ways.append(f"set {mode_key or vocabulary.mode_key or MODE_KEY} to mig")
        return annotation_finding(
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
    return annotation_finding(
        PRIORITY_KEY,
        f"{PRIORITY_KEY} {quote(text)} is not a priority",
        f"use high or low, or remove {PRIORITY_KEY}",
    )


# As Go's strconv.ParseBool reads them, and HAMi by it.
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _truth(annotations: Mapping[str, str], key: str | None) -> bool | Finding:
    """Return what the annotation *key* says, false where there is none."""
    if key is None or key not in annotations:
        return False
    text = annotations[key]
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    what = f"{key} {quote(text)} is neither true nor false"
    return annotation_finding(key, what, f'set it to "true", or remove {key}')


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
        return annotation_finding(key, what, f"name a model, or remove {key}")
    if (number := text.count(",") + 1) > MOST_ITEMS:
        what = f"{key} {quote(text)} has {number} items"
        return annotation_finding(key, what, f"name at most {MOST_ITEMS}")
    return items


def annotation_finding(
    key: str, what: str, remedy: str, *, reason: Reason = Reason.MALFORMED
) -> Finding:
    """Return the finding about the annotation *key* of a pod."""
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
            return annotation_finding(
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
    return annotation_finding(
        key, f"{key} {quote(text)} is not a policy", f"use binpack or spread, or remove {key}"
    )
