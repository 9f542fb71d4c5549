"""The table of MIG geometries that a site allows, as Volcano's ConfigMap has it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from allocator.config.document import DocumentTable, describe
from allocator.mig.geometry import Geometries, GeometryEntry, GeometryGroup, Item
from allocator.mig.profiles import shape_of
from allocator.model.units import MiB

_MAX_MEMORY: Final = 2**31 - 1
_MAX_COUNT: Final = 1000
# ``UUID[group-position]`` in a list separated by , : and ; cannot be decoded otherwise.
_UNSAFE_IN_GROUP: Final = frozenset("-[],:;")
# Every decision about a GPU in mode mig compares its model with these, and its groups with what
# stands there. An A100 can be divided in 78 ways.
_MOST_MODELS: Final = 256  # in all entries
_MOST_GROUPS: Final = 128  # in one entry
_MOST_ITEMS: Final = 16  # in one group


def read_geometries(table: DocumentTable, key: str) -> Geometries:
    """Return the geometries at *key*; defects are noted."""
    geometries = Geometries(tuple(map(_entry, table.tables(key))))
    _check_bounds(geometries, table, key)
    return geometries


def _check_bounds(geometries: Geometries, table: DocumentTable, key: str) -> None:
    """Note where there are more models, groups or items than a decision can go through."""
    path, note = table.at(key), table.notes.error
    models = sum(len(entry.models) for entry in geometries.entries)
    if models > _MOST_MODELS:
        note(path, f"{models} models", f"at most {_MOST_MODELS} in all entries")
    for index, entry in enumerate(geometries.entries[:_MOST_MODELS]):
        place = f"{path}[{index}].allowedGeometries"
        if len(entry.groups) > _MOST_GROUPS:
            note(place, f"{len(entry.groups)} groups", f"at most {_MOST_GROUPS}")
        items = max((len(group.items) for group in entry.groups), default=0)
        if items > _MOST_ITEMS:
            note(place, f"a group of {items} geometries", f"at most {_MOST_ITEMS} in a group")


def _entry(table: DocumentTable) -> GeometryEntry:
    table.check_keys(("models", "allowedGeometries"), refuse=False)
    models = table.texts("models", required=True)
    groups = table.tables("allowedGeometries", required=True)
    # The shipped table lists a model twice: harmless.
    for model in duplicates(models):
        table.notes.warning(table.at("models"), f"{describe(model)} twice", "each model once")
    entry = GeometryEntry(models=models, groups=tuple(map(_group, groups)))
    for name in duplicates(group.name for group in entry.groups):
        place = table.at("allowedGeometries")
        table.notes.error(place, f"group {describe(name)} twice", "a name for each group")
    return entry


def _group(table: DocumentTable) -> GeometryGroup:
    table.check_keys(("group", "geometries"), refuse=False)
    name = table.text("group")
    if not _UNSAFE_IN_GROUP.isdisjoint(name):
        table.note_wrong("group", "a name without - [ ] , : ;")
    items = tuple(map(_item, table.tables("geometries", required=True)))
    return GeometryGroup(name=name, items=items)


def _item(table: DocumentTable) -> Item:
    table.check_keys(("name", "memory", "count", "core"), refuse=False)
    name = table.text("name")
    if name and shape_of(name) is None:
        table.note_wrong("name", "a MIG profile such as 1g.5gb or 1g.10gb+me")
    return Item(
        profile=name,
        memory=MiB(table.integer("memory", None, low=1, high=_MAX_MEMORY)),
        count=table.integer("count", None, low=1, high=_MAX_COUNT),
    )


def duplicates(names: Iterable[str]) -> tuple[str, ...]:
    """Return what occurs more than once among *names*."""
    counts = Counter(names)
    return tuple(name for name, count in counts.items() if count > 1)
