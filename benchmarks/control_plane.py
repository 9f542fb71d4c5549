"""The programs of a real control plane, which some benchmarks measure in."""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.controlplane import build
from tests.cluster.controlplane.binaries import DEFAULT
from tests.cluster.controlplane.toolchain import BuildError


def control_plane() -> Mapping[str, Path] | None:
    """Return the executables by name; ``None``, with a line on standard error, without them."""
    try:
        return build.build(DEFAULT, build.to_stderr)
    except BuildError as error:
        print(f"no control plane: {error}", file=sys.stderr)
        return None
