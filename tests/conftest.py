"""What all tests share: plain logs, no deadline for examples, a flag that rewrites golden files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# A busy machine may take seconds for one example, which says nothing about it: what hangs is
# ended by the timeout of its test. Profiles are read as tests are imported, so this comes first.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Log tracebacks as programs do: what structlog shows of itself takes seconds to lay out."""
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, plain])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], str]:
    """Return a function from a file's name and what was rendered to what is expected."""

    def expected(name: str, rendered: str) -> str:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(rendered, encoding="utf-8")
        return path.read_text(encoding="utf-8")

    return expected
