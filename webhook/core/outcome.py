"""Outcomes of one review: what was decided about a pod, with everything needed to explain it."""

from collections.abc import Mapping

import msgspec

from allocator.model.decision import Finding, ModeChoice
from allocator.model.request import PodRequest
from allocator.model.value import Value
from webhook.core.patch import Intent


class Asked(Value, frozen=True):
    """What a pod asked for before anybody rewrote it: the mode it named, resources by container."""

    mode: str | None = None
    containers: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)


class AskedWire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same as the annotation holds it, which a tenant may have written."""

    mode: str | None = None
    containers: dict[str, dict[str, str]] = {}


class Untouched(Value, frozen=True):
    """The pod passes as it is."""

    warnings: tuple[str, ...] = ()


class Hidden(Value, frozen=True):
    """The pod asks for nothing; containers that could see every GPU were blinded."""

    intent: Intent
    warnings: tuple[str, ...] = ()


class Rewritten(Value, frozen=True):
    """The pod asks for vGPU and was rewritten; an empty *intent* means it already was."""

    request: PodRequest
    choice: ModeChoice
    asked: Asked
    digest: str
    intent: Intent
    warnings: tuple[str, ...] = ()


class Refused(Value, frozen=True):
    """The pod may not pass. There is always a first finding; they are in pod order."""

    first: Finding
    rest: tuple[Finding, ...] = ()
    digest: str = ""
    warnings: tuple[str, ...] = ()


Outcome = Untouched | Hidden | Rewritten | Refused
