"""Which programs the cluster tests run, and the Go module and flags each is built from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A folder beside this file whose go.mod and go.sum pin one set of versions.

    A go.mod of a dependency loses its replace directives, so Kubernetes and Volcano, which pin
    different Kubernetes libraries, cannot share one.
    """

    name: str
    released_as: str
    tags: str = ""
    cgo: bool = False  # the program is partly C, which the system's compiler links statically
    stamps: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / self.name

    @property
    def version(self) -> str:
        """The pinned release, without its leading v."""
        return self._line(rf"{re.escape(self.released_as)} v(\S+)")

    @property
    def needs_go(self) -> tuple[int, ...]:
        """The oldest Go release that go.mod admits."""
        return tuple(int(part) for part in self._line(r"go ([\d.]+)$").split("."))

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for `go build`, with the release stamped in.

        Without the stamp Kubernetes reports v0.0.0-master, and clients that align their features
        with the server's version misbehave.
        """
        major, minor, *_ = self.version.split(".")
        values = {"version": self.version, "major": major, "minor": minor}
        stamps = (f"-X {name}={value.format(**values)}" for name, value in self.stamps.items())
        static = ("-linkmode=external", "-extldflags=-static") if self.cgo else ()
        return (
            "-mod=readonly",
            "-buildvcs=false",
            "-trimpath",
            f"-tags={self.tags}",
            f"-ldflags={' '.join(('-s', '-w', *static, *stamps))}",
        )

    def _line(self, pattern: str) -> str:
        text = (self.folder / "go.mod").read_text()
        found = re.search(rf"^\s*(?:require )?{pattern}", text, re.MULTILINE)
        if found is None:
            raise LookupError(f"{self.name}/go.mod has no line like {pattern!r}")
        return found[1]


@dataclass(frozen=True, slots=True)
class Binary:
    """One program: the module that pins it and its main package."""

    module: Module
    package: str


KUBERNETES = Module(
    name="kubernetes",
    released_as="k8s.io/kubernetes",
    tags="grpcnotrace,selinux,notest",
    stamps={
        f"{package}.{variable}": value
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for variable, value in (
            ("gitVersion", "v{version}"),
            ("gitMajor", "{major}"),
            ("gitMinor", "{minor}"),
        )
    },
)
VOLCANO = Module(
    name="volcano",
    released_as="volcano.sh/volcano",
    stamps={"volcano.sh/volcano/pkg/version.Version": "v{version}"},
)
CONTAINERD = Module(
    name="containerd",
    released_as="github.com/containerd/containerd/v2",
    tags="no_btrfs,no_devmapper,no_zfs",
    stamps={"github.com/containerd/containerd/v2/version.Version": "{version}"},
)
# The release that containerd is tested with; its C enters namespaces before Go's runtime starts.
RUNC = Module(
    name="runc",
    released_as="github.com/opencontainers/runc",
    tags="netgo,osusergo",
    cgo=True,
    stamps={"main.version": "{version}"},
)
KWOK = Module(name="kwok", released_as="sigs.k8s.io/kwok")

BINARIES: Mapping[str, Binary] = {
    "etcd": Binary(KUBERNETES, "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Binary(KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": Binary(KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": Binary(KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubectl": Binary(KUBERNETES, "k8s.io/kubernetes/cmd/kubectl"),
    "kubelet": Binary(KUBERNETES, "k8s.io/kubernetes/cmd/kubelet"),
    "kube-proxy": Binary(KUBERNETES, "k8s.io/kubernetes/cmd/kube-proxy"),
    "vc-scheduler": Binary(VOLCANO, "volcano.sh/volcano/cmd/scheduler"),
    "vc-controller-manager": Binary(VOLCANO, "volcano.sh/volcano/cmd/controller-manager"),
    "vc-webhook-manager": Binary(VOLCANO, "volcano.sh/volcano/cmd/webhook-manager"),
    "containerd": Binary(CONTAINERD, "github.com/containerd/containerd/v2/cmd/containerd"),
    "containerd-shim-runc-v2": Binary(
        CONTAINERD, "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
    ),
    "ctr": Binary(CONTAINERD, "github.com/containerd/containerd/v2/cmd/ctr"),
    "runc": Binary(RUNC, "github.com/opencontainers/runc"),
    "kwok": Binary(KWOK, "sigs.k8s.io/kwok/cmd/kwok"),
}

# What tests/cluster needs today; everything else in the table is built when asked for by name.
DEFAULT = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    *("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc"),
)
