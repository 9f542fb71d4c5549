"""The request of a pod as records keep it, so that it can be decided again.

Fields at their default are absent. A container is a list whose last fields may be absent too:
``[name, index, stage, count, MiB, percent, cores, priority]``. The names and units of the cluster
are not part of it; they are in the content that the decision rests on
(:mod:`allocator.replay.fleet_codec`).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from allocator.catalog.vocabularies import CATALOGUE, VOCABULARIES, Vocabulary
from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import Prefer
from allocator.model.decision import ModeChoice, ModeSource
from allocator.model.request import (
    MOST_CONTAINERS,
    ContainerRequest,
    FillPolicies,
    FillPolicy,
    Filters,
    Mode,
    PodRequest,
    Priority,
    Stage,
)
from allocator.model.units import NO_CORES, CorePercent, MiB
from allocator.replay.content import ReplayContentError, typed
from allocator.replay.recorded_request import RecordedRequest
from allocator.replay.request_fields import LONGEST_REQUEST, encode_request

__all__ = ["LONGEST_REQUEST", "RecordedRequest", "decode_request", "encode_request"]

_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_REQUEST)]
_Texts = Annotated[tuple[_Text, ...], msgspec.Meta(max_length=LONGEST_REQUEST)]
_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=64)]  # devices of one container
_Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class _RecordedContainer(msgspec.Struct, frozen=True, array_like=True):
    name: _Text
    index: _Amount
    stage: Stage
    count: _Count
    memory: _Amount | None = None
    percent: _Percent | None = None
    cores: _Percent = 0
    priority: Priority | None = None


class _RecordedFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    vocabulary: _Text
    containers: Annotated[
        tuple[_RecordedContainer, ...], msgspec.Meta(min_length=1, max_length=MOST_CONTAINERS)
    ]
    mode: Mode | None = None
    profile: _Text | None = None
    models: _Texts = ()
    not_models: _Texts = ()
    uuids: _Texts = ()
    not_uuids: _Texts = ()
    node_policy: FillPolicy | None = None
    gpu_policy: FillPolicy | None = None
    priority: Priority = Priority.LOW  # as hami-core numbers it
    mode_key: _Text | None = None
    library_off: bool = False
    share: _Text = ""  # of all containers
    one_numa: bool = False
    ignore_links: bool = False
    prefer: Prefer | None = None
    min_isolation: _Text | None = None
    earlier: tuple[Mode, ModeSource, _Text] | None = None
    final: Mode | None = None


def decode_request(
    fields: Mapping[str, Any], vocabularies: Sequence[Vocabulary] = VOCABULARIES
) -> RecordedRequest:
    """Return the request of *fields*, in one of *vocabularies* as the cluster configured them.

    Raises :class:`ReplayContentError`.
    """
    wire = typed(fields, _RecordedFields)
    vocabulary = next((v for v in vocabularies if v.name == wire.vocabulary), None)
    if vocabulary is None:
        accepted = ", ".join(v.name for v in vocabularies)
        raise ReplayContentError(
            f"vocabulary {wire.vocabulary[:64]!r} is not known; accepted: {accepted}"
        )
    request = PodRequest(
        vocabulary=wire.vocabulary,
        containers=tuple(_container_request(one, wire.share) for one in wire.containers),
        mode=wire.mode,
        profile=wire.profile,
        filters=Filters(
            models=wire.models,
            not_models=wire.not_models,
            uuids=wire.uuids,
            not_uuids=wire.not_uuids,
        ),
        fill_policies=FillPolicies(node=wire.node_policy, gpu=wire.gpu_policy),
        priority=wire.priority,
        configured=None if vocabulary in CATALOGUE else vocabulary,
        mode_key=wire.mode_key,
        library_off=wire.library_off,
        family=vocabulary.family,
        one_numa=wire.one_numa,
        ignore_links=wire.ignore_links,
    )
    return RecordedRequest(
        request=request,
        namespace=NamespacePolicy(prefer=wire.prefer, min_isolation=wire.min_isolation),
        earlier=None if wire.earlier is None else ModeChoice(*wire.earlier),
        final=wire.final,
    )


def _container_request(wire: _RecordedContainer, share: str) -> ContainerRequest:
    if wire.memory is not None and wire.percent is not None:
        raise ReplayContentError(
            f"container {wire.name[:64]!r} has MiB and a percentage; accepted: one of them"
        )
    return ContainerRequest(
        name=wire.name,
        index=wire.index,
        stage=wire.stage,
        count=wire.count,
        memory=None if wire.memory is None else MiB(wire.memory),
        percent=wire.percent,
        cores=CorePercent(wire.cores) if wire.cores else NO_CORES,
        share=share,
        priority=wire.priority,
    )
