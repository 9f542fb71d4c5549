"""Libraries: installs the interception library of our image, or a stand-in for simulated GPUs."""

from pathlib import Path
from typing import Final

from agent.shell.library import NAME, Absent, Installed, install
from allocator.catalog.injection import LIBRARY_DIRECTORY, PRELOAD_LIBRARY, PRELOAD_NOTHING

FOLDER: Final = Path("/opt/vgpu")  # of our image
_PUBLISHED: Final = "lib/nvidia"  # where in it the image of its authors is copied to
_PLAYED: Final = b"simulated GPUs need no library\n"


def install_from(root: Path, folder: Path) -> Installed | Absent:
    """Install the library of *folder*, whose name may carry a version, below *root*."""
    found = [
        path for place in ("", _PUBLISHED) for path in sorted((folder / place).glob(f"{NAME}*"))
    ]
    return install(root, found[0] if found else folder / NAME)


def install_simulated(root: Path) -> Installed | Absent:
    """Put files in place that containers can mount and that act on nothing."""
    folder = root / LIBRARY_DIRECTORY.lstrip("/")
    try:
        folder.mkdir(0o755, parents=True, exist_ok=True)
        for name, content in ((NAME, _PLAYED), (PRELOAD_LIBRARY, b""), (PRELOAD_NOTHING, b"")):
            path = folder / name
            if not path.is_file() or path.read_bytes() != content:
                unfinished = folder / f"{name}.unfinished"
                unfinished.write_bytes(content)
                unfinished.replace(path)
    except OSError as error:
        return Absent(f"{LIBRARY_DIRECTORY} cannot be written: {error.strerror}")
    return Installed(NAME)
