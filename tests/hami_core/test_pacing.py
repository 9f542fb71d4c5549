"""The real library waits where the agent says that a container has computed beyond its promise."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from agent.monitor.monitor_controller import INTERVAL
from tests.harness.library_node import LibraryNode
from tests.integration.agent.shares import UID

pytestmark = pytest.mark.library
TICK = 0.3  # seconds: the library looks at its switch every 0.12
SOON = 2.0  # in which a launch that does not wait returns
LATER = 30.0
MOST_LOOKS = 20


def test_launches_of_a_greedy_container_wait_until_that_is_made_up_for(node: LibraryNode) -> None:
    """By what the driver is said to see; the library has no reason of its own to hold a block."""
    share = node.share(8192)

    def look(percent: int) -> bool:
        node.percent = percent
        node.ahead += INTERVAL
        threading.Event().wait(TICK)
        return (UID, "main") in node.inspect(share).held_back

    with node.container(share) as container, ThreadPoolExecutor() as pool:
        program = container.program()
        node.enrol(program, share)
        program.tell("init")
        assert program.tell("launch 0 1", within=LATER) == "ok"
        greedy = [look(100) for _ in range(5)]
        held = pool.submit(program.tell, "launch 0 1", within=LATER)
        waits = not wait([held], SOON).done
        modest = [look(0) for _ in range(MOST_LOOKS)]
        answer = held.result()

    assert (greedy[0], greedy[-1], waits) == (False, True, True)
    assert (modest[-1], answer) == (False, "ok")
