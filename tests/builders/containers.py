"""Containers and pods as a review shows them; a test names only what matters to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.model.decision import Finding, Findings
from allocator.model.request import ContainerRequest, PodRequest
from allocator.request.parse import parse_request

NUMBER: Final = "volcano.sh/vgpu-number"
MEMORY: Final = "volcano.sh/vgpu-memory"
PERCENT: Final = "volcano.sh/vgpu-memory-percentage"
CORES: Final = "volcano.sh/vgpu-cores"
GPU_MEM: Final = "aliyun.com/gpu-mem"
GPU_COUNT: Final = "aliyun.com/gpu-count"

Resources = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Amounts:
    limits: Resources | None
    requests: Resources | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A container."""

    name: str
    resources: Amounts | None
    restart_policy: str | None = None


def box(
    limits: Resources | None = None,
    *,
    requests: Resources | None = None,
    name: str = "main",
    restart_policy: str | None = None,
) -> Box:
    return Box(name=name, resources=Amounts(limits, requests), restart_policy=restart_policy)


def asked(
    *containers: Box,
    init: Sequence[Box] = (),
    annotations: Mapping[str, str] | None = None,
    vocabularies: Sequence[Vocabulary] = VOCABULARIES,
) -> PodRequest | Findings | None:
    return parse_request(
        containers=containers,
        init_containers=init,
        annotations=annotations or {},
        vocabularies=vocabularies,
    )


def request(
    *containers: Box,
    init: Sequence[Box] = (),
    annotations: Mapping[str, str] | None = None,
    vocabularies: Sequence[Vocabulary] = VOCABULARIES,
) -> PodRequest:
    found = asked(*containers, init=init, annotations=annotations, vocabularies=vocabularies)
    assert isinstance(found, PodRequest), found
    return found


def findings(
    *containers: Box,
    init: Sequence[Box] = (),
    annotations: Mapping[str, str] | None = None,
    vocabularies: Sequence[Vocabulary] = VOCABULARIES,
) -> tuple[Finding, ...]:
    found = asked(*containers, init=init, annotations=annotations, vocabularies=vocabularies)
    assert isinstance(found, Findings), found
    return found.all


def only(limits: Resources) -> ContainerRequest:
    """Return what one container with *limits* asks for."""
    return request(box(limits)).containers[0]


def refusal(limits: Resources) -> str:
    """Return the only finding of a pod with one container, as a user reads it."""
    (finding,) = findings(box(limits))
    return f"{finding} [{finding.reason}]"
