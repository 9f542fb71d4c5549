"""Preferences: what a pod's annotations say about how nodes, and GPUs on a node, are filled."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from allocator.catalog.annotations import GPU_POLICY_KEY, NODE_POLICY_KEY
from allocator.core.wording import escaped, quote
from allocator.model.decision import Finding, Reason
from allocator.model.request import ANY_PACKING, FillPolicies, FillPolicy

HAMI_NODE_KEY: Final = "hami.io/node-scheduler-policy"
HAMI_GPU_KEY: Final = "hami.io/gpu-scheduler-policy"

_WORDS: Final = MappingProxyType({str(packing): packing for packing in FillPolicy})
# What we do for every pod that asks for several GPUs, so that these words ask for nothing more.
_TOPOLOGY: Final = frozenset({"numa", "topology-aware"})
_LONGEST: Final = 256  # characters of one value


def preferences(annotations: Mapping[str, str]) -> FillPolicies | tuple[Finding, ...]:
    """Read the *annotations* of a pod, ours before HAMi's; never an empty tuple.

    HAMi's list for GPUs holds sort keys in the order of their weight, so its first word counts.
    """
    node = _first(annotations, NODE_POLICY_KEY, HAMI_NODE_KEY)
    gpu = _first(annotations, GPU_POLICY_KEY, HAMI_GPU_KEY)
    if isinstance(node, Finding) or isinstance(gpu, Finding):
        return tuple(found for found in (node, gpu) if isinstance(found, Finding))
    return ANY_PACKING if node is None is gpu else FillPolicies(node=node, gpu=gpu)


def _first(annotations: Mapping[str, str], *keys: str) -> FillPolicy | Finding | None:
    key = next((key for key in keys if key in annotations), None)
    if key is None:
        return None
    text = annotations[key]
    if key != HAMI_GPU_KEY:
        return _WORDS.get(text) or _unknown_policy(key, text)
    return _hami(text[:_LONGEST])


def _hami(text: str) -> FillPolicy | Finding | None:
    found: list[FillPolicy] = []
    for word in map(str.strip, text.split(",")):
        if word == "mutex":
            return _policy_finding(
                HAMI_GPU_KEY,
                f"{HAMI_GPU_KEY} {quote(text)} wants GPUs that nobody shares",
                "ask for 100 cores, which are a GPU to oneself, and remove mutex",
            )
        if word in _WORDS:
            found.append(_WORDS[word])
        elif word not in _TOPOLOGY:
            return _unknown_policy(HAMI_GPU_KEY, text)
    return found[0] if found else None


def _unknown_policy(key: str, text: str) -> Finding:
    return _policy_finding(
        key, f"{key} {quote(text)} is no policy here", f"use binpack or spread, or remove {key}"
    )


def _policy_finding(key: str, what: str, remedy: str) -> Finding:
    field = f'metadata.annotations["{escaped(key)}"]'
    return Finding(reason=Reason.MALFORMED, place="pod", field=field, what=what, remedy=remedy)
