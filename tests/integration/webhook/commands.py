"""Commands: the program as a user starts it, in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
FLEET: Final = ROOT / "webhook" / "samples" / "fleet.yaml"
PODS: Final = ROOT / "webhook" / "samples" / "pods"
PROGRAM: Final = (sys.executable, "-m", "vgpu")


def vgpu(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
