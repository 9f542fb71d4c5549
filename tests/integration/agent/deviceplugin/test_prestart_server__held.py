"""A promise is held before its container starts, until the last of its processes is gone."""

import asyncio

import pytest

from agent.node.status import Hardware
from agent.node.status_controller import START_GRACE
from agent.share import NotYetError
from kube.errors import KubeError
from tests.integration.agent.clusterside import (
    GPU_NODES,
    STATUS,
    Scene,
    gpu,
    play,
    promised,
    writing,
)

STARTED = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}


def test_a_hold_is_stored_before_it_returns() -> None:
    """On the version that contains the entry, though no watch has told of it."""

    async def act(scene: Scene) -> None:
        async with writing(scene):
            scene.promise(promised("u"))
            await scene.status_controller.hold("u")

            assert scene.status["held"] == ["u"]
            assert scene.status["observedGeneration"] == scene.stored["metadata"]["generation"]

    play(act)


def test_holds_that_come_together_are_one_write() -> None:
    """Twenty pods that start at once cost as much as one."""

    async def act(scene: Scene) -> None:
        uids = [f"u{i:02}" for i in range(20)]
        scene.promise(*(promised(uid) for uid in uids))
        await scene.caught_up()
        async with writing(scene):
            await asyncio.gather(*map(scene.status_controller.hold, uids))

        assert scene.status["held"] == uids
        assert len(scene.writes(STATUS)) <= 2

    play(act)


def test_a_second_start_costs_nothing() -> None:
    """A crash loop writes no status."""

    async def act(scene: Scene) -> None:
        scene.promise(promised("u"))
        async with writing(scene):
            await scene.status_controller.hold("u")
            before = len(scene.writes(STATUS))
            await scene.caught_up()
            await scene.status_controller.hold("u")

            assert len(scene.writes(STATUS)) == before

    play(act)


def test_what_is_held_starts_again_while_no_server_answers() -> None:
    """Whatever else there is to write, which cannot be written."""

    async def act(scene: Scene) -> None:
        scene.promise(promised("u"))
        async with writing(scene):
            await scene.status_controller.hold("u")
            scene.server.answer_next(403, times=1000)
            scene.hardware = Hardware(devices=(gpu(0),))

            await scene.status_controller.hold("u")

            with pytest.raises(NotYetError):
                await scene.status_controller.hold("v")

    play(act)


def test_no_container_starts_without_an_entry() -> None:
    """The refusal says so; others that start at the same time are not held up."""

    async def act(scene: Scene) -> None:
        scene.promise(promised("u"))
        async with writing(scene):
            none, fine = await asyncio.gather(
                scene.status_controller.hold("stranger"),
                scene.status_controller.hold("u"),
                return_exceptions=True,
            )

            assert isinstance(none, NotYetError)
            assert "no longer has an entry" in str(none)
            assert fine is None

    play(act)


def test_a_commit_in_between_is_taken_into_account() -> None:
    """The write names the version it was made on, so it is made again on the newer one."""

    async def act(scene: Scene) -> None:
        scene.promise(promised("u"))
        await scene.caught_up()
        scene.promise(promised("u"), promised("v"))  # no watch has told of it
        await scene.status_controller.flush({"u"})

        assert scene.status["observedGeneration"] == scene.stored["metadata"]["generation"]
        assert scene.status["held"] == ["u"]

    play(act)


def test_an_entry_that_goes_in_between_is_not_held() -> None:
    """Its pod was over; the container must not start on what others may have now."""

    async def act(scene: Scene) -> None:
        scene.promise(promised("u"))
        await scene.caught_up()
        scene.promise()

        refused = await scene.status_controller.flush({"u"})

        assert "u" in refused
        assert scene.status["held"] == []

    play(act)


@pytest.mark.parametrize("status", [500, 403, 409])
def test_what_cannot_be_written_starts_nothing(status: int) -> None:
    """Kubelet asks again; the next try finds the server well."""

    async def act(scene: Scene) -> None:
        scene.promise(promised("u"))
        await scene.caught_up()
        scene.server.answer_next(status, times=20)
        with pytest.raises(KubeError):
            await scene.status_controller.flush({"u"})
        scene.server.canned.clear()

        assert await scene.status_controller.flush({"u"}) == {}

    play(act)


def test_a_hold_tells_why_it_could_not_be_written() -> None:
    """In words that kubelet shows."""

    async def act(scene: Scene) -> None:
        scene.promise(promised("u"))
        await scene.caught_up()
        scene.server.answer_next(403, times=20)
        async with writing(scene):
            with pytest.raises(NotYetError, match=r"cannot start yet.*403"):
                await scene.status_controller.hold("u")

    play(act)


def test_an_entry_is_held_until_nothing_of_the_pod_runs() -> None:
    """A pod that is over is not yet gone: its last process ends later."""

    async def act(scene: Scene) -> None:
        uid = await scene.held("u")
        scene.alive = {uid}
        scene.bind("u", phase="Failed")
        await scene.told()
        assert scene.status["held"] == [uid]

        scene.alive = set()
        await scene.status_controller.flush()
        assert scene.status["held"] == []

    play(act)


def test_a_pod_deleted_by_force_is_waited_for_a_while() -> None:
    """Its container may be on its way to its first process, which nobody sees yet."""

    async def act(scene: Scene) -> None:
        uid = await scene.held("u")
        scene.remove("u")
        await scene.told()
        assert scene.status["held"] == [uid]

        scene.time.now += START_GRACE
        await scene.status_controller.flush()
        assert scene.status["held"] == []

    play(act)


def test_a_deleted_pod_that_was_seen_is_let_go_with_its_last_process() -> None:
    """A freed GPU is to be had within two seconds."""

    async def act(scene: Scene) -> None:
        uid = await scene.held("u")
        scene.alive = {uid}
        await scene.status_controller.flush()
        scene.remove("u")
        await scene.told()
        assert scene.status["held"] == [uid]

        scene.alive = set()
        await scene.status_controller.flush()
        assert scene.status["held"] == []

    play(act)


def test_the_next_agent_goes_on_holding() -> None:
    """An upgrade frees nothing under running containers."""

    async def act(scene: Scene) -> None:
        uid = await scene.held("u")
        scene.status_controller = scene.new_status_controller()
        await scene.told()

        assert scene.status["held"] == [uid]

    play(act)


@pytest.mark.parametrize(("alive", "held"), [(set(), []), ({"u"}, ["u"])])
def test_after_a_crash_what_is_gone_meanwhile_is_let_go(alive: set[str], held: list[str]) -> None:
    """The pod was deleted while nobody looked; a process that is left still holds."""

    async def act(scene: Scene) -> None:
        scene.promise(promised("u"))
        await scene.caught_up()
        await scene.status_controller.flush({"u"})
        scene.status_controller = scene.new_status_controller()
        scene.alive = alive
        await scene.told()
        assert scene.status["held"] == ["u"]  # a moment ago it may have been let start

        scene.time.now += START_GRACE
        await scene.status_controller.flush()
        assert scene.status["held"] == held

    play(act)


def test_another_boot_holds_nothing_that_did_not_start_in_it() -> None:
    """What ran before the node went down does not run any more."""

    async def act(scene: Scene) -> None:
        old, new = scene.bind("old"), scene.bind("new", **STARTED)
        scene.promise(promised(old), promised(new))
        before = {"bootID": "boot-0", "held": [old, new]}
        scene.change(f"{GPU_NODES}/n", status=before)
        await scene.told()

        assert scene.status["held"] == [new]
        assert scene.status["bootID"] == "boot-1"

    play(act)
