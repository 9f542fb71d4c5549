"""GPUs in mode mps with static partitioning: a partition for each container that starts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.mps.mps_controller import Partitioning, grants_by_gpu
from agent.mps.simulated import simulated_daemon
from agent.mps.simulated.simulated_daemon import WRONG_PARTITION
from agent.mps.trouble import MpsTroubleKind
from agent.share import NotYetError, Owner, Share
from allocator.model.allocation import Grant
from allocator.model.request import Stage
from tests.harness.mps_desk import GPU, MpsDesk, grant


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[MpsDesk]:
    desk = MpsDesk(tmp_path, patience=1)  # partitions are written to a real disk
    yield desk
    asyncio.run(desk.worker.close())


def share(
    promised: Grant, name: str = "main", *, uid: str = "u1", stage: Stage = Stage.APP
) -> Share:
    """Return the share of one container."""
    owner = Owner(uid=uid, namespace="team", pod=uid, containers=(name,))
    return Share(owner=owner, grants=(promised,), key="c0", stage=stage)


async def settle(
    desk: MpsDesk,
    *shares: Share,
    unable: str = "",
    static: bool = True,
    ended: tuple[str, ...] = (),
) -> None:
    """Settle the GPU where these containers have entries, but for pods that have *ended*."""
    present = [each for each in shares if each.owner.uid not in ended]
    holders = frozenset(f"{each.owner.uid}/{each.owner.container}" for each in present)
    partitioning = Partitioning(static={GPU: unable} if static else {}, holders={GPU: holders})
    grants = grants_by_gpu(each.grants[0] for each in present)
    desk.mps.set_desired((GPU,), grants, partitioning)
    await desk.mps.settle()


async def start(desk: MpsDesk, one: Share) -> str:
    """Return the partition that a container gets when it starts."""
    await desk.mps.ready_daemon(one.grants[0])
    task = asyncio.create_task(desk.mps.ready_partition(one))
    await asyncio.sleep(0)
    await desk.mps.settle()
    return await task


A, B = share(grant(1000, 10)), share(grant(1000, 50), uid="u2")


def test_each_container_gets_a_partition_of_whole_chunks(desk: MpsDesk) -> None:
    """Its client runs in it; a client without one does not run at all."""

    async def story() -> None:
        await settle(desk, A, B)
        names = [await start(desk, A), await start(desk, B)]
        assert [name.partition("/")[0] for name in names] == [GPU, GPU]
        assert sorted(desk.daemon().partitions.values()) == [2, 8]
        connect = simulated_daemon.connect
        assert desk.daemons.change(GPU, lambda d: connect(d, 18)) == WRONG_PARTITION
        assert desk.daemons.change(GPU, lambda d: connect(d, 18, partition=names[0])) == ""
        assert desk.mps.chunks() == {GPU: 16}
        assert not desk.mps.unready()

    asyncio.run(story())


def test_without_static_partitioning_nobody_gets_one(desk: MpsDesk) -> None:
    """The daemon would not know the command."""

    async def story() -> None:
        await settle(desk, A, static=False)
        assert await desk.mps.ready_partition(A) == ""
        assert not desk.daemon().static
        assert desk.mps.chunks() == {}
        assert not [one for one in desk.daemons.commands if "part" in one]

    asyncio.run(story())


def test_a_container_that_starts_again_keeps_its_partition(desk: MpsDesk) -> None:
    """Also under another agent: the book outlives it."""

    async def story() -> None:
        await settle(desk, A)
        name = await start(desk, A)
        assert await start(desk, A) == name
        desk.restart()
        await settle(desk, A)
        assert list(desk.daemon().partitions) == [name.rpartition("/")[2]]
        assert await start(desk, A) == name

    asyncio.run(story())


def test_a_partition_ends_with_the_entry(desk: MpsDesk) -> None:
    """Then its chunks are there for the next pod."""

    async def story() -> None:
        await settle(desk, A, B)
        await start(desk, A)
        kept = await start(desk, B)
        await settle(desk, A, B, ended=("u1",))
        assert list(desk.daemon().partitions) == [kept.rpartition("/")[2]]
        assert list(desk.book.book[GPU]) == ["u2/main"]

    asyncio.run(story())


class Killed(BaseException):
    """The agent was killed."""


@pytest.mark.parametrize("write", [1, 2])
def test_an_agent_that_is_killed_between_two_steps_leaks_nothing(desk: MpsDesk, write: int) -> None:
    """Before the partition is made, and after it was made but not yet written."""
    written = 0

    def kill(_: int) -> object:
        nonlocal written
        written += 1
        if written > 2 * (write - 1):  # a file and its folder are forced to disk for each write
            raise Killed
        return None

    async def story() -> None:
        await settle(desk, A)
        desk.restart(kill)
        await settle(desk, A)
        with pytest.raises(BaseExceptionGroup):
            await start(desk, A)
        assert len(desk.daemon().partitions) == write - 1
        desk.restart()
        await settle(desk, A)
        assert desk.daemon().partitions == {}
        name = await start(desk, A)
        assert list(desk.daemon().partitions) == [name.rpartition("/")[2]]

    asyncio.run(story())


def test_an_unknown_partition_with_clients_is_left_until_they_end(desk: MpsDesk) -> None:
    """It cannot be removed, and those who need its chunks hear what is missing."""

    async def story() -> None:
        await settle(desk, A)
        desk.daemons.change(
            GPU, lambda daemon: simulated_daemon.answer(daemon, f"sm_partition add {GPU} 15")[0]
        )
        (name,) = desk.daemon().partitions
        connect = simulated_daemon.connect
        desk.daemons.change(GPU, lambda d: connect(d, 18, partition=f"{GPU}/{name}"))
        with pytest.raises(NotYetError, match="takes 2 of the GPU's 16 chunks, and 1 are free"):
            await start(desk, A)
        assert not desk.told
        desk.daemons.change(GPU, lambda daemon: simulated_daemon.disconnect(daemon, 18))
        await start(desk, A)
        assert list(desk.daemon().partitions.values()) == [2]

    asyncio.run(story())


def test_partitions_end_with_their_daemon(desk: MpsDesk) -> None:
    """Whoever starts again gets another, and is told that the container must."""

    async def story() -> None:
        await settle(desk, A)
        before = await start(desk, A)
        await desk.daemons.kill(GPU)
        await settle(desk, A)
        desk.clock.now += 120
        await settle(desk, A)
        assert "their container has started anew" in desk.told[0].note
        assert await start(desk, A)
        assert len(desk.daemon().partitions) == 1
        assert before

    asyncio.run(story())


def test_containers_of_a_pod_use_their_chunks_in_turn(desk: MpsDesk) -> None:
    """An init container of 60 % and an app container of 60 % are promised 60 % together."""
    init = share(grant(1000, 60), "prepare", stage=Stage.INIT)
    main = share(grant(1000, 60), "main")

    async def story() -> None:
        await settle(desk, init, main)
        await start(desk, init)
        await start(desk, main)
        assert list(desk.book.book[GPU]) == ["u1/main"]
        await start(desk, init)  # the pod's sandbox was made anew
        assert list(desk.book.book[GPU]) == ["u1/prepare"]
        assert list(desk.daemon().partitions.values()) == [10]

    asyncio.run(story())


def test_a_gpu_that_cannot_be_partitioned_is_not_served_otherwise(desk: MpsDesk) -> None:
    """What was asked for is not given in another way; the reason is told once."""

    async def story() -> None:
        for _ in range(3):
            await settle(desk, unable="mpsstatic asks for the moon")
        assert desk.mps.unready() == {GPU: "mode mps: mpsstatic asks for the moon"}
        assert desk.daemons.starts == 0
        assert [(one.kind, one.note) for one in desk.told] == [
            (MpsTroubleKind.NO_START, "mpsstatic asks for the moon")
        ]

    asyncio.run(story())


@pytest.mark.parametrize("static", [True, False])
def test_a_change_of_the_configuration_starts_another_daemon(
    desk: MpsDesk, *, static: bool
) -> None:
    """No daemon can be changed while it runs, and one with clients is left alone."""

    async def story() -> None:
        await settle(desk, static=not static)
        assert desk.daemon().static is not static
        await settle(desk, static=static)
        assert desk.daemon().static is static
        assert not desk.told
        assert not desk.mps.unready()

    asyncio.run(story())


def test_clients_of_an_unpartitioned_daemon_are_left_alone(desk: MpsDesk) -> None:
    """Their GPU takes nobody new meanwhile."""

    async def story() -> None:
        await settle(desk, static=False)
        assert desk.connect(18) == ""
        await settle(desk, static=True)
        assert not desk.daemon().static
        assert "another partitioning" in desk.mps.unready()[GPU]

    asyncio.run(story())
