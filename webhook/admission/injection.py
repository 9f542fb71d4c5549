"""Injection into one container: the table's column filled in with what it asked for."""

from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, assert_never

from allocator.catalog.injection import (
    LIBRARY_VOLUME,
    MOST_DEVICES,
    MOUNTS,
    REGIONS_FOLDER,
    REGIONS_VOLUME,
    VARIABLES,
    Annotation,
    Column,
    Field,
    Form,
    Literal,
    LiteralOrField,
    Mount,
    Variable,
    key_in,
    key_path,
)
from allocator.model.request import Priority
from allocator.model.units import WHOLE_GPU
from allocator.model.value import Value
from allocator.request.pod_fields import EnvVar
from webhook.review.json_patch import Entry
from webhook.review.pod_schema import Volume, VolumeMount


class InjectionValues(Value, frozen=True):
    """What the table's literals are filled in with; ``memory`` is ``None`` where unknown.

    ``key`` is the container's own annotation prefix, such as ``c0``. ``memory`` is in MiB,
    ``cores`` in percent, ``units`` and ``pod_units`` in the unit of the pod's vocabulary.
    """

    key: str
    count: int = 1
    memory: int | None = None
    cores: int = 0
    units: int = 0
    pod_units: int = 0
    priority: Priority = Priority.LOW
    vocabulary: str = ""  # its name


def reserved_names() -> dict[str, tuple[Variable, int]]:
    """Return every reserved name with its row and device number."""
    return {
        variable.name.replace("{k}", str(k)): (variable, k)
        for variable in VARIABLES
        for k in range(MOST_DEVICES if variable.per_device else 1)
    }


RESERVED: Final = MappingProxyType(reserved_names())
RESERVED_NAMES: Final = frozenset(RESERVED)
OWN_VOLUMES: Final = frozenset({LIBRARY_VOLUME, REGIONS_VOLUME})
_Cell = tuple[Variable, Form, Entry | None]


def _cells(column: Column) -> tuple[_Cell, ...]:
    """List a column's rows; those that never vary come with their finished entry."""
    cells: list[_Cell] = []
    for variable in VARIABLES:
        form = variable.forms.get(column)
        if form is None:
            continue
        fixed = isinstance(form, Field) or (isinstance(form, Literal) and "{" not in form.text)
        entry = entry_of(variable.name, form, InjectionValues(key="")) if fixed else None
        cells.append((variable, form, entry))
    return tuple(cells)


def entry_of(name: str, form: Form, amounts: InjectionValues, *, k: int = 0) -> Entry | None:
    """Return the ``env`` entry of *form*, or ``None`` where its amount is nobody's to write."""
    match form:
        case Literal(text):
            return {"name": name, "value": _fill(text, amounts) if "{" in text else text}
        case LiteralOrField(literal, otherwise):
            if amounts.memory is not None:
                return entry_of(name, literal, amounts, k=k)
            return entry_of(name, otherwise, amounts, k=k) if otherwise.suffix else None
        case Annotation(suffix, share):
            if share and amounts.memory is None:
                return None
            path = key_path(amounts.key, suffix.replace("{k}", str(k)))
            return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        case Field(path):
            return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        case _:
            assert_never(form)


def _fill(text: str, amounts: InjectionValues) -> str:
    return text.format(
        memory=amounts.memory,
        cores=amounts.cores,
        threads=amounts.cores or WHOLE_GPU,
        units=amounts.units,
        pod_units=amounts.pod_units,
        priority=int(amounts.priority),
    )


@lru_cache(maxsize=512)  # a cluster asks for few different amounts, again and again
def variables(column: Column, amounts: InjectionValues) -> tuple[Entry, ...]:
    """Return the entries of *column*."""
    entries: list[Entry] = []
    for variable, form, fixed in _COLUMNS[column]:
        if variable.vocabulary and variable.vocabulary != amounts.vocabulary:
            continue
        if variable.per_device:
            for k in range(amounts.count):
                entry = entry_of(variable.name.replace("{k}", str(k)), form, amounts, k=k)
                if entry is not None:
                    entries.append(entry)
            continue
        entry = fixed if fixed is not None else entry_of(variable.name, form, amounts)
        if entry is not None:
            entries.append(entry)
    return tuple(entries)


_COLUMNS: Final = {column: _cells(column) for column in Column}


def mounts(column: Column, container: str) -> tuple[Entry, ...]:
    """Return the mounts of the interception library for one container."""
    return tuple([fixed or _mount(mount, container) for mount, fixed in _MOUNTS[column]])


def _mount(mount: Mount, container: str) -> Entry:
    entry: dict[str, Any] = {"name": mount.volume, "mountPath": mount.path}
    if mount.sub_path:
        entry["subPath"] = mount.sub_path
    if mount.sub_path_expr:
        entry["subPathExpr"] = mount.sub_path_expr.replace("{container}", container)
    if mount.read_only:
        entry["readOnly"] = True
    return entry


_MOUNTS: Final = {
    column: [
        (mount, None if "{container}" in mount.sub_path_expr else _mount(mount, ""))
        for mount in MOUNTS.get(column, ())
    ]
    for column in Column
}


@lru_cache(maxsize=8)
def library_volumes(host_root: str) -> tuple[Entry, ...]:
    """Return the volumes of the interception library, which are in the node's *host_root*."""
    regions = {"path": f"{host_root}/{REGIONS_FOLDER}", "type": "DirectoryOrCreate"}
    return (
        {"name": LIBRARY_VOLUME, "hostPath": {"path": host_root, "type": ""}},
        {"name": REGIONS_VOLUME, "hostPath": regions},
    )


def same_variable(present: EnvVar, entry: Entry) -> bool:
    """Say whether the pod already carries *entry*, as received from the API server."""
    if "valueFrom" in entry:
        ref = present.value_from.field_ref if present.value_from is not None else None
        wanted = entry["valueFrom"]["fieldRef"]["fieldPath"]
        return ref is not None and ref.field_path == wanted and not present.value
    return present.value_from is None and (present.value or "") == entry["value"]


def same_mount(present: VolumeMount, entry: Entry) -> bool:
    """Say whether the pod already carries the mount *entry*."""
    return bool(
        present.name == entry["name"]
        and present.mount_path == entry["mountPath"]
        and (present.sub_path or "") == entry.get("subPath", "")
        and (present.sub_path_expr or "") == entry.get("subPathExpr", "")
        and bool(present.read_only) == entry.get("readOnly", False)
    )


def same_volume(present: Volume, entry: Entry) -> bool:
    """Say whether the pod already carries the volume *entry*."""
    return present.host_path is not None and bool(
        present.host_path.path == entry["hostPath"]["path"]
    )


def reads_own_annotation(present: EnvVar, key: str) -> bool:
    """Say whether a reserved variable reads what it reads in some mode, under *key*.

    The Binding writes these annotations whatever the mode, so nothing is lifted by a copied
    manifest that reads one where this mode has a literal.
    """
    ref = present.value_from.field_ref if present.value_from is not None else None
    if ref is None or present.value:
        return False
    return any(ref.field_path == key_path(key, suffix) for suffix in _SUFFIXES[present.name])


def _suffixes(variable: Variable, k: int) -> frozenset[str]:
    """Return the suffixes of the annotations that *variable* reads for device *k* in any mode."""
    suffixes: set[str] = set()
    for form in variable.forms.values():
        read = form.otherwise if isinstance(form, LiteralOrField) else form
        if isinstance(read, Annotation) and read.suffix:
            suffixes.add(read.suffix.replace("{k}", str(k)))
    return frozenset(suffixes)


_SUFFIXES: Final = {name: _suffixes(variable, k) for name, (variable, k) in RESERVED.items()}


def own_key(present: EnvVar) -> str | None:
    """Return the container key that a variable of ours reads, such as ``c0``."""
    ref = present.value_from.field_ref if present.value_from is not None else None
    return None if ref is None else key_in(ref.field_path)
