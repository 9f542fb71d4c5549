"""axe-core, fetched once by version and digest and kept outside the tree."""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.browser.chromium import Tab
from tests.cluster.controlplane.build import cache_folder

VERSION = "4.14.1"
SHA512 = (
    "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b73"
    "4f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5"
)
STANDARDS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


class AxeError(Exception):
    """axe-core could not be fetched, or is another one than expected."""


def axe_source() -> str:
    """Return the script; it is downloaded with npm where the cache has none."""
    target = cache_folder() / f"axe-core-{VERSION}-{SHA512[:12]}.js"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = _extract(_download(Path(folder)), Path(folder))
            made.replace(target)
    return target.read_text(encoding="utf-8")


def _download(folder: Path) -> Path:
    if shutil.which("npm") is None:
        raise AxeError("npm is not installed, and the cache has no axe-core")
    command = ("npm", "pack", "--silent", "--pack-destination", str(folder), f"axe-core@{VERSION}")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    archive = folder / f"axe-core-{VERSION}.tgz"
    if done.returncode or not archive.exists():
        raise AxeError(f"npm pack failed: {done.stderr.strip()[-500:]}")
    digest = hashlib.sha512(archive.read_bytes()).hexdigest()
    if digest != SHA512:
        raise AxeError(f"axe-core {VERSION} has digest {digest}, expected {SHA512}")
    return archive


def _extract(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        member = tar.extractfile("package/axe.min.js")
        if member is None:
            raise AxeError("the archive has no axe.min.js")
        made = folder / "axe.js"
        made.write_bytes(member.read())
    return made


def violations(tab: Tab, source: str) -> list[str]:
    """Return what axe-core finds wrong on the page, one line for each rule with its elements."""
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(f"{source}; 0")
    tags = ", ".join(f'"{tag}"' for tag in STANDARDS)
    options = f'{{runOnly: {{type: "tag", values: [{tags}]}}}}'
    found = tab.evaluate(
        f"axe.run(document, {options}).then(r => r.violations.map(v =>"
        " v.id + ': ' + v.help + ': ' + v.nodes.map(n => n.html).slice(0, 3).join(' | ')))"
    )
    return [str(line) for line in found]
