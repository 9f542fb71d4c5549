"""Runs ``-I -c TEXT`` or ``-I FILE`` as Python does, with this folder among its packages."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _, _isolated, *words = sys.argv
    if words[0] == "-c":
        exec(words[1])  # noqa: S102 -- the text is that of the checks
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
