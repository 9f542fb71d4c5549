"""Values: the base class of objects that are built anew for every review.

A msgspec Struct is built ten times faster than a frozen dataclass. mypyc drops class keywords
(``frozen``, ``kw_only``, ``rename`` ...), so a compiled module (see ``compiled.py``) may define no
Struct of its own, only subclasses of :class:`Value` with ``frozen=True``, which this base has
already. A class that needs any other keyword must be in a module that is not compiled. This rule
is the only reason why ``Option`` is in ``model/allocation.py`` and not with the code that makes
options, and why ``webhook/admission/outcome.py`` is apart from the compiled ``messages.py``.
"""

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value: compared by its fields, never changed, and never part of a reference cycle."""
