"""Packages of Debian's that tests need: installed in the gate, asked for elsewhere."""

import time
from collections.abc import Callable
from typing import Final

from tests.cluster.controlplane.build import to_stderr
from tests.cluster.controlplane.toolchain import BuildError
from tests.cluster.gate import is_gate, missing
from tests.install.image import install

ATTEMPTS: Final = 20  # other tests of the same run install packages too, and apt has one lock
_PAUSE: Final = 15.0  # seconds


def require_package(package: str, is_there: Callable[[], bool]) -> None:
    """Install *package* in the gate unless it *is_there*; skip elsewhere, and say how to get it."""
    if is_there():
        return
    if not is_gate():
        missing(f"no {package}; on Debian: apt-get update && apt-get install -y {package}")
    for attempt in range(ATTEMPTS):
        try:
            install([package], to_stderr)
        except BuildError as error:
            if "lock" not in str(error) or attempt == ATTEMPTS - 1:
                missing(f"no {package}: {error}")
            time.sleep(_PAUSE)
        else:
            return
