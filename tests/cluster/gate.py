"""What happens where a component of the cluster tests cannot be had on this machine."""

import os
from typing import Never

import pytest


def missing(reason: str) -> Never:
    """Skip on a developer's machine; where the suite is the gate it must not pass unseen."""
    if is_gate():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason.splitlines()[0])


def unable(reason: str) -> Never:
    """Skip where this machine cannot run it, whatever is installed; the reason is in the report."""
    pytest.skip(reason)


def is_gate() -> bool:
    """Say whether the suite decides what may land."""
    return bool(os.environ.get("CI")) or os.environ.get("VGPU_REQUIRE_CLUSTER") == "1"
