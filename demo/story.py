"""The story of a day, as ``day.yaml`` tells it; that file explains its fields."""

from enum import StrEnum
from importlib import resources
from typing import Annotated, Final

import msgspec
import yaml

DAY: Final = 24 * 60  # minutes
_Time = Annotated[str, msgspec.Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d\Z")]


class PodMaker(StrEnum):
    """What makes the pods."""

    POD = "Pod"  # a person, without a controller
    DEPLOYMENT = "Deployment"
    JOB = "Job"


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file."""


class StoryWorkload(_Part, frozen=True, kw_only=True):
    """What somebody creates; ``minutes`` is ``None`` for pods that run until they are deleted."""

    at: _Time
    person: str
    team: str
    namespace: str
    name: str
    kind: PodMaker
    limits: dict[str, int]
    pods: int = 1
    minutes: float | None = None
    until: _Time | None = None
    every: int = 0
    times: int = 1
    annotations: dict[str, str] = {}
    env: dict[str, str] = {}
    privileged: bool = False

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups of the person as the API server tells them."""
        return (self.team, "system:authenticated")


class SettingsChange(_Part, frozen=True, kw_only=True):
    """A text of ``settings.yaml``, and from when on it is in force."""

    at: _Time
    text: str


class BrokenGpu(_Part, frozen=True, kw_only=True):
    """A GPU that fails, by its index on a node."""

    node: str
    gpu: int
    at: _Time
    reason: str


class OverusedShare(_Part, frozen=True, kw_only=True):
    """A pod that is seen to hold ``memory`` MiB, more than it was promised."""

    at: _Time
    namespace: str
    pod: str
    memory: int


class Story(_Part, frozen=True, kw_only=True):
    """A whole day."""

    namespaces: dict[str, dict[str, str]]
    settings: Annotated[tuple[SettingsChange, ...], msgspec.Meta(min_length=1)]
    broken: BrokenGpu
    overuse: tuple[OverusedShare, ...] = ()
    workloads: tuple[StoryWorkload, ...]


def shipped_story() -> Story:
    """Return the story that is part of the program."""
    text = (resources.files("demo") / "day.yaml").read_text(encoding="utf-8")
    return story_of(text)


def story_of(text: str) -> Story:
    """Return the story of a text in YAML; raises :class:`msgspec.ValidationError`."""
    return msgspec.convert(yaml.safe_load(text), Story)


def minute_of(time: str) -> int:
    """Return the minute of the day that *time* such as ``09:30`` is."""
    hours, _, minutes = time.partition(":")
    return int(hours) * 60 + int(minutes)


def occurrences(workload: StoryWorkload) -> tuple[tuple[int, StoryWorkload], ...]:
    """Return *workload* each time that it is created, with the minute of the day."""
    first = minute_of(workload.at)
    if workload.times == 1:
        return ((first, workload),)
    return tuple(
        (
            first + number * workload.every,
            msgspec.structs.replace(workload, name=f"{workload.name}-{number + 1:02}"),
        )
        for number in range(workload.times)
    )
