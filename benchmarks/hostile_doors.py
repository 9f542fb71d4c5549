"""All doors that stay closed, tried in one run.

A further door is one more function with ``@door`` in one of the modules below, named after what it
tries.
"""

from benchmarks import (
    hostile_doors_callers,
    hostile_doors_hiding,
    hostile_doors_library,
    hostile_doors_node,
    hostile_doors_pods,
    hostile_doors_region,
)
from benchmarks.hostile_door import DOORS, TriedDoors, try_doors

GROUPS = (
    hostile_doors_callers,
    hostile_doors_pods,
    hostile_doors_hiding,
    hostile_doors_node,
    hostile_doors_region,
    hostile_doors_library,
)


def try_all_doors() -> TriedDoors:
    """Try every door of GROUPS."""
    return try_doors(DOORS)
