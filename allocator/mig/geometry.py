"""Geometries: which sets of MIG instances a site allows on one GPU, whatever else would fit.

They come from ``knownMigGeometries`` of the Volcano plugin's ConfigMap. A layout is allowed if
some listed group contains it, counted; which group is never stored, so a GPU with a free 2g and a
free 1g of one group offers both, in any order.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from allocator.catalog.boards import MODELS, Model, model_named, models_like, words_of
from allocator.mig.profiles import canonical_profile
from allocator.model.board import Board, Profile
from allocator.model.problem import Problem
from allocator.model.units import MiB

# Digests of the entries that the plugin's manifests ship (v1.10 and v1.11, then v1.12). They
# describe what an older allocator could do, and cover 17 of an A100's 38 layouts. Only an edited
# table restricts anything.
SHIPPED: Final = frozenset(
    {
        "7c110255245858689733c9a401aec22cb31765f7707e5a9cbc20b2a4d96399e8",  # A30
        "04ff1018452d00fb5881e5d35aa93bd4dd4bbc059a6eb39190259cd18ac984fa",  # A100 40GB
        "90fbdc12c62095fa7834b2bba22c469cec495756af931ad90dcaec2486e99244",  # A100 80GB
        "dce43d4ce07925734fd0e8c851a0ed768c9638008f812d6a43dd7c25b2359e7b",  # the same, v1.12
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A number of instances of one profile."""

    profile: str
    memory: MiB  # as the table says; NVML's figure is the one used
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryGroup:
    """One set of instances of a GPU."""

    name: str
    items: tuple[Item, ...]  # their order numbers the positions ([group-position])


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryEntry:
    """The groups that some models may be cut into."""

    models: tuple[str, ...]
    groups: tuple[GeometryGroup, ...]

    @property
    def digest(self) -> str:
        """Return a digest of the content, whatever its formatting and the order of models."""
        groups = [
            [group.name, [[item.profile, item.memory, item.count] for item in group.items]]
            for group in self.groups
        ]
        text = json.dumps([sorted(set(self.models)), groups])
        return hashlib.sha256(text.encode()).hexdigest()

    def names(self, product: str) -> bool:
        """Say whether a GPU of this product is meant; "A30" is not in "RTX A3000"."""
        return any(_means(text, product) for text in self.models)


def _means(text: str, product: str) -> bool:
    model = model_named(product)
    if model is not None:
        return model in models_like(text)
    wanted, present = words_of(text), words_of(product)
    # Words that are some known model's whole name do not mean its unknown relatives.
    known = any(words_of(m.name) == wanted for m in models_like(text))
    return wanted == present or (bool(wanted) and wanted < present and not known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """The groups of one entry in the profile names of one board."""

    groups: tuple[tuple[str, Mapping[str, int]], ...]

    def groups_containing(self, profiles: Iterable[Profile]) -> tuple[str, ...]:
        """Return the names of the groups that contain all *profiles*, counted."""
        wanted = Counter(profile.name for profile in profiles)
        return tuple(
            name
            for name, group in self.groups
            if all(group.get(profile, 0) >= count for profile, count in wanted.items())
        )

    def allows(self, placed: Iterable[Profile], extra: Profile) -> bool:
        """Say whether *extra* may join the instances that are *placed*."""
        return bool(self.groups_containing((*placed, extra)))


@dataclass(frozen=True, slots=True)
class Geometries:
    """All entries of one ConfigMap; the first that names a product counts."""

    entries: tuple[GeometryEntry, ...] = ()

    def restriction(self, product: str, board: Board) -> Layouts | None:
        """Return the allowed layouts where we alone allocate; ``None`` restricts nothing.

        This is slow: call it once per kind of GPU, not per candidate.
        """
        entry = self.entry(product)
        return None if entry is None or entry.digest in SHIPPED else _layouts(entry, board)

    def entry(self, product: str) -> GeometryEntry | None:
        """Return the entry for *product*; ``None`` where there is none."""
        return next((entry for entry in self.entries if entry.names(product)), None)


def _layouts(entry: GeometryEntry, board: Board) -> Layouts:
    """Return the groups in the names of *board*; profiles that it lacks are dropped."""
    return Layouts(groups=tuple((group.name, _counts(group, board)) for group in entry.groups))


def _counts(group: GeometryGroup, board: Board) -> Counter[str]:
    counts: Counter[str] = Counter()
    for item in group.items:
        profile = canonical_profile(board, item.profile)
        if profile is not None:
            counts[profile.name] += item.count
    return counts


def defects(entries: tuple[GeometryEntry, ...], path: str) -> Iterator[Problem]:
    """Yield what makes *entries* ambiguous or impossible on the boards of the catalogue."""
    for index, entry in enumerate(entries):
        place = f"{path}[{index}]"
        yield from _mixed_boards(entry, place)
        yield from _unknown_profiles(entry, place)
        yield from _duplicate_models(entry, entries[:index], place)


def _mixed_boards(entry: GeometryEntry, place: str) -> Iterator[Problem]:
    for index, text in enumerate(entry.models):
        tables: dict[tuple[str, ...], str] = {}
        for model, board in _boards_like(text):
            tables.setdefault(tuple(p.name for p in board.profiles), model.name)
        if len(tables) > 1:
            yield Problem(
                path=f"{place}.models[{index}]",
                what=f'"{text}" is ambiguous: {", ".join(tables.values())} differ in MIG profiles',
                accepted=f"one of these names, as {next(iter(tables.values()))}",
            )


def _unknown_profiles(entry: GeometryEntry, place: str) -> Iterator[Problem]:
    boards = [board for text in entry.models for _, board in _boards_like(text)]
    if not boards:
        return  # not in the catalogue: only the node knows its profiles
    for g, group in enumerate(entry.groups):
        for i, item in enumerate(group.items):
            if not any(canonical_profile(board, item.profile) for board in boards):
                yield Problem(
                    path=f"{place}.allowedGeometries[{g}].geometries[{i}].name",
                    what=f'"{item.profile}" is not a profile of {boards[0].name}',
                    accepted=", ".join(profile.name for profile in boards[0].profiles),
                )


def _duplicate_models(
    entry: GeometryEntry, earlier: tuple[GeometryEntry, ...], place: str
) -> Iterator[Problem]:
    for model in MODELS.values():
        if model.board is None or not entry.names(model.name):
            continue
        # Two entries of one content are redundant, not ambiguous.
        if any(e.names(model.name) and e.groups != entry.groups for e in earlier):
            yield Problem(
                path=f"{place}.models",
                what=f"{model.name} is named by an earlier entry with other groups",
                accepted="each model in one entry",
            )


def _boards_like(text: str) -> list[tuple[Model, Board]]:
    return [(model, model.board) for model in models_like(text) if model.board is not None]
