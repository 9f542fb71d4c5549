"""The journal of compute modes to put back, as hostile bytes too."""

import pytest

from agent.driver.driver import ComputeMode
from agent.mps.journal_files import MOST_BYTES, document_of, parse_before


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 5000,
        b'{"boot":"boot-1"}',
        b'{"boot":"boot-1","before":{"../x":"default"}}',
        b'{"boot":"boot-1","before":{"":"default"}}',
        b'{"boot":"boot-1","before":{"GPU-1\\n":"default"}}',
        b'{"boot":"boot-1","before":{"GPU-1":"all"}}',
        b'{"boot":"boot-1","before":{"GPU-1":0}}',
        b'{"boot":"boot-1","before":{},"more":1}',
        b'{"boot":"boot-2","before":{"../x":"default"}}',
        b'{"boot":"boot-1","before":{}}' + b" " * MOST_BYTES,
    ],
)
def test_a_journal_that_nobody_wrote_is_damaged(text: bytes) -> None:
    """No mode is put back by it, and no path is made of it."""
    assert parse_before(text, "boot-1") is None


def test_a_journal_of_another_boot_is_void() -> None:
    """A reboot resets compute modes."""
    text = document_of({"GPU-1": ComputeMode.PROHIBITED}, "boot-1")
    assert parse_before(text, "boot-1") == {"GPU-1": ComputeMode.PROHIBITED}
    assert parse_before(text, "boot-2") == {}
    assert parse_before(b"", "boot-2") == {}
