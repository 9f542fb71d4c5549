"""The limits of a region that the agent seeded hold under the real library."""

import pytest

from tests.hami_core.conftest import NodeMaker
from tests.harness.cuda_program import OUT_OF_MEMORY
from tests.harness.library_node import GIB, MIB, LibraryNode

pytestmark = pytest.mark.library
LIES = {
    "CUDA_DEVICE_MEMORY_LIMIT": "39g",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "39g",
    "CUDA_DEVICE_SM_LIMIT": "100",
}


@pytest.mark.parametrize("uid", [0, 1000])
def test_what_was_promised_can_be_had_and_no_more(node: LibraryNode, uid: int) -> None:
    """8 GiB of a GPU of 40, as CUDA and NVML tell it and as they give it."""
    share = node.share(8192)
    with node.container(share) as container:
        program = container.program(uid=uid)

        assert program.tell("init") == "1"
        assert program.tell("total 0") == str(8 * GIB)
        assert program.tell("nvml 0").split()[1] == str(8 * GIB)
        assert program.fits(0, 7 * GIB)
        assert not program.fits(0, GIB)
        assert program.fits(0, 512 * MIB)


@pytest.mark.parametrize("env", [LIES, dict.fromkeys(LIES, "")], ids=["lies", "empty"])
def test_variables_change_nothing(node: LibraryNode, env: dict[str, str]) -> None:
    """The region was there first, and the library believes it."""
    with node.container(node.share(8192), env=env) as container:
        program = container.program()
        program.tell("init")

        assert program.fits(0, 7 * GIB)
        assert program.tell(f"alloc 0 {GIB}") == OUT_OF_MEMORY


def test_processes_share_one_limit(node: LibraryNode) -> None:
    """And what a killed one held can be had again."""
    with node.container(node.share(8192)) as container:
        first, second = container.program(), container.program()
        first.tell("init")
        second.tell("init")

        assert first.fits(0, 5 * GIB)
        assert not second.fits(0, 3 * GIB)
        assert second.fits(0, 2 * GIB)
        first.kill()
        assert second.fits(0, 5 * GIB)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_each_device_has_its_own_limit(node_of: NodeMaker, count: int) -> None:
    """In the order in which NVML lists them."""
    node = node_of(count)
    limits = [(k + 1) * 1024 for k in range(count)]
    with node.container(node.share(*limits)) as container:
        program = container.program()

        assert program.tell("init") == str(count)
        for k, limit in enumerate(limits):
            assert program.tell(f"total {k}") == str(limit * MIB)
            assert not program.fits(k, (limit + 1) * MIB)
            assert program.fits(k, (limit - 512) * MIB)
            held = node.driver.held(node.uuids[k])
            assert held == {program.pid: (limit - 512 + 256) * MIB}
