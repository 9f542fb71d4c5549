"""What of a Node the families read, and whose GPUs it describes."""

from collections.abc import Mapping

from allocator.families.family import Family, InventoryFacts
from allocator.families.registry import FAMILIES


def inventory_facts(
    name: str,
    annotations: Mapping[str, str],
    *,
    labels: Mapping[str, str],
    capacity: Mapping[str, str],
    allocatable: Mapping[str, str],
) -> InventoryFacts | None:
    """Return what a family reads of a Node; ``None`` where no plugin of one has written there.

    The first family whose annotation or resource is there counts, so that a Node has one inventory.
    """
    family = _family_of(annotations, capacity)
    if family is None or family.inventory is None:
        return None
    inventory = family.inventory
    return InventoryFacts(
        name=name,
        family=family.name,
        annotations={key: annotations[key] for key in inventory.annotations if key in annotations},
        labels={key: labels[key] for key in inventory.labels if key in labels},
        capacity={key: capacity[key] for key in inventory.resources if key in capacity},
        allocatable={key: allocatable[key] for key in inventory.resources if key in allocatable},
    )


def _family_of(annotations: Mapping[str, str], capacity: Mapping[str, str]) -> Family | None:
    for family in FAMILIES.values():
        inventory = family.inventory
        if inventory is None:
            continue
        if any(key in annotations for key in inventory.annotations) or any(
            key in capacity for key in inventory.resources
        ):
            return family
    return None
