"""The families that this release knows, and what follows from them for a request."""

from typing import Final

from allocator.families.family import Family, NodeModesSource
from allocator.families.metax import METAX_FAMILY
from allocator.families.nvidia import NVIDIA_FAMILY
from allocator.model.request import Mode, PodRequest

# By name. A family that is not built in, such as one of a test, is put here before it is used.
FAMILIES: Final[dict[str, Family]] = {
    family.name: family for family in (NVIDIA_FAMILY, METAX_FAMILY)
}


def family_named(name: str) -> Family:
    """Return the family *name*; raises ``KeyError`` where this release has none of that name.

    Readers of untrusted text check the name first, so no GPU has any other.
    """
    return FAMILIES[name]


def family_of(request: PodRequest) -> Family:
    """Return the family of the GPUs that *request* asks for."""
    return FAMILIES[request.family]


def modes_of(request: PodRequest) -> tuple[Mode, ...]:
    """Return the modes in which *request* may be served: the one it names, or those tried."""
    named = request.named_mode
    return FAMILIES[request.family].default_modes if named is None else (named,)


def usual_mode(request: PodRequest, default: Mode) -> Mode:
    """Return the mode of a request that names none while no GPU is known that serves it.

    That is *default* where the family tries it, but no MIG for containers with several GPUs.
    """
    modes = family_of(request).default_modes
    softest = modes[-1]
    return default if default in modes and not request.has_peers else softest


def family_modes() -> dict[str, NodeModesSource]:
    """Return the ConfigMaps by which families give nodes their modes, by family."""
    sources = ((name, family.inventory) for name, family in FAMILIES.items())
    return {
        name: inventory.modes
        for name, inventory in sources
        if inventory is not None and inventory.modes is not None
    }
