"""Says at the end of a test run which schedules it was, and what they came to see."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tests.model.seeds import SOUND

REACHED: pytest.StashKey[Counter[str]] = pytest.StashKey()


@pytest.fixture
def reaching(request: pytest.FixtureRequest) -> Callable[[Mapping[str, int]], None]:
    """Return what takes how often schedules came to see something."""
    reached = request.config.stash.setdefault(REACHED, Counter())
    return reached.update


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    reached = config.stash.get(REACHED, None)
    if reached is not None:
        terminalreporter.section(f"model: {len(SOUND)} of the seeds {SOUND[0]} to {SOUND[-1]}")
        for what, count in sorted(reached.items()):
            terminalreporter.line(f"{count:>9,} {what}")
