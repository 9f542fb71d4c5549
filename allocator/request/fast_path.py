"""Usual requests: what nearly all containers ask for, read in one pass.

A shortcut on the hot path of admission. It answers only where nothing can be wrong; whatever
is unusual is left to :mod:`allocator.request.containers`, which alone knows what to say about it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allocator.catalog.vocabularies import Vocabulary
from allocator.model.request import ContainerRequest
from allocator.request.containers import ContainerSpec, ResourceSpec, build_request
from allocator.request.quantity import plain
from allocator.request.resource_names import Amounts, ResourceNames, ResourceRole

_COUNT, _MEMORY, _PERCENT, _CORES = ResourceRole


class CommonRequest(NamedTuple):
    """What the containers of a pod ask for, in the words of ``vocabulary``; ``None``: nothing."""

    vocabulary: Vocabulary | None
    asking: list[ContainerRequest]


def parse_common(
    init_containers: Sequence[ContainerSpec],
    containers: Sequence[ContainerSpec],
    lexicon: ResourceNames,
) -> CommonRequest | None:
    """Return what a pod's containers ask for, or ``None`` where they must be looked at closely."""
    vocabulary: Vocabulary | None = None
    asking: list[ContainerRequest] = []
    for of_init, group in ((True, init_containers), (False, containers)):
        for position, container in enumerate(group):
            if container.resources is None:
                continue
            read = _read(container.resources, lexicon)
            if read is None:
                return None
            spoken, numbers = read
            if spoken is None:
                continue
            if vocabulary is not None and vocabulary is not spoken:
                return None
            vocabulary = spoken
            asking.append(
                build_request(container, spoken, numbers, position=position, of_init=of_init)
            )
    return CommonRequest(vocabulary, asking)


def _read(
    resources: ResourceSpec, lexicon: ResourceNames
) -> tuple[Vocabulary | None, Mapping[ResourceRole, int]] | None:
    """Return the numbers of one container, all of them positive, and in whose words they are."""
    limits, requests = resources.limits or {}, resources.requests
    if requests and requests != limits and not _is_covered(requests, limits, lexicon):
        return None
    vocabulary: Vocabulary | None = None
    numbers: dict[ResourceRole, int] = {}
    for name, text in limits.items():
        word = lexicon.words.get(name)
        if word is not None:
            number = plain(text)
            if not number or number > word.most:
                return None
            if vocabulary is not None and vocabulary is not word.vocabulary:
                return None
            vocabulary = word.vocabulary
            numbers[word.role] = number
        elif name.startswith(lexicon.odd):
            return None
    return None if _clash(vocabulary, numbers) else (vocabulary, numbers)


def _is_covered(requests: Amounts, limits: Amounts, lexicon: ResourceNames) -> bool:
    """Say whether *requests* neither add to *limits* nor differ from them in what is ours."""
    return all(
        limits.get(name) == text
        for name, text in requests.items()
        if name in lexicon.words or name.startswith(lexicon.odd)
    )


def _clash(vocabulary: Vocabulary | None, numbers: Mapping[ResourceRole, int]) -> bool:
    if vocabulary is None or len(numbers) == 1:
        return False
    whole = vocabulary.whole and _COUNT in numbers
    return whole or (_MEMORY in numbers and _PERCENT in numbers)
