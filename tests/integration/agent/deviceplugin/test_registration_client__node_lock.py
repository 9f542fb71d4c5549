"""Alone: one holder at a time, whichever way the last one ended."""

import asyncio
import subprocess
import sys
from pathlib import Path

from agent.deviceplugin.registration_client import node_lock

HOLDING = """
import fcntl, sys, time
file = open(sys.argv[1], "ab")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_killed_holder_is_followed(tmp_path: Path) -> None:
    """Nobody is let in beside a living holder, and nothing has to be tidied after a dead one."""
    lock = tmp_path / "state" / "lock"
    lock.parent.mkdir()

    async def main(holder: subprocess.Popen[bytes]) -> bool:
        entered = asyncio.Event()

        async def enter() -> None:
            async with node_lock(lock):
                entered.set()

        entering = asyncio.create_task(enter())
        await asyncio.sleep(0.1)
        early = entered.is_set()
        holder.kill()
        await entering
        return early

    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(lock)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        early = asyncio.run(main(holder))

    assert not early
