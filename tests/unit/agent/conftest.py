"""What several tests of MIG instances begin with."""

from pathlib import Path

import pytest

from tests.harness.mig_agent import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return an agent over one GPU that can be cut."""
    return Desk(tmp_path)
