"""Which schedules are run: as many as ``VGPU_SCHEDULES`` says, from ``VGPU_FIRST_SEED`` on."""

import os
from typing import Final

FIRST: Final = int(os.environ.get("VGPU_FIRST_SEED", "0"))
SCHEDULES: Final = int(os.environ.get("VGPU_SCHEDULES", "2500"))
SEEDS: Final = range(FIRST, FIRST + SCHEDULES)
