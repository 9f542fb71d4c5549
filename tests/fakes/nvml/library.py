"""The stand-in for NVIDIA's library: compiled once per state of its sources, outside the tree."""

from pathlib import Path
from typing import Final

from tests.fakes.native import built

SONAME: Final = "libnvidia-ml.so.1"
SOURCE: Final = Path(__file__).parent / "source"
_FLAGS: Final = (
    *("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
)


def library(name: str = SONAME) -> Path:
    """Return the shared object; its folder is fit for LD_LIBRARY_PATH, and holds nothing else.

    Under another *name* a process may load it and still has no NVIDIA library.
    """
    return built(SOURCE, name, (*_FLAGS, f"-Wl,-soname,{name}"))
