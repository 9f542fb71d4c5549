"""Node templates: kinds of node that a setting says may be added later."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from allocator.catalog.boards import model_named
from allocator.model.gpu import GpuKind
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.model.untrusted import quote

_MODES: Final = frozenset({Mode.HAMI_CORE, Mode.MIG, Mode.MPS})


class NodeTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of node that may be added later, for example by an autoscaler."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    gpus: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    mode: Mode = Mode.HAMI_CORE
    # MiB of one GPU; needed only for a model that the catalogue lacks.
    memory: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None


def template_problem(template: NodeTemplate) -> str:
    """Return what is wrong with *template*, beginning with the field; empty if nothing is."""
    known = model_named(template.model)
    if template.mode not in _MODES:
        return f'mode "{template.mode}" is not a mode of a GPU; use hami-core, mig or mps'
    if known is None and template.memory is None:
        return (
            f"model {quote(template.model)} is not in the catalogue; "
            "give the product name as the driver reports it, or its memory in MiB beside it"
        )
    if template.mode is Mode.MIG and (known is None or known.board is None):
        return f"model {quote(template.model)} does not support MIG; use mode hami-core"
    return ""


def expected_kinds(
    offers: Mapping[GpuKind, int], templates: tuple[NodeTemplate, ...]
) -> Mapping[GpuKind, int]:
    """Return *offers* with the kinds of GPU that nodes of *templates* would add."""
    if not templates:
        return offers
    kinds = dict(offers)
    for offer, count in template_kinds(templates).items():
        kinds[offer] = max(count, kinds.get(offer, 0))
    return kinds


@lru_cache(maxsize=8)
def template_kinds(templates: tuple[NodeTemplate, ...]) -> Mapping[GpuKind, int]:
    """Return the kinds of GPU on nodes of *templates*, each with its number on one node."""
    offers: dict[GpuKind, int] = {}
    for template in templates:
        known = model_named(template.model)
        memory = template.memory if known is None or template.memory else known.memory
        offer = GpuKind(
            model=template.model if known is None else known.name,
            memory=MiB(memory or 0),
            mode=template.mode,
            board=known.board if known is not None and template.mode is Mode.MIG else None,
        )
        offers[offer] = max(template.gpus, offers.get(offer, 0))
    return MappingProxyType(offers)
