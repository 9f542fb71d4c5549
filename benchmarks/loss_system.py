"""A fleet as a loss system: pods arrive at random, run for a while, and are lost if none fits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from types import MappingProxyType
from typing import Final

from allocator.model.board import Profile
from benchmarks.mig import A100, Policy

MIXES: Final[Mapping[str, Mapping[int, int]]] = MappingProxyType(
    {
        "default": {1: 40, 2: 30, 3: 20, 7: 10},
        "uniform": {1: 20, 2: 20, 3: 20, 4: 20, 7: 20},
        "bimodal": {1: 45, 2: 5, 3: 25, 4: 15, 7: 10},
        "small": {1: 60, 2: 30, 3: 10},
    }
)
"""Per cent of arrivals by compute slices."""

UNCOUNTED: Final = 5  # the first 1/5 of a run fills the fleet and is not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: a mix of profiles, a number of GPUs, slots asked for per slot there is."""

    mix: str
    gpus: int
    load: float

    def __str__(self) -> str:
        return f"{self.mix}, {self.gpus} GPUs, load {self.load}"


@dataclass(frozen=True, slots=True)
class Arrival:
    """An arrival; times count in mean running times."""

    at: float
    until: float
    profile: Profile


@dataclass(frozen=True, slots=True)
class AcceptedShare:
    """Per cent of pods that found a place, and per cent of the memory slots they asked for."""

    jobs: float
    slots: float


def weights(mix: str) -> Mapping[str, int]:
    """Return the per cent of arrivals by name of the plain profiles."""
    return {profile.name: MIXES[mix].get(profile.slices, 0) for profile in A100.plain}


def arrivals(cell: Setting, *, jobs: int, seed: int) -> Iterator[Arrival]:
    """Yield Poisson arrivals with exponential running times; equal arguments, equal pods."""
    random = Random(f"{cell} {seed}")
    shares = [weights(cell.mix)[profile.name] for profile in A100.plain]
    asked = sum(w * p.size for w, p in zip(shares, A100.plain, strict=True)) / sum(shares)
    rate = cell.load * cell.gpus * A100.slots / asked
    now = 0.0
    for profile in random.choices(A100.plain, shares, k=jobs):
        now += random.expovariate(rate)
        yield Arrival(now, now + random.expovariate(1), profile)


def offer_pods(policy: Policy, pods: Sequence[Arrival], gpus: int) -> AcceptedShare:
    """Offer *pods* to *policy* on *gpus* empty GPUs and return what it took in."""
    masks = [0] * gpus
    running: list[tuple[float, int, int]] = []
    first = len(pods) // UNCOUNTED
    jobs = slots = 0
    for i, pod in enumerate(pods):
        while running and running[0][0] <= pod.at:
            _, gpu, freed = heappop(running)
            masks[gpu] &= ~freed
        choice = policy(masks, pod.profile)
        if choice is None:
            continue
        if masks[choice.gpu] & choice.slots:
            raise ValueError(f"slots {choice.slots:#b} of GPU {choice.gpu} are already taken")
        masks[choice.gpu] |= choice.slots
        heappush(running, (pod.until, choice.gpu, choice.slots))
        if i >= first:
            jobs += 1
            slots += pod.profile.size
    offered = pods[first:]
    return AcceptedShare(
        100 * jobs / len(offered), 100 * slots / sum(pod.profile.size for pod in offered)
    )
