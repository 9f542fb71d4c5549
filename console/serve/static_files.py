"""Style sheet, script and icon: read once, named by their content, and cached for ever."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "static"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CACHING: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """One file as it is served."""

    address: str
    content: bytes
    media_type: str


def static_files(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """Return the files of *folder* by their own names; raises ``OSError``."""
    return {path.name: _static_file(path) for path in sorted(folder.iterdir()) if path.is_file()}


def _static_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return StaticFile(
        address=f"/static/{path.stem}.{digest}{path.suffix}",
        content=content,
        media_type=TYPES[path.suffix],
    )
