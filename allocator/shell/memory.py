"""Memory: when Python looks for garbage, so that no review waits for it.

The whole picture of a cluster of 1,000 nodes is 100,000 objects. Looking through all of them takes
some 70 ms, in which nothing else runs, and by its own rule Python does it whenever a quarter as
many are new. Counting references frees what we replace; only cycles are left to this.
"""

import gc
from collections.abc import Callable
from typing import Final, Never

from kube.clock import SYSTEM, Clock

# New objects until the young ones are looked through, which takes a millisecond; the last number
# keeps Python from looking through all of them by itself.
THRESHOLDS: Final = (10_000, 20, 1_000_000)
EVERY: Final = 3600.0  # seconds between two looks at everything
PATIENCE: Final = 1.0  # seconds between two questions whether the picture is whole


async def freeze_when_settled(whole: Callable[[], bool], clock: Clock = SYSTEM) -> Never:
    """Leave alone what is there once *whole* says that it is; look through it once an hour."""
    gc.set_threshold(*THRESHOLDS)
    while not whole():
        await clock.sleep(PATIENCE)
    while True:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        await clock.sleep(EVERY)
