"""Quantities; a bare ``int`` that means memory or compute never crosses a module border."""

from typing import Final, NewType

MiB = NewType("MiB", int)
CorePercent = NewType("CorePercent", int)  # 100 is one whole GPU's compute
WHOLE_GPU: Final = CorePercent(100)
NO_MEMORY: Final = MiB(0)
NO_CORES: Final = CorePercent(0)
