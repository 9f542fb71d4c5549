"""Settling GPUs that do nothing but count, in real time."""

import asyncio
from dataclasses import dataclass, field

from agent.settling_controller import SettlingController


@dataclass
class Counted:
    """A GPU that counts its looks, and hangs where it is told to."""

    pause: float = 60.0
    looks: int = 0
    hangs: bool = False
    looked: asyncio.Event = field(default_factory=asyncio.Event)

    async def settle(self) -> None:
        self.looks += 1
        self.looked.set()
        if self.hangs:
            await asyncio.Event().wait()


async def look(gpu: Counted) -> None:
    await asyncio.wait_for(gpu.looked.wait(), 10)
    gpu.looked.clear()


def test_each_gpu_is_followed_whatever_another_does() -> None:
    """One that hangs delays neither those that were there nor those that come later."""

    async def story() -> None:
        settling = SettlingController[Counted](patience=1)
        stuck, quick = Counted(hangs=True), Counted(pause=0.001)
        settling.watch("a", lambda: stuck)
        settling.watch("b", lambda: quick)
        task = asyncio.create_task(settling.run())
        await look(stuck)
        await look(quick)
        await look(quick)  # by itself, after its pause
        late = Counted()
        assert settling.watch("c", lambda: late) is late
        assert settling.watch("c", Counted) is late
        await look(late)
        settling.wake("c")
        await look(late)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert stuck.looks == 1
        assert settling.gpus == {"a": stuck, "b": quick, "c": late}

    asyncio.run(story())


def test_whoever_waits_hears_of_progress_and_of_the_end_of_patience() -> None:
    """Progress wakes all at once; a deadline that is past is not waited for."""

    async def story() -> None:
        settling = SettlingController[Counted](patience=10)
        waits = [
            asyncio.create_task(settling.await_progress(settling.deadline())) for _ in range(3)
        ]
        await asyncio.sleep(0)
        settling.tell_progress()
        assert await asyncio.wait_for(asyncio.gather(*waits), 5) == [True] * 3
        now = asyncio.get_running_loop().time()
        assert await asyncio.wait_for(settling.await_progress(now + 0.01), 5)
        assert not await asyncio.wait_for(settling.await_progress(now), 5)

    asyncio.run(story())
