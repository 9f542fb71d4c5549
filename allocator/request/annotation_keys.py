"""Annotation keys that are read of a pod, and the one that a misspelt key probably means."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain, islice
from typing import Final

from allocator.catalog.keys import (
    ADMISSION_KEYS,
    ALLOCATION_KEYS,
    GROUP_POLICY_KEY,
    GROUP_SIZE_KEY,
    ISOLATE_KEY,
    MODE_KEY,
    USER_KEYS,
)
from allocator.catalog.vocabularies import OWN, Vocabulary
from allocator.model.untrusted import escaped
from allocator.request.pod_annotations import HAMI_GPU_KEY, HAMI_NODE_KEY, mode_keys

MOST_KEYS: Final = 16  # compared, of those on one pod that look like ours
MOST_WARNINGS: Final = 4
_LONGEST: Final = 64  # characters of a key worth comparing; the longest of ours has 34
_CLOSE: Final = 0.85  # difflib's ratio: one or two wrong letters
_OTHERS: Final = frozenset({HAMI_NODE_KEY, HAMI_GPU_KEY, GROUP_POLICY_KEY, GROUP_SIZE_KEY})


@lru_cache(maxsize=8)
def read_keys(vocabulary: Vocabulary) -> frozenset[str]:
    """Return the annotation keys that people may write on a pod of *vocabulary*."""
    own = USER_KEYS - {MODE_KEY, ISOLATE_KEY}
    return own | _OTHERS | {*vocabulary.annotations, *mode_keys(vocabulary)}


@lru_cache(maxsize=8)
def request_keys(vocabularies: tuple[Vocabulary, ...]) -> frozenset[str]:
    """Return the keys outside our prefix that decide which GPU fits a pod of *vocabularies*.

    They are read at CREATE and again at the bind, so nobody may change them in between.
    """
    named = chain.from_iterable(vocabulary.annotations for vocabulary in vocabularies)
    others = (key for key in named if not key.startswith(OWN))
    return frozenset({HAMI_NODE_KEY, HAMI_GPU_KEY, GROUP_SIZE_KEY, *others})


@lru_cache(maxsize=16)
def _known_keys(vocabulary: Vocabulary, *, earlier: bool) -> frozenset[str]:
    """Return the keys that may be on a pod of *vocabulary*, whoever writes them."""
    ours = {MODE_KEY} if earlier else set()
    return read_keys(vocabulary) | ALLOCATION_KEYS | ADMISSION_KEYS | ours


def closest_key(key: str, keys: Iterable[str]) -> str | None:
    """Return the one of *keys* that *key* probably means; ``None`` where none is close."""
    near = get_close_matches(key, keys, n=1, cutoff=_CLOSE) if len(key) <= _LONGEST else []
    return near[0] if near else None


def unread_key_warnings(
    annotations: Mapping[str, str], vocabulary: Vocabulary, *, earlier: bool
) -> Iterator[str]:
    """Yield warnings about keys that are not read, and probably mean one that is.

    *earlier* says that admission has seen the pod before: then its own keys are on it.
    """
    yield from islice(_unread(annotations, vocabulary, earlier=earlier), MOST_WARNINGS)


def _unread(
    annotations: Mapping[str, str], vocabulary: Vocabulary, *, earlier: bool
) -> Iterator[str]:
    known = _known_keys(vocabulary, earlier=earlier)
    odd = (key for key in annotations if "gpu" in key and key not in known)
    for key in islice(odd, MOST_KEYS):
        keys = sorted(read_keys(vocabulary))
        right = vocabulary.mode_key if key == MODE_KEY else closest_key(key, keys)
        if right is not None:
            yield f"pod: annotation {escaped(key)} is not read; use {right}"
