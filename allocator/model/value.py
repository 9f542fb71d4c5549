"""Values: what is built anew for every review.

A msgspec Struct is built ten times faster than a frozen dataclass. Its options stand on this base
because mypyc, which may compile the modules that use it, does not pass class keywords on.
"""

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value: equal by its fields, never changed, and in no cycle."""
