"""The fast path: the requests of nearly all pods, read in one pass.

It serves the benchmark ``benchmarks.webhook`` alone: every answer it gives,
:mod:`allocator.request.containers` gives too, only slower. Who gives up that benchmark can delete
this module and its call in :mod:`allocator.request.parse`. It answers only where nothing can be
wrong and leaves everything else to ``containers``, which finds and words the errors.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allocator.catalog.vocabularies import Vocabulary
from allocator.model.request import ContainerRequest
from allocator.request.containers import ContainerSpec, ResourceSpec, build_request
from allocator.request.quantity import parse_plain
from allocator.request.resource_names import Amounts, ResourceNames, ResourceRole

_COUNT, _MEMORY, _PERCENT, _CORES, _PRIORITY = ResourceRole


class CommonRequest(NamedTuple):
    """What the containers of a pod ask for."""

    vocabulary: Vocabulary | None  # None: they ask for nothing
    asking: list[ContainerRequest]


def parse_common(
    init_containers: Sequence[ContainerSpec],
    containers: Sequence[ContainerSpec],
    names: ResourceNames,
) -> CommonRequest | None:
    """Return what a pod's containers ask for; ``None`` leaves the pod to the complete path."""
    vocabulary: Vocabulary | None = None
    asking: list[ContainerRequest] = []
    for of_init, group in ((True, init_containers), (False, containers)):
        for position, container in enumerate(group):
            if container.resources is None:
                continue
            amounts = _container_amounts(container.resources, names)
            if amounts is None:
                return None
            container_vocabulary, numbers = amounts
            if container_vocabulary is None:
                continue
            if vocabulary is not None and vocabulary is not container_vocabulary:
                return None
            vocabulary = container_vocabulary
            asking.append(
                build_request(
                    container, container_vocabulary, numbers, position=position, of_init=of_init
                )
            )
    return CommonRequest(vocabulary, asking)


def _container_amounts(
    resources: ResourceSpec, names: ResourceNames
) -> tuple[Vocabulary | None, Mapping[ResourceRole, int]] | None:
    """Return the vocabulary and the amounts of one container; all amounts are positive.

    The vocabulary is ``None`` where the container asks for nothing. ``None`` instead of a pair
    leaves the pod to the complete path.
    """
    limits, requests = resources.limits or {}, resources.requests
    if requests and requests != limits and not _is_covered(requests, limits, names):
        return None
    vocabulary: Vocabulary | None = None
    numbers: dict[ResourceRole, int] = {}
    for name, text in limits.items():
        resource = names.by_name.get(name)
        if resource is not None:
            number = parse_plain(text)
            if not number or number > resource.most:
                return None
            if vocabulary is not None and vocabulary is not resource.vocabulary:
                return None
            vocabulary = resource.vocabulary
            numbers[resource.role] = number
        elif name.startswith(names.gpu_prefixes):
            return None
    return None if _clash(vocabulary, numbers) else (vocabulary, numbers)


def _is_covered(requests: Amounts, limits: Amounts, names: ResourceNames) -> bool:
    """Say whether every GPU resource in *requests* has the same amount in *limits*."""
    return all(
        limits.get(name) == text
        for name, text in requests.items()
        if name in names.by_name or name.startswith(names.gpu_prefixes)
    )


def _clash(vocabulary: Vocabulary | None, numbers: Mapping[ResourceRole, int]) -> bool:
    if vocabulary is None or len(numbers) == 1:
        return _PRIORITY in numbers
    whole = vocabulary.whole and _COUNT in numbers
    return whole or (_MEMORY in numbers and _PERCENT in numbers)
