"""The request of a pod as the JSON values that records keep.

It runs for every review, so it is compiled (see ``compiled.py``);
:mod:`allocator.replay.request_codec`, which reads them, is not.
"""

from typing import Any, Final

from allocator.model.request import (
    ANY_FILL_POLICY,
    MOST_CONTAINERS,
    ContainerRequest,
    FillPolicies,
    Filters,
    PodRequest,
    Priority,
)
from allocator.model.untrusted import is_plain
from allocator.replay.recorded_request import RecordedRequest

LONGEST_REQUEST: Final = 4096  # characters of all texts of one request
_NO_FILTERS: Final = Filters()


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
    if share := request.containers[0].share:
        fields["share"] = share
    fields |= _circumstances(recorded)
    return fields


def _texts(recorded: RecordedRequest) -> list[str]:
    request, filters = recorded.request, recorded.request.filters
    texts = [container.name for container in request.containers]
    texts.append(request.vocabulary)
    texts.append(request.profile or "")
    texts.append(request.mode_key or "")
    texts.append(recorded.namespace.min_isolation or "")
    if recorded.earlier is not None:
        texts.append(recorded.earlier.why)
    if filters is not _NO_FILTERS:
        for _, items in _filters(filters):
            texts.extend(items)
    return texts


def _container_fields(container: ContainerRequest) -> list[Any]:
    fields: list[Any] = [container.name, container.index, str(container.stage), container.count]
    if container.priority is not None:
        amounts = [container.memory, container.percent, container.cores]
        return [*fields, *amounts, int(container.priority)]
    if container.cores:
        return [*fields, container.memory, container.percent, container.cores]
    if container.percent is not None:
        return [*fields, container.memory, container.percent]
    return fields if container.memory is None else [*fields, container.memory]


def _request_options(request: PodRequest) -> dict[str, Any]:
    filters, fill = request.filters, request.fill_policies
    fields: dict[str, Any] = {}
    if request.mode is not None:
        fields["mode"] = str(request.mode)
    if request.profile is not None:
        fields["profile"] = request.profile
    if fill is not ANY_FILL_POLICY:
        fields |= _fill_options(fill)
    if request.mode_key is not None:
        fields["mode_key"] = request.mode_key
    if filters is not _NO_FILTERS:
        for name, items in _filters(filters):
            if items:
                fields[name] = list(items)
    if request.priority is not Priority.LOW:
        fields["priority"] = int(request.priority)
    switches = (
        ("library_off", request.library_off),
        ("one_numa", request.one_numa),
        ("ignore_links", request.ignore_links),
    )
    return fields | {name: True for name, on in switches if on}


def _fill_options(fill: FillPolicies) -> dict[str, Any]:
    named = (("node_policy", fill.node), ("gpu_policy", fill.gpu))
    return {name: str(policy) for name, policy in named if policy is not None}


def _filters(filters: Filters) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("models", filters.models),
        ("not_models", filters.not_models),
        ("uuids", filters.uuids),
        ("not_uuids", filters.not_uuids),
    )


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
