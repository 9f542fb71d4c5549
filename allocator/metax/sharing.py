"""Sharing classes: which pods may share one MetaX GPU, by QoS policy and application class.

The first pod on a GPU decides how it is shared: its QoS policy is the policy of the GPU until the
last pod has gone. Pods with an application class share GPUs with such pods only, and an offline pod
never joins an online one. MetaX states these rules in HAMi.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from allocator.metax.names import APP_CLASS_KEY, QOS_KEY
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

    @property
    def books_cores(self) -> bool:
        """Say whether it is charged for compute: online pods go first and are not."""
        return self.app_class is not AppClass.ONLINE


def share_class(
    annotations: Mapping[str, str], counts: Iterable[int]
) -> ShareClass | tuple[ShareDefect, ...]:
    """Return the sharing class in *annotations*, or what is wrong with them.

    *counts* are the GPUs that each asking container asks for: a pod with an application class may
    have one. Without a policy it is ``best-effort``; the policy of an online pod is not used.
    """
    defects: list[ShareDefect] = []
    app_class = _app_class(annotations, counts, defects)
    policy = None if app_class is AppClass.ONLINE else _policy(annotations, defects)
    return tuple(defects) or ShareClass(policy, app_class)


def parse_share_class(text: str) -> ShareClass | None:
    """Return the class whose text is *text*, ``None`` where it is none."""
    for app_class in (None, *AppClass):
        for policy in (None, *QosPolicy):
            found = ShareClass(policy, app_class)
            if text and str(found) == text:
                return found
    return None


def _app_class(
    annotations: Mapping[str, str], counts: Iterable[int], defects: list[ShareDefect]
) -> AppClass | None:
    text = annotations.get(APP_CLASS_KEY)
    if text is None:
        return None
    if text not in set(AppClass):
        what = f"{APP_CLASS_KEY} {quote(text)} is not a class"
        remedy = f"use {AppClass.ONLINE} or {AppClass.OFFLINE}, or remove {APP_CLASS_KEY}"
        defects.append(ShareDefect(APP_CLASS_KEY, what, remedy))
        return None
    if (most := max(counts, default=1)) > 1:
        what = f"{APP_CLASS_KEY} {text} goes with one GPU, and a container asks for {most}"
        remedy = f"ask for 1, or remove {APP_CLASS_KEY}"
        defects.append(ShareDefect(APP_CLASS_KEY, what, remedy))
    return AppClass(text)


def _policy(annotations: Mapping[str, str], defects: list[ShareDefect]) -> QosPolicy:
    text = annotations.get(QOS_KEY)
    if text is None:
        return DEFAULT_POLICY
    if text in set(QosPolicy):
        return QosPolicy(text)
    names = ", ".join(QosPolicy)
    what = f"{QOS_KEY} {quote(text)} is not a policy"
    defects.append(ShareDefect(QOS_KEY, what, f"use one of {names}, or remove {QOS_KEY}"))
    return DEFAULT_POLICY
