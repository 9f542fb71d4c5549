"""Log lines: JSON of values that people and programs can read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("datetime(2026, 11, 21, 12, 34, 56, tzinfo=UTC)", "2026-11-21T12:34:56+00:00"),
        ("datetime(2026, 11, 21, 12).date()", "2026-11-21"),
        ("Path('/a/b')", "/a/b"),
        ("{'a'}", "{'a'}"),
        ("ValueError('x')", "x"),
        ("[datetime(2026, 11, 21, tzinfo=UTC)]", ["2026-11-21T00:00:00+00:00"]),
        ("7", 7),
        ("None", None),
    ],
)
def test_a_value_is_written_as_it_reads(value: str, expected: object) -> None:
    """A time is RFC 3339, never a call of Python's."""
    program = (
        "import structlog; from datetime import UTC, datetime; from pathlib import Path;"
        "from allocator.cli.options import log_lines; log_lines();"
        f"structlog.get_logger().info('serving', value={value})"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT, text=True
    )

    line = json.loads(done.stderr)
    assert (line["event"], line["value"]) == ("serving", expected)
