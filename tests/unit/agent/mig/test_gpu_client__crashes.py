"""Killed at any moment, an agent leaves nothing that the next one does not understand."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from agent.mig.journal import PlacementKey
from allocator.model.board import Placement
from tests.builders.model import A30, A100_40, PRO_6000, placed
from tests.fakes.driver import machine
from tests.harness.crashing_agent import Node
from tests.harness.simulated_boards import GPU, placements

LEAST_MOMENTS = 20
MOST_MOMENTS = 80


async def check(node: Node) -> None:
    """Assert what must be so whenever the agent has settled."""
    ready: list[str] = []
    for gpu, place in sorted(node.promised, key=lambda t: (t[0], t[1].start)):
        ready_instance = await node.instances.ensure(gpu, place)
        assert node.tenants.get((gpu, place), ready_instance.uuid) == ready_instance.uuid, (
            "a tenant was lost"
        )
        ready.append(ready_instance.uuid)
    assert len(set(ready)) == len(ready), "two promises share an instance"
    present = {
        (live.instance.gpu, live.instance.id): live for live in node.instances.live_instances()
    }
    for device in node.chips:
        for instance in node.driver.instances(device.uuid):
            strange = instance.id in node.strangers.get(device.uuid, set())
            assert present[device.uuid, instance.id].ours is not strange
            assert strange or instance.uuid is not None, "half an instance leaked"
    exist = {i.uuid for device in node.chips for i in node.driver.instances(device.uuid)}
    assert set(node.tenants.values()) <= exist


def overlapping(node: Node, gpu: str, place: Placement) -> bool:
    """Say whether the ledger would not promise *place*."""
    others = [p for g, p in node.promised if g == gpu]
    reserved = [
        live.placed
        for live in node.instances.live_instances()
        if live.instance.gpu == gpu and live.placed and live.is_reserved
    ]
    overlaps = any(p.mask & place.mask for p in (*others, *reserved))
    same_profile = [p for p in (*others, *reserved) if p.profile == place.profile]
    limit = place.profile.limit
    return overlaps or (limit is not None and len(same_profile) >= limit)


async def change_something(node: Node, data: st.DataObject) -> None:
    """Let something happen on the node."""
    gpu, places = _board(node, data)
    place = data.draw(st.sampled_from(places))
    waiting = sorted(node.promised - node.tenants.keys(), key=str)
    kinds = ["promise"] * 5 + ["intrude", "reboot"]
    kinds += ["admit", "withdraw"] * bool(waiting) + ["leave"] * 2 * bool(node.tenants)
    kind = data.draw(st.sampled_from(kinds))
    match kind:
        case "promise" if not overlapping(node, gpu, place):
            node.promised.add((gpu, place))
        case "intrude":
            node.intrude(gpu, place)
        case "reboot":
            node.reboot()
        case "admit":
            await node.admit(data.draw(st.sampled_from(waiting)))
        case "withdraw":
            node.promised.discard(data.draw(st.sampled_from(waiting)))
        case "leave":
            node.leave(data.draw(st.sampled_from(sorted(node.tenants, key=str))))
        case _:
            return


def interfere(node: Node, data: st.DataObject) -> None:
    """Let promises that nobody has used yet be withdrawn, and strangers come.

    Not to a very place that was announced: nothing would tell their instance from ours.
    """
    for gpu, place in sorted(node.promised - node.tenants.keys(), key=str):
        if data.draw(st.booleans()):
            node.promised.discard((gpu, place))
    gpu, places = _board(node, data)
    place = data.draw(st.sampled_from(places))
    if PlacementKey(gpu=gpu, profile=place.profile.id, start=place.start) not in node.announced():
        node.intrude(gpu, place)


def _board(node: Node, data: st.DataObject) -> tuple[str, list[Placement]]:
    """Draw a GPU; return its places too."""
    chip = data.draw(st.sampled_from(node.chips))
    assert chip.board is not None
    return chip.uuid, placements(chip.board)


@settings(max_examples=60)
@given(st.data())
def test_killed_at_random_moments_nothing_is_lost_leaked_or_used_twice(data: st.DataObject) -> None:
    """Whatever happens on a node while its agents are killed, the last one gets it all right."""
    products = data.draw(
        st.lists(st.sampled_from([A100_40, A30, PRO_6000]), min_size=1, max_size=2)
    )

    async def live() -> int:
        with tempfile.TemporaryDirectory() as folder:
            node = Node(Path(folder), machine(*products))
            for _ in range(data.draw(st.integers(1, 8))):
                await change_something(node, data)
                if data.draw(st.booleans()):
                    node.arm(data.draw(st.integers(0, 12)), data.draw(st.sampled_from([0, 1, 30])))
                await node.settle(meanwhile=lambda: interfere(node, data))
                await check(node)
            node.journal.close()
            return node.kills

    event(f"{asyncio.run(live())} kills")


Story = Callable[[Node], Awaitable[None]]

SMALL = [placed("1g.5gb", start) for start in range(3)]
LARGE = (GPU, placed("2g.10gb", 0))


async def reconfigure(node: Node) -> None:
    """Fill a board, leave it, and cut it otherwise."""
    node.promised |= {(GPU, place) for place in SMALL}
    await node.settle()
    await node.admit((GPU, SMALL[2]))
    node.promised -= {(GPU, place) for place in SMALL[:2]}
    node.promised.add(LARGE)
    node.fading.add(LARGE)
    await node.settle()


async def restart(node: Node) -> None:
    """Take an instance apart that cannot be removed, and be promised that very place again."""
    first = (GPU, SMALL[0])
    node.promised.add(first)
    await node.settle()
    (instance,) = node.driver.instances(GPU)
    node.befall(GPU, lambda gpu: replace(gpu, leaks=frozenset({instance.id})))
    node.promised.remove(first)
    node.promised.add(LARGE)
    await node.settle()
    node.promised.remove(LARGE)
    node.promised.add(first)
    node.fading.add(first)
    await node.settle()
    node.befall(GPU, lambda gpu: replace(gpu, leaks=frozenset()))
    await node.settle()


class CrashCase(NamedTuple):
    """How an agent dies: what is missing of its last line, and whether it was wanted still."""

    torn: int
    fickle: bool


@pytest.mark.parametrize(
    "death", [CrashCase(torn, fickle) for torn in (0, 7) for fickle in (False, True)]
)
@pytest.mark.parametrize("story", [reconfigure, restart])
def test_there_is_no_moment_at_which_being_killed_does_harm(
    tmp_path: Path, story: Story, death: CrashCase
) -> None:
    """At whichever moment of a story an agent is killed, the next one gets it all right."""

    async def live(moment: int) -> int:
        folder = tmp_path / str(moment)
        folder.mkdir()
        node = Node(folder, machine(A100_40), fickle=death.fickle)
        node.arm(moment, death.torn)
        await story(node)
        await check(node)
        node.intrude(*LARGE)  # what a killed agent had in mind is not ours
        await node.settle()
        await check(node)
        node.journal.close()
        return node.kills

    kills: list[int] = []
    while len(kills) < MOST_MOMENTS and (not kills or kills[-1]):
        kills.append(asyncio.run(live(len(kills))))
    assert len(kills) > LEAST_MOMENTS
    assert kills[-1] == 0, "the last moment is after all was done"
