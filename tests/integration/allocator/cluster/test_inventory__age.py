"""How old the picture of a cluster is, of which every part has a watch of its own."""

import pytest

from allocator.cluster.inventory import GPU_NODES, NAMESPACES, NODES, Inventory
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.integration.allocator.cluster.test_inventory import GPU_NODE, T4, node, play, until


@pytest.mark.parametrize(
    ("silent", "complete"), [("gpunodes", False), ("nodes", False), ("namespaces", True)]
)
def test_a_picture_is_as_old_as_its_oldest_part(silent: str, *, complete: bool) -> None:
    """A watch that died is not made up for by those that live; what is not rested on may rest."""
    late = [0.0]
    objects = {
        "gpunodes": (GPU_NODES, GPU_NODE | {"metadata": {"name": "b"}}),
        "nodes": (NODES, node("b")),
        "namespaces": (NAMESPACES, {"metadata": {"name": "b"}}),
    }

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        server.objects.create(parsed(NODES), node("a", T4))
        await until(lambda: inventory.snapshot().nodes)
        late[0] += inventory.settings.stale_after_seconds + 10
        old = inventory.snapshot().complete
        for kind in objects.keys() - {silent}:
            path, found = objects[kind]
            server.objects.create(parsed(path), found)
        watches = [inventory.watches[kind] for kind in objects.keys() - {silent}]
        await until(lambda: all(pulse.last_message == late[0] for pulse in watches))

        assert not old
        assert inventory.snapshot().complete is complete
        assert (inventory.age() == 0) is complete

    play(scene, now=lambda: late[0])
