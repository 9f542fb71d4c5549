"""The stand-in for NVIDIA's CUDA driver library: compiled once per state of its sources."""

from pathlib import Path
from typing import Final

from tests.fakes.native import built

SONAME: Final = "libcuda.so.1"
_SOURCE: Final = Path(__file__).parent / "source"
_FLAGS: Final = (
    *("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic", "-pthread"),
    f"-Wl,-soname,{SONAME}",
)


def library() -> Path:
    """Return the shared object; its folder is fit for LD_LIBRARY_PATH, and holds nothing else."""
    return built(_SOURCE, SONAME, _FLAGS)
