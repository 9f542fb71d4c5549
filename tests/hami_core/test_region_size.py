"""A tenant cannot fill the node's disk through the region that its container has mounted."""

import pytest

from agent.monitor.violation import ViolationKind
from agent.region.layout import SEEDED
from tests.harness.container import Image
from tests.harness.library_node import GIB, LibraryNode

pytestmark = pytest.mark.library
PATHS = ("/tmp/vgpu/vgpu.cache", "/tmp/cudevshr.cache")


@pytest.mark.parametrize("uid", [0, 65534])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("users", [False, True], ids=["host-users", "own-users"])
def test_a_region_that_was_filled_is_cut_under_running_programs(
    node: LibraryNode, path: str, uid: int, *, users: bool
) -> None:
    """200 MiB are gone at the next look; the library goes on with the limits and figures it had."""
    share = node.share(8192)
    with node.container(share, image=Image(user_namespace=users)) as container:
        program = container.program()
        program.tell("init")
        assert program.fits(0, 5 * GIB)
        node.enrol(program, share)

        fill = f"head -c 209715200 /dev/zero >>{path}"
        assert container.run("sh", "-c", fill, uid=uid).returncode == 0
        assert node.region(share).stat().st_size > 200_000_000
        found = node.inspect(share)

        assert node.region(share).stat().st_size == SEEDED.size
        assert [violation.kind for violation in found.violations] == [ViolationKind.DISK]
        assert node.inspect(share).violations == ()
        late = container.program(cleared=True)
        late.tell("init")
        assert not late.fits(0, 3 * GIB)
        assert late.fits(0, GIB)
        assert not program.fits(0, 2 * GIB)
