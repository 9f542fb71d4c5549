"""Outcomes of one review: what was decided about a pod, with everything needed to explain it.

What is built anew for each review is a msgspec Struct here and in the modules around: a frozen
dataclass takes ten times as long to build, and a review builds twenty values.
"""

from collections.abc import Mapping

import msgspec

from allocator.model.decision import Finding, ModeChoice
from allocator.model.request import PodRequest
from webhook.core.patch import Intent


class Asked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a pod asked for before anybody rewrote it: the mode it named, resources by container."""

    mode: str | None = None
    containers: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)


class Untouched(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pod passes as it is."""

    warnings: tuple[str, ...] = ()


class Hidden(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pod asks for nothing; containers that could see every GPU were blinded."""

    intent: Intent
    warnings: tuple[str, ...] = ()


class Rewritten(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pod asks for vGPU and was rewritten; an empty *intent* means it already was."""

    request: PodRequest
    choice: ModeChoice
    asked: Asked
    digest: str
    intent: Intent
    warnings: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pod may not pass. There is always a first finding; they are in pod order."""

    first: Finding
    rest: tuple[Finding, ...] = ()
    digest: str = ""
    warnings: tuple[str, ...] = ()


Outcome = Untouched | Hidden | Rewritten | Refused
