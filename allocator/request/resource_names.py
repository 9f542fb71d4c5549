"""Resource names: which of them are ours to read, and what each of them counts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Final

from allocator.catalog.injection import MOST_DEVICES
from allocator.catalog.vocabularies import (
    VOLCANO,
    Vocabulary,
    foreign_prefixes,
    unserved_vocabularies,
)
from allocator.model.request import Priority
from allocator.model.units import WHOLE_GPU
from allocator.model.untrusted import LONGEST

MOST_MEMORY: Final = 2**31 - 1  # MiB; peers keep memory in 32 bits, and no GPU comes near
Amounts = Mapping[str, str | int]  # quantities by resource name


class ResourceRole(StrEnum):
    """What a resource asks for."""

    COUNT = "count"
    MEMORY = "memory"
    PERCENT = "percent"
    CORES = "cores"
    PRIORITY = "priority"  # of the kernels: it asks for nothing by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceName:
    """A resource name of a vocabulary."""

    name: str
    role: ResourceRole
    vocabulary: Vocabulary
    most: int  # the largest accepted value, in the unit of the resource

    @property
    def suffix(self) -> str:
        """Return the part after the slash, as messages show it: ``vgpu-memory``."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNames:
    """All resource names of several vocabularies."""

    by_name: Mapping[str, ResourceName]
    prefixes: tuple[str, ...]  # an unknown name under one of these is a mistake to point out
    foreign_prefixes: tuple[str, ...]  # of GPU resources that we do not read
    gpu_prefixes: tuple[str, ...]  # both
    unserved: tuple[Vocabulary, ...]  # of the catalogue, left out by the settings
    # The resource that our device plugin registers. Admission adds it to containers that ask in
    # another vocabulary; it must not count as a second request when the pod is reviewed again.
    slot: ResourceName | None

    def own_amounts(self, *sources: Amounts | None) -> dict[str, str | int]:
        """Return the amounts in *sources* that are ours to read; a later source wins."""
        known, prefixes = self.by_name, self.prefixes
        return {
            name: text
            for source in sources
            if source is not None
            for name, text in source.items()
            if name in known or name.startswith(prefixes)
        }

    def known_names(self, amounts: Amounts) -> list[ResourceName]:
        """Return the known names in *amounts*.

        The slot is left out where all other names belong to another vocabulary.
        """
        known = self.by_name
        resources = [known[name] for name in amounts if name in known]
        slot = self.slot
        if slot is None or slot.name not in amounts:
            return resources
        others = [each for each in resources if each.vocabulary is not slot.vocabulary]
        return others if others and len(others) == len(resources) - 1 else resources

    def unserved_vocabulary(self, name: str) -> Vocabulary | None:
        """Return the vocabulary of resource *name*, if that is one which is not served."""
        for vocabulary in self.unserved:
            if name.startswith(vocabulary.prefixes):
                return vocabulary
        return None

    def closest_name(self, name: str) -> str | None:
        """Return the known name closest to *name*; ``None`` where none is close."""
        near = get_close_matches(name[:LONGEST], self.by_name, n=1)
        return near[0] if near else None


@lru_cache(maxsize=8)
def resource_names(vocabularies: tuple[Vocabulary, ...]) -> ResourceNames:
    """Return the resource names of *vocabularies*; they are built once."""
    by_name = {each.name: each for vocabulary in vocabularies for each in _names_of(vocabulary)}
    prefixes = tuple(prefix for vocabulary in vocabularies for prefix in vocabulary.prefixes)
    volcano = (each for each in by_name.values() if each.vocabulary.name == VOLCANO.name)
    foreign = foreign_prefixes(vocabularies)
    return ResourceNames(
        by_name=by_name,
        prefixes=prefixes,
        foreign_prefixes=foreign,
        gpu_prefixes=(*prefixes, *foreign),
        unserved=unserved_vocabularies(vocabularies),
        slot=next((each for each in volcano if each.role is ResourceRole.COUNT), None),
    )


def _names_of(vocabulary: Vocabulary) -> Iterator[ResourceName]:
    for role, name, most in (
        (ResourceRole.COUNT, vocabulary.count, MOST_DEVICES),
        (ResourceRole.MEMORY, vocabulary.memory, MOST_MEMORY // vocabulary.memory_factor),
        (ResourceRole.PERCENT, vocabulary.percent, 100),
        (ResourceRole.CORES, vocabulary.cores, WHOLE_GPU),
        (ResourceRole.PRIORITY, vocabulary.priority, max(Priority)),
    ):
        if name is not None:
            yield ResourceName(name=name, role=role, vocabulary=vocabulary, most=most)
