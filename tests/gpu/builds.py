"""The builds of the interception library that are to be checked."""

import hashlib
from pathlib import Path
from typing import Final

from agent.region.layout import SEEDED
from agent.region.library_files import LARGEST
from tests.gpu.report import Figure

VARIABLE: Final = "VGPU_HAMI_CORE"  # names the folder
# What only builds with the layout that the agent seeds have: its size several times, and a name
# that came with it. It is right for all of eleven builds from 2024-01 to 2026-06 on x86-64.
_SIZE: Final = SEEDED.region_size.to_bytes(4, "little")
_LEAST_SIZES: Final = 3
_NAME: Final = b"postinit semaphore"


def builds_in(folder: Path | None) -> tuple[Path, ...]:
    """Return the shared libraries in *folder*, but for files that the agent would not read."""
    found = () if folder is None else sorted(folder.glob("*.so*"))
    return tuple(path for path in found if path.is_file() and path.stat().st_size <= LARGEST)


def has_seeded_layout(build: Path) -> bool:
    """Say whether the library takes the regions that the agent seeds."""
    content = build.read_bytes()
    return content.count(_SIZE) >= _LEAST_SIZES and _NAME in content


def build_facts(build: Path) -> dict[str, Figure]:
    """Return what the report says of a build."""
    return {
        "file": build.name,
        "sha256": hashlib.sha256(build.read_bytes()).hexdigest(),
        "checked": has_seeded_layout(build),
    }
