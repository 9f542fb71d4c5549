"""What all tests share: plain logs, and one flag that rewrites golden files, to be reviewed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

GOLDEN = Path(__file__).parent / "golden"


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
