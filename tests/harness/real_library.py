"""Real builds of HAMi-core's library, where ``VGPU_HAMI_CORE`` names a folder with them.

They are others' binaries, so the project holds none. A file is called ``libvgpu-<commit>.so``.
"""

import os
import platform
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from tests.cluster.gate import missing, unable

VARIABLE: Final = "VGPU_HAMI_CORE"
# Commits of HAMi-core by the layout of their region. HAMi 2.4.0 has the first, 2.8.0 the second,
# 2.8.1 the third, 2.8.3 and 2.9.0 the fourth; the last is newer than these.
GENERATIONS: Final = MappingProxyType(
    {"fb11ec3": "B", "ec8979d": "C", "94fff56": "D", "5091a2f": "E", "8f3a89c": "E"}
)
SERVED: Final = tuple(commit for commit, name in GENERATIONS.items() if name == "E")
REFUSED: Final = tuple(commit for commit, name in GENERATIONS.items() if name != "E")


def build_of(commit: str) -> Path:
    """Return the library built from *commit*; skips without a folder, fails without the file."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with builds of libvgpu.so")
    if platform.machine() != "x86_64":
        unable(f"the builds are for x86-64, this machine is {platform.machine()}")
    path = Path(folder) / f"libvgpu-{commit}.so"
    if not path.is_file():
        missing(f"{VARIABLE} names a folder without {path}")
    return path.resolve()
