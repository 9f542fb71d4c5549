"""Sharing classes: which pods may share one GPU, where its driver divides it by a policy.

The first pod on a GPU decides how it is shared: its QoS policy is the policy of the GPU until the
last pod has gone. Pods with an application class share GPUs with such pods only, and an offline pod
never joins an online one. These are MetaX's rules. GPUs without such policies know no classes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from allocator.model.untrusted import quote


class QosPolicy(StrEnum):
    """How the compute time of a shared GPU is divided."""

    BEST_EFFORT = "best-effort"
    FIXED_SHARE = "fixed-share"
    BURST_SHARE = "burst-share"


class AppClass(StrEnum):
    """Whether a pod answers people, or works through what can wait."""

    ONLINE = "online"
    OFFLINE = "offline"


DEFAULT_POLICY: Final = QosPolicy.BEST_EFFORT
_SEPARATOR: Final = ":"


@dataclass(frozen=True, slots=True)
class ShareKeys:
    """The annotations that name the sharing class of a pod."""

    policy: str
    app_class: str


@dataclass(frozen=True, slots=True)
class ShareDefect:
    """What is wrong with an annotation, and what would be accepted."""

    key: str
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ShareClass:
    """How a pod wants to share a GPU; ``policy`` is ``None`` where it has no say."""

    policy: QosPolicy | None = DEFAULT_POLICY
    app_class: AppClass | None = None

    def __str__(self) -> str:
        """Return the text by which a grant keeps it."""
        parts = (self.app_class, self.policy)
        return _SEPARATOR.join(str(part) for part in parts if part is not None)

    def joins(self, other: "ShareClass") -> bool:
        """Say whether it may join *other*, which is on the GPU already."""
        if self.app_class is AppClass.ONLINE:
            return other.app_class is not None
        return self == other


def share_class(
    annotations: Mapping[str, str], keys: ShareKeys, counts: Iterable[int]
) -> ShareClass | tuple[ShareDefect, ...]:
    """Return the sharing class in *annotations*, or what is wrong with them.

    *counts* are the GPUs that each asking container asks for: a pod with an application class may
    have one. Without a policy it is ``best-effort``; the policy of an online pod is not used.
    """
    defects: list[ShareDefect] = []
    app_class = _app_class(
        annotations.get(keys.app_class), keys.app_class, counts=counts, defects=defects
    )
    online = app_class is AppClass.ONLINE
    policy = None if online else _policy(annotations, keys.policy, defects)
    return tuple(defects) or ShareClass(policy, app_class)


@lru_cache(maxsize=256)
def may_join(mine: str, theirs: str) -> bool:
    """Say whether a grant of class *mine* may join one of class *theirs* on a GPU.

    Both are texts of classes. Where one is none, neither has a say.
    """
    own, other = parse_share_class(mine), parse_share_class(theirs)
    return own is None or other is None or own.joins(other)


def crowding(mine: str, theirs: Iterable[str]) -> int:
    """Return how much a grant of class *mine* and those on a GPU would be in each other's way.

    Only pods of class online choose by it, with HAMi's numbers. A GPU with offline pods alone comes
    last, because the pod would hold all of them back.
    """
    if mine != AppClass.ONLINE:
        return 0
    others = tuple(theirs)
    online = others.count(AppClass.ONLINE)
    offline = sum(other.startswith(f"{AppClass.OFFLINE}{_SEPARATOR}") for other in others)
    return 100 * offline if offline and not online else 20 * online + 2 * offline


def books_cores(text: str) -> bool:
    """Say whether a grant whose class is *text* is charged for compute: online pods go first."""
    return text != AppClass.ONLINE


def parse_share_class(text: str) -> ShareClass | None:
    """Return the class whose text is *text*, ``None`` where it is none."""
    for app_class in (None, *AppClass):
        for policy in (None, *QosPolicy):
            found = ShareClass(policy, app_class)
            if text and str(found) == text:
                return found
    return None


def _app_class(
    text: str | None, key: str, *, counts: Iterable[int], defects: list[ShareDefect]
) -> AppClass | None:
    if text is None:
        return None
    if text not in set(AppClass):
        what = f"{key} {quote(text)} is not a class"
        remedy = f"use {AppClass.ONLINE} or {AppClass.OFFLINE}, or remove {key}"
        defects.append(ShareDefect(key, what, remedy))
        return None
    if (most := max(counts, default=1)) > 1:
        what = f"{key} {text} goes with one GPU, and a container asks for {most}"
        remedy = f"ask for 1, or remove {key}"
        defects.append(ShareDefect(key, what, remedy))
    return AppClass(text)


def _policy(annotations: Mapping[str, str], key: str, defects: list[ShareDefect]) -> QosPolicy:
    text = annotations.get(key)
    if text is None:
        return DEFAULT_POLICY
    if text in set(QosPolicy):
        return QosPolicy(text)
    names = ", ".join(QosPolicy)
    what = f"{key} {quote(text)} is not a policy"
    defects.append(ShareDefect(key, what, f"use one of {names}, or remove {key}"))
    return DEFAULT_POLICY
