"""The stand-in's machine as bytes: what ``source/machine.h`` declares, declared again for Python.

A test compares every size, and offsets of each structure, with what the compiler made of it.
"""

from ctypes import Structure, c_char, c_int32, c_uint32, c_uint64
from typing import Final

GPUS: Final = 16
PROFILES: Final = 24
PLACES: Final = 16
INSTANCES: Final = 16
COMPUTES: Final = 8
LINKS: Final = 18
PROCESSES: Final = 256
EVENTS: Final = 64
FAULTS: Final = 32
MAGIC: Final = 0x4C4D564E
UNKNOWN: Final = 2**64 - 1
NO_INSTANCE: Final = 2**32 - 1


class CProfile(Structure):
    _fields_ = (
        ("name", c_char * 96),
        ("memory", c_uint64),
        *((name, c_uint32) for name in ("number", "id", "slices", "size", "limit", "sms")),
        *((name, c_uint32) for name in ("copies", "decoders", "jpegs", "ofas", "media")),
        ("place_count", c_uint32),
        ("places", c_uint32 * PLACES),
        ("preferred", c_uint32 * PLACES),
    )


class CCompute(Structure):
    _fields_ = (
        ("uuid", c_char * 64),
        *((name, c_uint32) for name in ("used", "id", "number", "start", "slices", "mig_index")),
    )


class CInstance(Structure):
    _fields_ = (
        *((name, c_uint32) for name in ("used", "id", "profile", "start", "leaked", "reserved")),
        ("computes", CCompute * COMPUTES),
    )


class CGpu(Structure):
    _fields_ = (
        ("uuid", c_char * 64),
        ("name", c_char * 96),
        ("memory", c_uint64),
        ("overhead", c_uint64),
        *((name, c_uint32) for name in ("minor", "domain", "bus", "device", "pci_id")),
        *((name, c_uint32) for name in ("subsystem_id", "architecture", "cc_major", "cc_minor")),
        ("numa", c_int32),
        ("link_count", c_uint32),
        ("links", c_uint32 * LINKS),
        *((name, c_uint32) for name in ("mig_capable", "mig_current", "mig_pending", "guest")),
        *((name, c_uint32) for name in ("lost", "memory_hidden", "recovery", "compute_mode")),
        *((name, c_uint32) for name in ("slots", "profile_count")),
        ("profiles", CProfile * PROFILES),
        ("instances", CInstance * INSTANCES),
    )


class CProcess(Structure):
    _fields_ = (
        ("memory", c_uint64),
        ("seen", c_uint64),
        *((name, c_uint32) for name in ("used", "gpu", "pid", "gi", "ci", "utilization")),
        *((name, c_uint32) for name in ("type", "reserved")),
    )


class CEvent(Structure):
    _fields_ = (
        ("xid", c_uint64),
        *((name, c_uint32) for name in ("gpu", "gi", "ci", "reserved")),
    )


class CMachine(Structure):
    _fields_ = (
        ("boot", c_char * 64),
        ("driver_version", c_char * 80),
        ("nvml_version", c_char * 80),
        *((name, c_uint32) for name in ("cuda_version", "gpu_count", "unloaded", "old_driver")),
        *((name, c_uint32) for name in ("no_config", "no_monitor", "latency", "births")),
        *((name, c_uint32) for name in ("reported", "misplaces")),
        ("gpus", CGpu * GPUS),
        ("processes", CProcess * PROCESSES),
        ("events", CEvent * EVENTS),
    )


class CFault(Structure):
    _fields_ = (
        ("call", c_char * 64),
        *((name, c_uint32) for name in ("nth", "code", "seen", "used")),
    )


class CShared(Structure):
    _fields_ = (
        *((name, c_uint32) for name in ("magic", "size", "active", "reserved")),
        ("faults", CFault * FAULTS),
        ("copies", CMachine * 2),
    )
