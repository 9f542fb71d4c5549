"""Outcomes of one review: what was decided about a pod, with everything needed to explain it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator.model.decision import Finding, ModeChoice
from allocator.model.request import PodRequest
from webhook.core.patch import Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a pod asked for before anybody rewrote it: the mode it named, resources by container."""

    mode: str | None = None
    containers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Untouched:
    """The pod passes as it is."""

    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """The pod asks for nothing; containers that could see every GPU were blinded."""

    intent: Intent
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The pod asks for vGPU and was rewritten; an empty *intent* means it already was."""

    request: PodRequest
    choice: ModeChoice
    asked: Asked
    digest: str
    intent: Intent
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The pod may not pass. There is always a first finding; they are in pod order."""

    first: Finding
    rest: tuple[Finding, ...] = ()
    digest: str = ""
    warnings: tuple[str, ...] = ()


Outcome = Untouched | Hidden | Rewritten | Refused
