"""What all tests share: one flag that rewrites golden files, to be reviewed as a diff."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


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
