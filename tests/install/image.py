"""The image as the README has it built, on bases that are made of Debian's packages.

A registry with the published bases is not reached where tests run. So their stand-ins come from
debootstrap: one Debian release, one Python 3.11, once slim and once with a C compiler.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.cluster.controlplane.build import cache_folder
from tests.cluster.controlplane.toolchain import BuildError, Say
from tests.fakes.hami_core import empty_library

ROOT: Final = Path(__file__).parents[2]
SUITE: Final = "bookworm"
PYTHON: Final = ("ca-certificates", "python3.11", "python3.11-venv", "python3-pip")
COMPILER: Final = ("gcc", "libc6-dev", "python3.11-dev")
_TRUST: Final = Path("etc/ssl/certs/ca-certificates.crt")
_PIP: Final = ("index-url", "extra-index-url", "trusted-host", "proxy")
# Where the published image of the interception library keeps it.
_LIBRARY: Final = "k8s-vgpu/lib/nvidia/libvgpu.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bases:
    """Names of base images in buildah's storage."""

    slim: str
    compiler: str
    hami: str


class Buildah:
    """Buildah, with a storage below the cache folder, so that nothing is left elsewhere."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.folder = cache_folder() / "install"
        self.folder.mkdir(parents=True, exist_ok=True)
        storage = self.folder / "storage"
        self._options = (
            f"--root={storage}",
            f"--runroot={self.folder / 'run'}",
            "--storage-driver=vfs",
        )

    def __call__(self, *arguments: str | Path) -> str:
        """Run one command and return what it prints; raise :class:`BuildError` if it fails."""
        return run("buildah", *self._options, *arguments)

    def has(self, name: str) -> bool:
        """Say whether there is an image of that name."""
        return bool(self("images", "--quiet", "--filter", f"reference={name}").strip())

    def import_tree(self, tree: Path, name: str) -> None:
        """Make an image of the files below *tree*."""
        container = self("from", "scratch").strip()
        self("copy", "--quiet", container, tree, "/")
        self("commit", "--quiet", "--rm", container, name)

    def digest(self, name: str) -> str:
        """Return the digest of the image of that name."""
        found = json.loads(self("images", "--json", "--filter", f"reference={name}"))
        return str(found[0]["digest"])

    def build(self, bases: Bases) -> str:
        """Build our image as the README does, where there is none of these sources; name it."""
        repository = "localhost/vgpu-test/vgpu-admission"
        name = f"{repository}:{_context_digest(bases)}"
        if self.has(name):
            return name
        if old := self("images", "--quiet", "--filter", f"reference={repository}").split():
            self("rmi", "--force", *dict.fromkeys(old))
        self.say("building the image (two minutes)")
        arguments = {
            "PYTHON_IMAGE": bases.slim,
            "PYTHON_IMAGE_DIGEST": self.digest(bases.slim),
            "COMPILER_IMAGE": bases.compiler,
            "COMPILER_IMAGE_DIGEST": self.digest(bases.compiler),
            "HAMI_IMAGE": bases.hami,
            "HAMI_IMAGE_DIGEST": self.digest(bases.hami),
        }
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        self("bud", "--quiet", "--isolation=chroot", *given, f"--tag={name}", ROOT)
        return name

    def save(self, name: str, archive: Path, *, as_: str) -> None:
        """Write an image as a docker archive in which it has another name."""
        archive.unlink(missing_ok=True)
        self("push", "--quiet", name, f"docker-archive:{archive}:{as_}")


def bases(buildah: Buildah) -> Bases:
    """Return the bases, made if the cache does not have them."""
    key = sha256(" ".join((SUITE, *PYTHON, *COMPILER)).encode()).hexdigest()[:12]
    made = Bases(
        slim=f"localhost/vgpu-test/python-slim:{key}",
        compiler=f"localhost/vgpu-test/python:{key}",
        hami=f"localhost/vgpu-test/hami:{key}",
    )
    tree = buildah.folder / f"tree-{key}"
    if not buildah.has(made.slim):
        _debootstrap(tree, buildah.say)
        buildah.import_tree(tree, made.slim)
    if not buildah.has(made.compiler):
        if not tree.exists():
            _debootstrap(tree, buildah.say)
        buildah.say(f"installing {' '.join(COMPILER)} into the compiler's base")
        install = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends")
        run("chroot", tree, "apt-get", "update", "--quiet")
        run("chroot", tree, *install, *COMPILER)
        buildah.import_tree(tree, made.compiler)
    if not buildah.has(made.hami):
        _library(buildah.folder / "hami")
        buildah.import_tree(buildah.folder / "hami", made.hami)
    shutil.rmtree(tree, ignore_errors=True)
    return made


def _context_digest(bases: Bases) -> str:
    """Return a digest of all that the image is built from."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    roots = [ROOT / "Dockerfile", *(ROOT / line[1:] for line in ignored if line.startswith("!"))]
    digest = sha256(f"{bases}".encode())
    for root in roots:
        for file in sorted([root, *root.rglob("*")]):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _debootstrap(tree: Path, say: Say) -> None:
    say(f"making a base image of Debian {SUITE} (one minute)")
    shutil.rmtree(tree, ignore_errors=True)
    mirror = run("apt-get", "indextargets", "--format", "$(REPO_URI)").splitlines()[0]
    include = f"--include={','.join(PYTHON)}"
    run("debootstrap", "--variant=minbase", include, SUITE, tree, mirror)
    for name in ("python", "pip"):
        (tree / "usr/local/bin" / name).symlink_to(f"/usr/bin/{name}3")
    # What this machine needs to reach the package registries.
    for place in ("etc/apt/apt.conf.d", "etc/apt/auth.conf.d"):
        if Path("/", place).is_dir():
            shutil.copytree(Path("/", place), tree / place, dirs_exist_ok=True)
    if Path("/", _TRUST).exists():
        shutil.copy(Path("/", _TRUST), tree / _TRUST)
    (tree / "etc/pip.conf").write_text(_pip_configuration())


def _pip_configuration() -> str:
    given = {key: os.environ.get(f"PIP_{key.replace('-', '_').upper()}") for key in _PIP}
    lines = [f"{key} = {value}" for key, value in given.items() if value]
    return "\n".join(["[global]", f"cert = /{_TRUST}", *lines, ""])


def _library(tree: Path) -> None:
    """Put a library that intercepts nothing where the published image has the real one."""
    target = tree / _LIBRARY
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(empty_library(), target)


def run(*command: str | Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it prints; raise :class:`BuildError` if it fails."""
    answer = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        check=False,
        env={**os.environ, **(variables or {})},
        text=True,
    )
    if answer.returncode:
        raise BuildError(f"{' '.join(map(str, command[:6]))}: {answer.stderr[-2000:]}")
    return answer.stdout
