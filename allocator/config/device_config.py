"""Volcano's two ConfigMaps; the vocabularies as this cluster configures them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from allocator.catalog.vocabularies import (
    CATALOGUE,
    GPUSHARE,
    HAMI,
    VOLCANO,
    LostVocabulary,
    Vocabulary,
    configure_vocabulary,
    lost_vocabularies,
)
from allocator.config.document import DocumentError, DocumentTable, Notes, describe, read_document
from allocator.config.mig_geometries import duplicates, read_geometries
from allocator.config.settings import HamiSettings, MemoryUnit, NodeAgent, Settings
from allocator.mig.geometry import Geometries, defects
from allocator.model.problem import Loaded, Problem, Rejected
from allocator.model.request import Mode
from allocator.model.units import CorePercent

T = TypeVar("T")
_MAX_MEMORY: Final = 2**31 - 1
_MAX_SPLIT: Final = 1000
_KNOWN_KEYS: Final = (
    "resourceCountName",
    "resourceMemoryName",
    "resourceMemoryPercentageName",
    "resourceCoreName",
    "deviceSplitCount",
    "deviceMemoryScaling",
    "deviceCoreScaling",
    "gpuMemoryFactor",
    "knownMigGeometries",
)
# The plugin parses these keys, but they have no effect; their presence is normal.
_IGNORED_KEYS: Final = (
    "resourcePriorityName",
    "overwriteEnv",
    "defaultMemory",
    "defaultCores",
    "defaultGPUNum",
    "disableCoreLimit",
    "passDeviceSpecs",
)
_NODE_KEYS: Final = (
    "name",
    "operatingmode",
    "devicememoryscaling",
    "devicecorescaling",
    "devicesplitcount",
    "migstrategy",
    "filterdevices",
    "mpsdevices",  # ours, as the next: no device plugin of Volcano's reads them
    "mpsstatic",
)
_RESOURCE_NAME: Final = re.compile(r"[a-z0-9.-]{1,253}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """``device-config.yaml``; an absent key has the plugin's built-in value, never ""."""

    count_name: str = VOLCANO.count or ""
    memory_name: str = VOLCANO.memory or ""
    percent_name: str = VOLCANO.percent or ""
    cores_name: str = VOLCANO.cores or ""
    split_count: int = 10
    memory_scaling: float = 1.0  # only recorded: the plugin never applied it
    cores_scaling: float = 1.0
    memory_factor: int = 1  # MiB per unit of the memory resource
    geometries: Geometries = field(default_factory=Geometries)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What ``config.json`` says about one node; ``None`` leaves the cluster's value."""

    name: str
    mode: Mode = Mode.HAMI_CORE
    split_count: int | None = None
    memory_scaling: float | None = None
    cores_scaling: float | None = None
    excluded_uuids: frozenset[str] = frozenset()
    excluded_indexes: frozenset[int] = frozenset()
    # GPUs that are to be in mode mps, whatever ``mode`` is
    mps_uuids: frozenset[str] = frozenset()
    mps_indexes: frozenset[int] = frozenset()
    # GPUs that are partitioned statically where they are in mode mps; True: all of them
    static: bool = False
    static_uuids: frozenset[str] = frozenset()
    static_indexes: frozenset[int] = frozenset()

    def excludes(self, uuid: str, index: int) -> bool:
        """Say whether the node excludes the GPU with this UUID or index."""
        return uuid in self.excluded_uuids or index in self.excluded_indexes

    def mode_of(self, uuid: str, index: int) -> Mode:
        """Return the mode that the GPU with this UUID or index is to be in."""
        named = uuid in self.mps_uuids or index in self.mps_indexes
        return Mode.MPS if named else self.mode

    def is_static(self, uuid: str, index: int) -> bool:
        """Say whether the GPU with this UUID or index is partitioned statically in mode mps."""
        return self.static or uuid in self.static_uuids or index in self.static_indexes

    def mode_text(self, uuid: str, index: int) -> str:
        """Return what says in which mode that GPU is to be, as the start of a sentence."""
        named = self.mode_of(uuid, index) is not self.mode
        return (
            f"mpsdevices names it for mode {Mode.MPS}" if named else f"operatingmode is {self.mode}"
        )


def load_device_config(text: str) -> Loaded[DeviceConfig] | Rejected:
    """Read ``device-config.yaml``; when it is rejected, callers keep the last good one."""
    notes = Notes()
    config = DeviceConfig()
    document = _document(text, notes)
    if document is not None:
        config = _device_config(document, notes)
    return _outcome(config, notes)


def _document(text: str, notes: Notes) -> DocumentTable | None:
    try:
        value = read_document(text)
    except DocumentError as error:
        notes.error("document", str(error), "one YAML or JSON document of at most 512 KiB")
        return None
    return DocumentTable.of(value, "", notes)


def _outcome(value: T, notes: Notes) -> Loaded[T] | Rejected:
    if notes.errors:
        return Rejected(tuple(notes.errors))
    return Loaded(value=value, warnings=tuple(notes.warnings))


def _device_config(document: DocumentTable, notes: Notes) -> DeviceConfig:
    table = _config_table(document)
    config = DeviceConfig(
        count_name=_resource(table, "resourceCountName", VOLCANO.count),
        memory_name=_resource(table, "resourceMemoryName", VOLCANO.memory),
        percent_name=_resource(table, "resourceMemoryPercentageName", VOLCANO.percent),
        cores_name=_resource(table, "resourceCoreName", VOLCANO.cores),
        split_count=table.integer("deviceSplitCount", 10, low=1, high=_MAX_SPLIT),
        memory_scaling=table.number("deviceMemoryScaling", 1.0),
        cores_scaling=table.number("deviceCoreScaling", 1.0),
        # The plugin's scheduler reads 0 as 1.
        memory_factor=table.integer("gpuMemoryFactor", 1, low=0, high=_MAX_MEMORY) or 1,
        geometries=read_geometries(table, "knownMigGeometries"),
    )
    _distinct_resources(config, table)
    if not notes.errors:  # a partly read table would only cause follow-up errors
        path = table.at("knownMigGeometries")
        notes.errors.extend(defects(config.geometries.entries, path))
    return config


def _config_table(document: DocumentTable) -> DocumentTable:
    """Return the table that holds the keys; ``knownMigGeometries`` may be beside ``nvidia:``."""
    if "nvidia" not in document.values:
        document.check_keys((*_KNOWN_KEYS, *_IGNORED_KEYS, "vnpus"), refuse=False)
        return document
    document.check_keys(("nvidia", "vnpus", "knownMigGeometries"), refuse=False)
    inner = DocumentTable.of(document.values["nvidia"], "nvidia", document.notes)
    inner.check_keys((*_KNOWN_KEYS, *_IGNORED_KEYS), refuse=False)
    geometries = document.values.get("knownMigGeometries")
    if geometries is None or "knownMigGeometries" in inner.values:
        return inner
    values = {**inner.values, "knownMigGeometries": geometries}
    return DocumentTable(values, inner.path, inner.notes)


def _resource(table: DocumentTable, key: str, default: str | None) -> str:
    name = table.text(key, default)
    if name and not _RESOURCE_NAME.fullmatch(name):
        table.note_wrong(key, f"a resource name such as {default}")
    return name


def _distinct_resources(config: DeviceConfig, table: DocumentTable) -> None:
    names = (config.count_name, config.memory_name, config.percent_name, config.cores_name)
    for name in duplicates(names):
        table.notes.error(
            table.path or "document",
            f"{describe(name)} names two resources",
            "four different names",
        )


def load_node_config(text: str) -> Loaded[Mapping[str, NodeConfig]] | Rejected:
    """Read ``config.json``; entries of one node apply in order, later ones win."""
    notes = Notes()
    nodes: dict[str, NodeConfig] = {}
    document = _document(text, notes)
    if document is not None:
        for table in document.lower_keys().tables("nodeconfig", required=True):
            entry = table.lower_keys()
            config = _node_config(entry, nodes.get(entry.text("name")))
            nodes[config.name] = config
    return _outcome(MappingProxyType(nodes), notes)


def _node_config(table: DocumentTable, earlier: NodeConfig | None) -> NodeConfig:
    table.check_keys(_NODE_KEYS, refuse=False)
    if earlier is not None:
        table.notes.warning(table.at("name"), f"{describe(earlier.name)} twice", "one entry")
    before = earlier or NodeConfig(name=str(table.values.get("name", "")))
    uuids, indexes = _devices(table, "filterdevices")
    mps_uuids, mps_indexes = _devices(table, "mpsdevices")
    static, static_uuids, static_indexes = _static(table, before)
    return NodeConfig(
        name=before.name,
        mode=_mode(table, before.mode),
        split_count=table.integer("devicesplitcount", 0, low=0, high=_MAX_SPLIT)
        or before.split_count,
        memory_scaling=_scaling(table, "devicememoryscaling") or before.memory_scaling,
        cores_scaling=_scaling(table, "devicecorescaling") or before.cores_scaling,
        excluded_uuids=uuids or before.excluded_uuids,
        excluded_indexes=indexes or before.excluded_indexes,
        mps_uuids=mps_uuids or before.mps_uuids,
        mps_indexes=mps_indexes or before.mps_indexes,
        static=static,
        static_uuids=static_uuids,
        static_indexes=static_indexes,
    )


def _mode(table: DocumentTable, default: Mode) -> Mode:
    value = table.text("operatingmode", default)
    if value in (Mode.MIG, Mode.HAMI_CORE, Mode.MPS):
        return Mode(value)
    table.note_wrong("operatingmode", f"{Mode.HAMI_CORE}, {Mode.MIG} or {Mode.MPS}")
    return default


def _scaling(table: DocumentTable, key: str) -> float | None:
    """Return a scaling; ``None``, where it is absent or 0, means the cluster's."""
    return table.number(key, 1.0) if table.values.get(key) else None


def _static(
    table: DocumentTable, before: NodeConfig
) -> tuple[bool, frozenset[str], frozenset[int]]:
    """Return whether all GPUs in mode mps are partitioned, and which are by UUID and index."""
    value = table.values.get("mpsstatic")
    if isinstance(value, bool):
        return value, frozenset(), frozenset()
    if isinstance(value, Mapping):
        return False, *_devices(table, "mpsstatic")
    if value is not None:
        table.note_wrong("mpsstatic", "true, false, or GPUs by index and uuid")
    return before.static, before.static_uuids, before.static_indexes


def _devices(table: DocumentTable, key: str) -> tuple[frozenset[str], frozenset[int]]:
    """Return the GPUs that *key* lists, by UUID and by index."""
    value = table.values.get(key)
    listed = DocumentTable.of({} if value is None else value, table.at(key), table.notes)
    by_name = listed.lower_keys()
    by_name.check_keys(("uuid", "index"), refuse=False)
    return frozenset(by_name.texts("uuid")), frozenset(by_name.integers("index", high=1023))


def _hami_vocabulary(hami: HamiSettings, *, slot: str) -> Vocabulary:
    names = {
        HAMI.count or "": hami.count_name,
        HAMI.memory or "": hami.memory_name,
        HAMI.percent or "": hami.percent_name,
        HAMI.cores or "": hami.cores_name,
        HAMI.priority or "": hami.priority_name,
    }
    configured = configure_vocabulary(
        HAMI, memory_factor=hami.memory_factor, names=names, slot=slot
    )
    changed = replace(
        configured,
        default_count=hami.default_gpus,
        default_memory=hami.default_memory,
        default_cores=CorePercent(hami.default_cores),
    )
    return HAMI if changed == HAMI else changed


def configured_vocabularies(settings: Settings, devices: DeviceConfig) -> tuple[Vocabulary, ...]:
    """Return the vocabularies that are served, with the names and units of this configuration.

    One is left out that shares a name with Volcano's, as *devices* renames it: its amounts would be
    read in another unit. :func:`vocabulary_problems` tells of it.
    """
    lost = {each.vocabulary.name for each in vocabularies_named_in_vain(settings, devices)}
    wanted = _wanted_vocabularies(settings, devices)
    return tuple(vocabulary for vocabulary in wanted if vocabulary.name not in lost)


def vocabulary_problems(settings: Settings, devices: DeviceConfig) -> tuple[Problem, ...]:
    """Return why vocabularies that *settings* name are not served beside *devices*."""
    hami = {
        getattr(settings.hami, one.name): f"hami.{one.encode_name}"
        for one in msgspec.structs.fields(HamiSettings)
    }
    return tuple(
        Problem(
            path="settings.yaml: "
            + (hami[lost.name] if lost.vocabulary.name == HAMI.name else "vocabularies"),
            what=f"{describe(lost.name)} is {lost.key} in device-config.yaml too, so the "
            f"vocabulary {lost.vocabulary.name} is not served",
            accepted="another name in one of the two, or vocabularies without "
            f"{lost.vocabulary.name}",
        )
        for lost in vocabularies_named_in_vain(settings, devices)
    )


def vocabularies_named_in_vain(
    settings: Settings, devices: DeviceConfig
) -> tuple[LostVocabulary, ...]:
    """Return the vocabularies that *settings* name and that have a resource of Volcano's."""
    keys = {devices.cores_name: "resourceCoreName", devices.memory_name: "resourceMemoryName"}
    keys[devices.percent_name] = "resourceMemoryPercentageName"
    keys[devices.count_name] = "resourceCountName"
    return lost_vocabularies(_wanted_vocabularies(settings, devices), keys)


def _wanted_vocabularies(settings: Settings, devices: DeviceConfig) -> tuple[Vocabulary, ...]:
    names = {
        VOLCANO.count or "": devices.count_name,
        VOLCANO.memory or "": devices.memory_name,
        VOLCANO.percent or "": devices.percent_name,
        VOLCANO.cores or "": devices.cores_name,
    }
    unit = 1 if settings.gpushare_memory_unit is MemoryUnit.MIB else None
    configured = (
        configure_vocabulary(
            VOLCANO, memory_factor=devices.memory_factor, names=names, slot=devices.count_name
        ),
        configure_vocabulary(GPUSHARE, memory_factor=unit, slot=devices.count_name),
        _hami_vocabulary(
            settings.hami,
            # HAMi's own plugin is called by its own resource.
            slot=settings.hami.count_name
            if settings.node_agent is NodeAgent.HAMI
            else devices.count_name,
        ),
        *(
            vocabulary
            if vocabulary.slot in vocabulary.resources  # another device plugin is called for it
            else configure_vocabulary(vocabulary, slot=devices.count_name)
            for vocabulary in CATALOGUE
            if vocabulary not in (VOLCANO, GPUSHARE, HAMI)
        ),
    )
    return tuple(v for v in configured if v.name in settings.vocabularies)
