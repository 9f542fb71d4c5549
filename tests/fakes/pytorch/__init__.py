"""A Python on the path that has PyTorch, as far as the checks of a GPU ask for it."""

import sys
from pathlib import Path
from typing import Final

_PACKAGES: Final = Path(__file__).parent / "packages"
# ``python3 -I`` hears of no folder by a variable.
_START: Final = """#!/bin/sh
exec {python} -IS {start} "$@"
"""


def install(folder: Path) -> Path:
    """Make a ``python3`` in *folder* and return that."""
    program = folder / "python3"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_START.format(python=sys.executable, start=_PACKAGES / "start.py"))
    program.chmod(0o755)
    return program
