"""A process that lost its environment (env -i, ssh, cron) is held to the limits of its container.

The library then looks for its region at /tmp/cudevshr.cache, and makes one without limits where
there is none.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.deviceplugin.container_edits import HostMount
from tests.cluster.gate import unable
from tests.hami_core.conftest import NodeMaker
from tests.harness.container import FIRST_ID, Image
from tests.harness.library_node import GIB, MIB, LibraryNode

pytestmark = pytest.mark.library
LOST = "/tmp/cudevshr.cache"
_PROTECTED = Path("/proc/sys/fs/protected_regular")
IMAGES = {
    "plain": Image(),
    "without-tmp": Image(tmp_mode=None),
    "read-only": Image(read_only=True),
    "read-only-without-tmp": Image(read_only=True, tmp_mode=None),
    "users": Image(user_namespace=True),
    "users-read-only": Image(user_namespace=True, read_only=True),
    "users-without-tmp": Image(user_namespace=True, tmp_mode=None),
}


@pytest.fixture
def protected() -> Iterator[None]:
    """Let the kernel protect files in sticky directories, as distributions set it."""
    before = _PROTECTED.read_text()
    try:
        if before.strip() == "0":
            _PROTECTED.write_text("1")
    except OSError as error:
        unable(f"{_PROTECTED} cannot be set: {error}")
    yield
    _PROTECTED.write_text(before)


@pytest.mark.usefixtures("protected")
@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("image", IMAGES.values(), ids=IMAGES)
def test_it_is_held_to_the_same_limit(node: LibraryNode, image: Image, uid: int) -> None:
    """As any user, also of a pod with its own, whatever the image has at /tmp."""
    with node.container(node.share(8192), image=image) as container:
        program = container.program(uid=uid, cleared=True)

        assert program.tell("init") == "1"
        assert program.tell("total 0") == str(8 * GIB)
        assert program.fits(0, 7 * GIB)
        assert not program.fits(0, GIB)


def test_it_counts_with_the_others(node_of: NodeMaker) -> None:
    """One region for all processes of the container, on each of its devices."""
    node = node_of(2)
    with node.container(node.share(8192, 4096)) as container:
        kept, lost = container.program(), container.program(cleared=True)
        kept.tell("init")
        lost.tell("init")

        assert kept.fits(0, 5 * GIB)
        assert not lost.fits(0, 3 * GIB)
        assert lost.fits(0, 2 * GIB)
        assert lost.fits(1, 3 * GIB)
        assert not kept.fits(1, GIB)


@pytest.mark.usefixtures("protected")
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755], ids=oct)
@pytest.mark.parametrize("users", [False, True], ids=["host-users", "own-users"])
def test_a_volume_of_the_tenant_at_tmp_hides_nothing(
    node: LibraryNode, mode: int, *, users: bool
) -> None:
    """Runtimes mount by depth, so ours comes after an emptyDir at /tmp."""
    image = Image(user_namespace=users)
    volume = node.folder / "volume"
    volume.mkdir()
    volume.chmod(mode)
    if users:
        owned(volume)
    with node.container(
        node.share(8192),
        image=image,
        volumes=[HostMount(host=str(volume), path="/tmp", read_only=False)],
    ) as container:
        for cleared in (False, True):
            program = container.program(cleared=cleared)
            program.tell("init")
            assert program.tell("total 0") == str(8 * GIB)


def owned(volume: Path) -> None:
    """Give a volume to the pod's root user, as a runtime translates kubelet's mounts."""
    os.chown(volume, FIRST_ID, FIRST_ID)


@pytest.mark.parametrize("users", [False, True], ids=["host-users", "own-users"])
@pytest.mark.parametrize(
    "command",
    [
        ("rm", "-f", LOST),
        ("mv", LOST, "/tmp/other"),
        ("ln", "-sf", "/dev/null", LOST),
        ("unlink", "/tmp/vgpu/vgpu.cache"),
        ("mv", "-T", "/etc/passwd", LOST),
        ("umount", LOST),
        ("mount", "-t", "tmpfs", "x", "/tmp"),
    ],
    ids=" ".join,
)
def test_root_in_the_container_cannot_replace_it(
    node: LibraryNode, command: tuple[str, ...], *, users: bool
) -> None:
    """It is a mount, and a container's root may neither remove nor cover one."""
    share = node.share(8192)
    with node.container(share, image=Image(user_namespace=users)) as container:
        before = node.region(share).stat().st_ino

        assert container.run(*command, uid=0).returncode != 0
        for path in (LOST, "/tmp/vgpu/vgpu.cache"):
            assert container.run("stat", "-c%i", path).stdout.strip() == str(before)
        program = container.program(uid=0, cleared=True)
        program.tell("init")
        assert not program.fits(0, 9 * GIB)


def test_nothing_but_the_region_can_be_written_on_the_node(node: LibraryNode) -> None:
    """Files beside it are the container's own; a second region was limited by nobody."""
    share = node.share(8192)
    with node.container(share) as container:
        made = container.run("sh", "-c", "touch /tmp/vgpu/a && ln -s a /tmp/vgpu/b.cache", uid=0)

        assert made.returncode == 0
        assert [path.name for path in node.region(share).parent.iterdir()] == ["vgpu.cache"]


def test_a_lying_environment_changes_nothing_there(node: LibraryNode) -> None:
    """Limits in the variables of a shell without the path of the region."""
    lies = {"CUDA_DEVICE_MEMORY_LIMIT": "39g", "CUDA_DEVICE_MEMORY_LIMIT_0": "39g"}
    with node.container(node.share(8192)) as container:
        program = container.program(env=lies)
        program.tell("init")

        assert program.fits(0, 7 * GIB)
        assert not program.fits(0, GIB)
        assert program.fits(0, 512 * MIB)
