"""Which words a cluster uses: the vocabularies under its settings and device configuration."""

from allocator.catalog.vocabularies import GPUSHARE, VOLCANO, Vocabulary, configure_vocabulary
from allocator.core.deviceconfig import DeviceConfig
from allocator.core.settings import MemoryUnit, Settings


def configured_vocabularies(settings: Settings, devices: DeviceConfig) -> tuple[Vocabulary, ...]:
    """Return the vocabularies as a cluster with this configuration speaks them."""
    names = {
        VOLCANO.count or "": devices.count_name,
        VOLCANO.memory or "": devices.memory_name,
        VOLCANO.percent or "": devices.percent_name,
        VOLCANO.cores or "": devices.cores_name,
    }
    unit = 1 if settings.gpushare_memory_unit is MemoryUnit.MIB else None
    return (
        configure_vocabulary(
            VOLCANO, memory_factor=devices.memory_factor, names=names, slot=devices.count_name
        ),
        configure_vocabulary(GPUSHARE, memory_factor=unit, slot=devices.count_name),
    )
