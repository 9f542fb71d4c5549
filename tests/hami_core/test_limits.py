"""The limits of a region that the agent seeded hold under the real library."""

import pytest

from agent.region.layout import SEEDED
from tests.hami_core.conftest import NodeMaker
from tests.harness.container import Image
from tests.harness.cuda_program import OUT_OF_MEMORY
from tests.harness.library_node import GIB, MIB, LibraryNode

pytestmark = pytest.mark.library
LIES = {
    "CUDA_DEVICE_MEMORY_LIMIT": "39g",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "39g",
    "CUDA_DEVICE_SM_LIMIT": "100",
}


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("users", [False, True], ids=["host-users", "own-users"])
def test_what_was_promised_can_be_had_and_no_more(
    node: LibraryNode, uid: int, *, users: bool
) -> None:
    """8 GiB of a GPU of 40, as CUDA and NVML tell it and as they give it."""
    with node.container(node.share(8192), image=Image(user_namespace=users)) as container:
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


def test_limits_hold_without_the_variables_that_tell_them(node: LibraryNode) -> None:
    """As in a program that starts another with what it thinks that one needs."""
    with node.container(node.share(8192)) as container:
        env = {name: value for name, value in container.env.items() if "LIMIT" not in name}
        program = container.program(env=env)
        program.tell("init")

        assert set(env) < set(container.env)
        assert program.fits(0, 7 * GIB)
        assert not program.fits(0, GIB)


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


@pytest.mark.parametrize("count", [1, 2, 8])
def test_programs_find_nothing_to_complain_of(node_of: NodeMaker, count: int) -> None:
    """The region says of each of 16 devices what the fallback in the environment says."""
    node = node_of(count)
    with node.container(node.share(*[(k + 1) * 1024 for k in range(count)])) as container:
        program = container.program()
        program.tell("init")
        program.tell("nvml 0")

        assert program.errors() == ""


def test_a_device_that_was_not_promised_is_limited(node_of: NodeMaker) -> None:
    """A privileged container sees all; the driver's view reports it, and meanwhile it is held."""
    node = node_of(2)
    with node.container(node.share(8192)) as container:
        program = container.program()

        assert program.tell("init") == "2"
        assert program.tell("total 1") == str(8 * GIB)
        assert program.fits(1, 7 * GIB)
        assert not program.fits(1, GIB)


def test_what_an_older_agent_seeded_is_filled_up(node_of: NodeMaker) -> None:
    """At one look, under a running program, and without a word against its pod."""
    node = node_of(2)
    share = node.share(8192)
    with node.container(share) as container:
        region = node.region(share)
        with region.open("r+b") as file:
            file.seek(SEEDED.memory_limits + 8)
            file.write(bytes(8 * 15))
        program = container.program()
        program.tell("init")
        node.enrol(program, share)
        assert program.fits(1, 9 * GIB)

        assert node.inspect(share).violations == ()

        assert not program.fits(1, 100 * MIB)
        assert program.tell("total 1") == str(8 * GIB)
