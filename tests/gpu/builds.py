"""The builds of the interception library that are to be checked."""

import hashlib
from pathlib import Path
from typing import Final

from agent.region.layout import library_problem
from agent.region.library_files import LARGEST
from tests.gpu.report import Figure

VARIABLE: Final = "VGPU_HAMI_CORE"  # names the folder


def builds_in(folder: Path | None) -> tuple[Path, ...]:
    """Return the shared libraries in *folder*, but for files that the agent would not read."""
    found = () if folder is None else sorted(folder.glob("*.so*"))
    return tuple(path for path in found if path.is_file() and path.stat().st_size <= LARGEST)


def has_seeded_layout(build: Path) -> bool:
    """Say whether the agent would install this library, because it can seed its regions."""
    return not library_problem(build.read_bytes())


def build_facts(build: Path) -> dict[str, Figure]:
    """Return what the report says of a build."""
    return {
        "file": build.name,
        "sha256": hashlib.sha256(build.read_bytes()).hexdigest(),
        "checked": has_seeded_layout(build),
    }
