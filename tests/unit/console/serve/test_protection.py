"""What a request must be before any page sees it."""

import pytest

from console.serve.protection import names_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("LocalHost:8444", True),
        ("127.0.0.1:1", True),
        ("127.8.8.8", True),
        ("[::1]", True),
        ("[::1]:8444", True),
        ("", False),
        ("0.0.0.0", False),  # noqa: S104 -- a name, not a place to listen
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("evil.example:127", False),
        ("127.0.0.1.evil.example", False),
        ("evil@localhost:x@evil.example", False),
        ("[::1", False),
        ("[::1].evil.example", False),
        ("::1", False),
        ("2130706433", False),
        ("0x7f.1", False),
        ("localhost/../evil", False),
    ],
)
def test_only_names_of_this_machine_are_loopback(host: str, *, loopback: bool) -> None:
    """A browser that was lured here by another name says that name."""
    assert names_loopback(host) is loopback
