"""A real containerd on a host of the tests, with the image that their containers run."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane.build import to_stderr
from tests.cluster.controlplane.debian import unpacked
from tests.cluster.controlplane.toolchain import BuildError
from tests.cluster.gate import missing
from tests.cluster.host import Host
from tests.cluster.image import archive
from tests.cluster.process import Process

SOCKET = "/run/containerd/containerd.sock"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
READY_WITHIN = 30.0
_UNCONFINED = Path(__file__).with_name("unconfined.py")

# `native` copies an image, a megabyte, where overlayfs would depend on what /tmp lies on. A process
# without CAP_SYS_RESOURCE, as in many sandboxes, cannot give the pause container its score.
_BUILT = """
version = 3
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = {cdi}
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plugins}"]
conf_dir = "{folder}/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
[plugins."io.containerd.nri.v1.nri"]
disable = true
"""
_DEBIAN = """
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{folder}/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{runc}"
"""

# A network of pods that talk to nobody: what a plugin says of itself, and the interface it made.
_NETWORK = {"cniVersion": "1.0.0", "name": "alone", "plugins": [{"type": "alone"}]}
_PLUGIN = """#!/bin/sh
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
  ADD) echo '{"cniVersion": "1.0.0",' \\
    '"interfaces": [{"name": "'$CNI_IFNAME'", "sandbox": "'$CNI_NETNS'"}],' \\
    '"ips": [{"address": "10.99.0.2/24", "interface": 0}]}' ;;
esac
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containerd:
    """It, and `ctr`, which asks it."""

    host: Host
    process: Process
    ctr: Path

    def start(self) -> None:
        """Start it, for the first time or again, and return once it answers."""
        self.process.start(self._answers, within=READY_WITHIN)

    def tasks(self) -> dict[str, int]:
        """Return the processes of running containers, as the host counts them, by container."""
        lines = self._ask("tasks", "list").splitlines()[1:]
        rows = (line.split() for line in lines)
        return {row[0]: int(row[1]) for row in rows if row[2] == "RUNNING"}

    def labels(self, container: str) -> dict[str, str]:
        """Return what kubelet has noted of a container."""
        found: dict[str, str] = json.loads(self._ask("containers", "info", container))["Labels"]
        return found

    def execute(self, container: str, name: str, *command: str) -> None:
        """Start a further process in a running container, called *name*; do not wait for it."""
        self._ask("tasks", "exec", "--detach", f"--exec-id={name}", container, *command)

    def _ask(self, *command: str) -> str:
        return self.host.run(self.ctr, f"--address={SOCKET}", "--namespace=k8s.io", *command)

    def _answers(self) -> bool:
        try:
            return bool(self._ask("version"))
        except AssertionError:  # its socket is not there yet
            return False

    def load(self, image: Path) -> None:
        """Import an image archive."""
        self._ask("images", "import", str(image))


def containerd(
    host: Host,
    programs: Mapping[str, Path],
    *,
    images: Iterable[str] = (),
    more: Mapping[str, Path] | None = None,
    plugins: Path | None = None,
) -> Containerd:
    """Start one with an image that has all these names, and *more* files.

    It is Debian's if *programs* has it as :func:`debian` returns it. Without *plugins* for the
    network that the host's folder describes, pods have one in which they talk to nobody.
    """
    plugins = plugins or _silent_network(host)
    runc = f'exec {sys.executable} -I -S {_UNCONFINED} {programs["runc"]} "$@"'
    template = _DEBIAN if _is_debian(programs) else _BUILT
    config = host.folder / "containerd.toml"
    config.write_text(
        template.format(
            folder=host.folder,
            socket=SOCKET,
            plugins=plugins,
            pause=archive.PAUSE,
            cdi=json.dumps(CDI_FOLDERS),
            runc=_script(host.folder / "runc", f"#!/bin/sh\n{runc}\n"),
        )
    )
    path = f"{programs['containerd-shim-runc-v2'].parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    process = host.process("containerd", [programs["containerd"], "-c", config], PATH=path)
    found = Containerd(host=host, process=process, ctr=programs["ctr"])
    found.start()
    found.load(archive.build(host.folder, (archive.PAUSE, archive.PROBE, *images), more))
    return found


def _silent_network(host: Host) -> Path:
    for place in ("bin", "net.d"):
        (host.folder / "cni" / place).mkdir(parents=True, exist_ok=True)
    (host.folder / "cni/net.d/10-alone.conflist").write_text(json.dumps(_NETWORK))
    for name in ("alone", "loopback"):
        _script(host.folder / "cni/bin" / name, _PLUGIN)
    return host.folder / "cni/bin"


def debian(programs: Mapping[str, Path]) -> dict[str, Path]:
    """Return *programs* with Debian's containerd, 1.6, which knows no CDI."""
    try:
        folder = unpacked("containerd", to_stderr)
    except BuildError as error:
        missing(f"no containerd without CDI: {error}")
    names = ("containerd", "containerd-shim-runc-v2", "ctr")
    return {**programs, **{name: folder / "usr/bin" / name for name in names}}


def _is_debian(programs: Mapping[str, Path]) -> bool:
    return programs["containerd"].match("usr/bin/containerd")


def _script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def forget(host: Host) -> None:
    """Remove what containers have left on the host's disk; it takes room."""
    shutil.rmtree(host.folder / "containerd", ignore_errors=True)
