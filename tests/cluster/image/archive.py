"""The one image of the tests: a docker archive around one static program, made without a network.

It goes by every name that a test's pods call their image by, so that samples run as they are.
"""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

PAUSE = "docker.io/local/pause:1"
PROBE = "docker.io/local/probe:1"

_SOURCE = Path(__file__).with_name("probe.c")
# The names that the program goes by, and the folders that mounts of ours expect.
_LINKS = ("pause", "bin/sh", "bin/bash", "bin/sleep", "usr/bin/sleep")
_FOLDERS = ("bin", "etc", "tmp", "usr", "usr/bin", "usr/local")
_CONFIG = {
    "architecture": "amd64",
    "os": "linux",
    "config": {
        "Env": ["PATH=/bin:/usr/bin:/", "NVIDIA_VISIBLE_DEVICES=all"],
        "Cmd": ["/probe", "sleep", "100000"],
    },
}


def build(folder: Path, names: Iterable[str], more: Mapping[str, Path] | None = None) -> Path:
    """Compile the program and write ``image.tar``; *more* are further files by their place in it.

    The image asks for all GPUs, as NVIDIA's images do. CalledProcessError where nothing compiles.
    """
    program = folder / "probe"
    compiler: list[str | Path] = [
        "cc",
        "-static",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        program,
        _SOURCE,
    ]
    subprocess.run(compiler, capture_output=True, check=True)
    layer = _layer({"probe": program, **(more or {})})
    digest = hashlib.sha256(layer).hexdigest()
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    config = json.dumps({**_CONFIG, "rootfs": rootfs}).encode()
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": ["layer.tar"]}]
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name, content in (
            ("layer.tar", layer),
            ("config.json", config),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            tar.addfile(_entry(name, size=len(content)), io.BytesIO(content))
    return archive


def _layer(files: Mapping[str, Path]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name in _FOLDERS:
            entry = _entry(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name, path in files.items():
            content = path.read_bytes()
            tar.addfile(_entry(name, size=len(content)), io.BytesIO(content))
        for name in _LINKS:
            entry = _entry(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/probe"
            tar.addfile(entry)
    return sink.getvalue()


def _entry(name: str, size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o755
    return entry
