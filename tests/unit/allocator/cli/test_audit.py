"""The options of the delivery say where records go, or that they go nowhere."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from allocator.cli.audit import CERTIFICATES, TOKEN, AuditOptions, audit_options

URL = "https://vgpu-console.vgpu-admission-system.svc:9444"


def parsed(*arguments: str) -> tuple[list[AuditOptions | None], str]:
    """Return what a command with these options is given, and what it says."""
    given: list[AuditOptions | None] = []

    @click.command()
    @click.argument("word")
    @audit_options
    def command(word: str, audit: AuditOptions | None) -> None:
        """Take a word."""
        assert word == "word"
        given.append(audit)

    return given, CliRunner().invoke(command, ["word", *arguments]).output


@pytest.mark.parametrize("arguments", [(), ("--audit-url", ""), ("--audit-spool", "/spool")])
def test_without_an_address_nothing_is_delivered(arguments: tuple[str, ...]) -> None:
    """An empty one is none."""
    assert parsed(*arguments) == ([None], "")


def test_all_that_is_needed_can_be_given() -> None:
    """What is not given is where our manifests mount it."""
    assert parsed("--audit-url", URL)[0] == [
        AuditOptions(url=URL, certificates=CERTIFICATES, token=TOKEN, spool=None)
    ]
    files = ("--audit-certificates", "/c", "--audit-token", "/t", "--audit-spool", "/s")
    assert parsed("--audit-url", URL, *files)[0] == [
        AuditOptions(url=URL, certificates=Path("/c"), token=Path("/t"), spool=Path("/s"))
    ]


@pytest.mark.parametrize(
    "url",
    [
        "http://vgpu-console:9444",
        "vgpu-console:9444",
        "https://",
        "https://:9444",
        "https://console:99999",
        "https://console:0",
        "https://console/v1/records",
        "https://user@console",
        "https://console?x=y",
        "https://[::1",
    ],
)
def test_an_address_that_is_none_is_an_error(url: str) -> None:
    """It names the value and what is accepted; a token never goes over plain HTTP."""
    given, output = parsed("--audit-url", url)

    assert given == []
    assert url in output
    assert "https://HOST:PORT" in output
