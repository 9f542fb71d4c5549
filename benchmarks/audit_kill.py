"""A writer that is killed again and again; what it acknowledged must be there afterwards."""

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.audit_records import RecordMaker
from console.records.query import EVERYTHING, RecordFilter
from console.store.opening import open_store

KILLS: Final = 10
_BATCH: Final = 50  # decisions of one append
_LONGEST: Final = 60  # seconds


def lost_after_kills(file: Path) -> int:
    """Kill a writer ``KILLS`` times; return how many acknowledged records are lost."""
    draw, acknowledged = random.Random(3), set[str]()
    for number in range(KILLS):
        command = [sys.executable, "-m", "benchmarks.audit_kill", str(file), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None  # noqa: S101 -- it is a pipe
            lines = [writer.stdout.readline()]  # it is writing now
            time.sleep(draw.uniform(0.0, 0.5))
            writer.kill()
            lines += writer.stdout.readlines()
            writer.wait(timeout=_LONGEST)
        acknowledged.update(*(line.split() for line in lines if line.endswith("\n")))
    store = open_store(str(file))
    stored = {one.record.id for one in store.export(EVERYTHING, RecordFilter())}
    store.close()
    if not acknowledged:
        raise RuntimeError("the writer acknowledged nothing")
    return len(acknowledged - stored)


def write(file: str, number: int) -> None:
    """Append batch after batch, and print the ids of each that was acknowledged."""
    store = open_store(file)
    now = time.time_ns() // 1_000_000 - 3_600_000
    maker = RecordMaker(seed=number, start=now - 86_400_000, step=1)
    batch = []
    for count, records in enumerate(maker.decisions(1_000_000), 1):
        batch += [one for one in records if one.record.at]
        if count % _BATCH == 0:
            store.append(batch)
            print(*(one.record.id for one in batch), flush=True)
            batch = []


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]))
