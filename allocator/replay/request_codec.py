"""The request of a pod as records keep it, so that it can be decided again.

Fields at their default are absent. A container is a list whose last fields may be absent too:
``[name, index, stage, count, MiB, percent, cores]``. The names and units of the cluster are not
part of it; they are in the content that the decision rests on
(:mod:`allocator.replay.fleet_codec`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy
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
from allocator.model.untrusted import is_plain
from allocator.replay.content import ReplayContentError, typed

LONGEST_REQUEST: Final = 4096  # characters of all texts of one request
_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_REQUEST)]
_Texts = Annotated[tuple[_Text, ...], msgspec.Meta(max_length=LONGEST_REQUEST)]
_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=64)]  # devices of one container
_Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
_NO_FILTERS: Final = Filters()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """What was decided about: the request, and what else decided with the fleet.

    ``earlier`` is what an earlier pass of admission chose, and ``final`` the mode that a pod had
    when it was bound; ``None`` leaves the choice open.
    """

    request: PodRequest
    namespace: NamespacePolicy = ANY_MODE
    earlier: ModeChoice | None = None
    final: Mode | None = None


class _RecordedContainer(msgspec.Struct, frozen=True, array_like=True):
    name: _Text
    index: _Amount
    stage: Stage
    count: _Count
    memory: _Amount | None = None
    percent: _Percent | None = None
    cores: _Percent = 0


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
    prefer: Prefer | None = None
    min_isolation: _Text | None = None
    earlier: tuple[Mode, ModeSource, _Text] | None = None
    final: Mode | None = None


def encode_request(recorded: RecordedRequest) -> dict[str, Any]:
    """Return *recorded* as JSON values; empty where it cannot be kept.

    A tenant wrote its texts. So they are kept only where they are printable and have at most
    LONGEST_REQUEST characters together, and the containers only where they are not too many.
    """
    request = recorded.request
    texts = "".join(_texts(recorded))
    if len(texts) > LONGEST_REQUEST or not is_plain(texts):
        return {}
    if not 0 < len(request.containers) <= MOST_CONTAINERS:
        return {}
    fields: dict[str, Any] = {
        "vocabulary": request.vocabulary,
        "containers": [_container_fields(container) for container in request.containers],
    }
    fields |= _request_options(request)
    fields |= _circumstances(recorded)
    return fields


def _texts(recorded: RecordedRequest) -> Iterator[str]:
    request, filters = recorded.request, recorded.request.filters
    for container in request.containers:
        yield container.name
    yield request.vocabulary
    yield request.profile or ""
    yield request.mode_key or ""
    yield recorded.namespace.min_isolation or ""
    yield "" if recorded.earlier is None else recorded.earlier.why
    if filters is not _NO_FILTERS:
        for items in (filters.models, filters.not_models, filters.uuids, filters.not_uuids):
            yield from items


def _container_fields(container: ContainerRequest) -> list[Any]:
    fields: list[Any] = [container.name, container.index, str(container.stage), container.count]
    if container.cores:
        return [*fields, container.memory, container.percent, container.cores]
    if container.percent is not None:
        return [*fields, container.memory, container.percent]
    return fields if container.memory is None else [*fields, container.memory]


def _request_options(request: PodRequest) -> dict[str, Any]:
    filters, fill = request.filters, request.fill_policies
    fields: dict[str, Any] = {}
    for name, value in (
        ("mode", request.mode),
        ("profile", request.profile),
        ("node_policy", fill.node),
        ("gpu_policy", fill.gpu),
        ("mode_key", request.mode_key),
    ):
        if value is not None:
            fields[name] = str(value)
    if filters != _NO_FILTERS:
        for name in ("models", "not_models", "uuids", "not_uuids"):
            if items := getattr(filters, name):
                fields[name] = list(items)
    if request.priority is not Priority.LOW:
        fields["priority"] = int(request.priority)
    if request.library_off:
        fields["library_off"] = True
    return fields


def _circumstances(recorded: RecordedRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    namespace, earlier = recorded.namespace, recorded.earlier
    if namespace.prefer is not None:
        fields["prefer"] = str(namespace.prefer)
    if namespace.min_isolation is not None:
        fields["min_isolation"] = namespace.min_isolation
    if earlier is not None:
        fields["earlier"] = [str(earlier.mode), str(earlier.source), earlier.why]
    if recorded.final is not None:
        fields["final"] = str(recorded.final)
    return fields


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
        containers=tuple(map(_container_request, wire.containers)),
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
        configured=None if vocabulary in VOCABULARIES else vocabulary,
        mode_key=wire.mode_key,
        library_off=wire.library_off,
    )
    return RecordedRequest(
        request=request,
        namespace=NamespacePolicy(prefer=wire.prefer, min_isolation=wire.min_isolation),
        earlier=None if wire.earlier is None else ModeChoice(*wire.earlier),
        final=wire.final,
    )


def _container_request(wire: _RecordedContainer) -> ContainerRequest:
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
    )
