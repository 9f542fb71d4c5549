"""The program of the folder that ``make gpu-bundle`` makes, where it is called ``__main__.py``."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 -- the Python of a stranger's machine
        sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    here = Path(__file__).resolve().parent
    sys.path.insert(1, str(here / "site"))
    os.environ.setdefault("VGPU_HAMI_CORE", str(here / "libvgpu"))
    from tests.gpu.__main__ import main

    sys.exit(main())
