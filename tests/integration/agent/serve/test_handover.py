"""While neither of two agents serves kubelet, no bind passes: kubelet would fail its pod."""

import asyncio
from datetime import UTC, datetime

import pytest

from agent.serve.handover import HANDOVER_SECONDS, close_left_open, hand_over
from allocator.ledger.ledger import parse_ledger
from kube.errors import ConflictError
from tests.builders.gpunodes import entry
from tests.builders.model import soft_grant
from tests.integration.agent.clusterside import STATUS, Scene, play

SOON = 2.0  # seconds
CLOSED = "its agent is starting, stopping or being replaced"


async def left(scene: Scene) -> None:
    await hand_over(scene.status_controller, scene.informer)


def test_a_stopping_agent_closes_its_node() -> None:
    """Nothing it writes later opens the node again, and its successor opens it."""

    async def act(scene: Scene) -> None:
        await scene.told()
        assert parse_ledger(scene.stored).closed == ""

        async with asyncio.timeout(SOON):
            await left(scene)

        assert parse_ledger(scene.stored).closed == CLOSED
        assert {gpu["healthy"] for gpu in scene.status["gpus"]} == {True}
        await scene.held("p")
        assert parse_ledger(scene.stored).closed.startswith("its agent is stopping")
        scene.status_controller = scene.new_status_controller()
        await scene.told()
        assert parse_ledger(scene.stored).closed == ""

    play(act)


def test_a_write_under_way_does_not_open_the_node() -> None:
    """It was decided before the agent was told to stop."""

    async def act(scene: Scene) -> None:
        await scene.told()
        stored, open_status = scene.informer.gpu_node, scene.status
        assert stored is not None
        await left(scene)

        with pytest.raises(ConflictError):
            await scene.status_controller._write(stored, open_status, ())  # noqa: SLF001

        assert "inventory" not in scene.status

    play(act)


def test_a_stopping_agent_waits_for_pods_on_their_way() -> None:
    """It goes on once the pod is held, or in time to be gone before it is killed."""

    async def act(scene: Scene) -> None:
        uid = scene.bind("p")
        scene.promise(entry(uid, soft_grant(1000, gpu="GPU-0"), since=datetime.now(UTC)))
        await scene.told()

        leaving = asyncio.create_task(left(scene))
        await asyncio.sleep(0.5)
        assert not leaving.done()
        await scene.status_controller.flush({uid})
        async with asyncio.timeout(SOON):
            await leaving

        assert uid in scene.status["held"]

    play(act)


def test_a_clock_that_is_ahead_holds_nobody_up() -> None:
    """The entry looks as if it were made tomorrow."""

    async def act(scene: Scene) -> None:
        uid = scene.bind("p")
        tomorrow = datetime.now(UTC).replace(year=datetime.now(UTC).year + 1, day=1)
        scene.promise(entry(uid, soft_grant(1000, gpu="GPU-0"), since=tomorrow))
        await scene.told()

        async with asyncio.timeout(HANDOVER_SECONDS + SOON):
            await left(scene)

        assert parse_ledger(scene.stored).closed == CLOSED

    play(act)


def test_a_node_stays_closed_until_kubelet_knows_its_slots() -> None:
    """A killed agent leaves it open; kubelet would fail whom it admits now."""

    async def act(scene: Scene) -> None:
        await scene.told()
        scene.serving = False
        scene.status_controller = scene.new_status_controller()

        await close_left_open(scene.status_controller, scene.informer)
        assert parse_ledger(scene.stored).closed == CLOSED
        await scene.told()
        assert parse_ledger(scene.stored).closed == "its agent has not registered with kubelet yet"

        scene.serving = True
        await scene.told()
        assert parse_ledger(scene.stored).closed == ""

    play(act)


def test_a_closed_node_is_not_closed_again() -> None:
    """There is nothing to remove, and nothing is written."""

    async def act(scene: Scene) -> None:
        await scene.told()
        await left(scene)
        before = len(scene.writes(STATUS))
        await left(scene)

        assert len(scene.writes(STATUS)) == before

    play(act)
