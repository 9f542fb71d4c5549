"""The lexicon: which resource names are ours to read, and what each of them counts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Final

from allocator.catalog.injection import MOST_DEVICES
from allocator.catalog.vocabularies import FOREIGN, VOLCANO, Vocabulary
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceName:
    """A resource name that we know; its value is at most *most*, in its own unit."""

    name: str
    role: ResourceRole
    vocabulary: Vocabulary
    most: int

    @property
    def suffix(self) -> str:
        """Return the name as people say it: ``vgpu-memory``."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNames:
    """All names of several vocabularies.

    ``prefixes`` are those under which an unknown name is a slip of ours to point out, ``odd``
    are these and whatever else asks for GPUs in names that we do not read. ``slot``
    is the resource that our device plugin registers: admission adds it to containers that ask
    in another vocabulary, and it must not read as a second request when the pod comes again.
    """

    words: Mapping[str, ResourceName]
    prefixes: tuple[str, ...]
    odd: tuple[str, ...]
    slot: ResourceName | None

    def own_amounts(self, *sources: Amounts | None) -> dict[str, str | int]:
        """Return what is ours to read in *sources*; a later one wins."""
        words, prefixes = self.words, self.prefixes
        return {
            name: text
            for source in sources
            if source is not None
            for name, text in source.items()
            if name in words or name.startswith(prefixes)
        }

    def known_names(self, amounts: Amounts) -> list[ResourceName]:
        """Return the words *told*, without a slot that stands beside another vocabulary only."""
        known = self.words
        words = [known[name] for name in amounts if name in known]
        slot = self.slot
        if slot is None or slot.name not in amounts:
            return words
        others = [word for word in words if word.vocabulary is not slot.vocabulary]
        return others if others and len(others) == len(words) - 1 else words

    def closest_name(self, name: str) -> str | None:
        """Return the known name that was probably meant by *name*."""
        near = get_close_matches(name[:LONGEST], self.words, n=1)
        return near[0] if near else None


@lru_cache(maxsize=8)
def lexicon(vocabularies: tuple[Vocabulary, ...]) -> ResourceNames:
    """Return the lexicon of *vocabularies*, built once."""
    words = {word.name: word for vocabulary in vocabularies for word in _words(vocabulary)}
    prefixes = tuple(prefix for vocabulary in vocabularies for prefix in vocabulary.prefixes)
    counts = (w for w in words.values() if w.vocabulary.name == VOLCANO.name)
    return ResourceNames(
        words=words,
        prefixes=prefixes,
        odd=(*prefixes, *FOREIGN),
        slot=next((word for word in counts if word.role is ResourceRole.COUNT), None),
    )


def _words(vocabulary: Vocabulary) -> Iterator[ResourceName]:
    for role, name, most in (
        (ResourceRole.COUNT, vocabulary.count, MOST_DEVICES),
        (ResourceRole.MEMORY, vocabulary.memory, MOST_MEMORY // vocabulary.memory_factor),
        (ResourceRole.PERCENT, vocabulary.percent, 100),
        (ResourceRole.CORES, vocabulary.cores, WHOLE_GPU),
    ):
        if name is not None:
            yield ResourceName(name=name, role=role, vocabulary=vocabulary, most=most)
