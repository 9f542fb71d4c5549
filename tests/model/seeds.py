"""Which schedules are run: as many as ``VGPU_SCHEDULES`` says, from ``VGPU_FIRST_SEED`` on.

Unless told how many, what must hold is tried under every third: all take ten minutes. What is
broken ends with the first schedule that shows it, so those tests have all of them.
"""

import os
from typing import Final

FIRST: Final = int(os.environ.get("VGPU_FIRST_SEED", "0"))
_ASKED: Final = os.environ.get("VGPU_SCHEDULES", "")
SCHEDULES: Final = int(_ASKED or "2500")
SEEDS: Final = range(FIRST, FIRST + SCHEDULES)
SOUND: Final = SEEDS if _ASKED else SEEDS[::3]  # nothing is broken
