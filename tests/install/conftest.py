"""One cluster of one node for all tests of the installation, with the image built for it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.containerd import containerd, forget
from tests.cluster.controlplane import build
from tests.cluster.controlplane.build import to_stderr
from tests.cluster.controlplane.toolchain import BuildError
from tests.cluster.gate import missing
from tests.cluster.host import Host, require_node
from tests.harness.debian_packages import IMAGE_TOOLS, require
from tests.install.image import Buildah, bases
from tests.install.one_node import OneNode, network_folder, one_node
from tests.install.person import Person, blocks, person

IMAGE = "registry.example.com/vgpu-admission"  # as manifests/example names it
WORKLOAD = "docker.io/library/debian:12"
PLUGINS = Path("/usr/lib/cni")
INSTALL = blocks("README.md", "## Install")
PROGRAMS = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    *("kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "runc"),
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test below this folder, and give it time to build the image."""
    item.add_marker("cluster")
    item.add_marker("install")
    item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    """Yield a cluster that has our image in two releases, and an image for workloads."""
    folder = tmp_path_factory.mktemp("one-node")
    require_node()
    require(*IMAGE_TOOLS)
    try:
        programs = build.build(PROGRAMS, to_stderr)
        archives = _archives(folder)
    except BuildError as error:
        missing(f"no installation: {error}")
    machine = folder / "node-1"
    machine.mkdir()
    with Host(machine, own_network=True) as host, contextlib.ExitStack() as stack:
        stack.callback(forget, host)
        network_folder(host)
        runtime = containerd(host, programs, plugins=PLUGINS)
        found = one_node(host, programs, runtime.process)
        for archive in archives:
            found.load(archive)
            archive.unlink()
        yield found


def _archives(folder: Path) -> list[Path]:
    """Build the image; return it in two releases, and the image of workloads."""
    buildah = Buildah(to_stderr)
    made = bases(buildah)
    image = buildah.build(made)
    names = {
        "first.tar": (image, f"{IMAGE}:0.1.0"),
        "second.tar": (image, f"{IMAGE}:0.1.1"),
        "workload.tar": (made.slim, WORKLOAD),
    }
    for file, (source, name) in names.items():
        buildah.save(source, folder / file, as_=name)
    return [folder / file for file in names]


@pytest.fixture(scope="session")
def someone(cluster: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """Return a person with a checkout, who has installed nothing yet."""
    return person(cluster, tmp_path_factory.mktemp("person"))
