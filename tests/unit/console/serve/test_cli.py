"""Options that contradict each other end the command before anything listens."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from console.serve.cli import AGENTS_NAMESPACE, console
from manifests.generator.names import AGENTS
from tests.fakes.pki import Authority


def said(*arguments: str) -> str:
    """Return what the command prints where it ends at once."""
    result = CliRunner().invoke(console, list(arguments))
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def test_agents_are_where_the_manifests_put_them() -> None:
    """By default."""
    assert AGENTS_NAMESPACE == AGENTS


@pytest.mark.parametrize("listen", ["0.0.0.0:8444", "10.0.0.1:8444", "console.example:8444"])
def test_everything_is_shown_on_loopback_only(listen: str) -> None:
    """The error says what to do instead."""
    text = said("--insecure-read-all", f"--listen={listen}")

    assert "is not a loopback address; listen on 127.0.0.1" in text


def test_a_proxy_is_named_by_authority_and_name(tmp_path: Path) -> None:
    """One without the other would believe nobody, or everybody."""
    authority, empty = tmp_path / "ca.crt", tmp_path / "empty"
    authority.write_bytes(Authority("proxies").certificate)
    empty.write_text("none")

    assert "needs --proxy-ca" in said("--proxy-name=proxy")
    assert "needs --proxy-name" in said(f"--proxy-ca={authority}")
    assert "holds no CA certificate" in said(f"--proxy-ca={empty}", "--proxy-name=proxy")


def test_session_keys_are_keys(tmp_path: Path) -> None:
    """The error names the file and what is accepted."""
    file = tmp_path / "keys"
    file.write_text("secret\n")

    text = said(f"--session-keys={file}")

    assert "accepted: lines of 32 bytes" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    "argument",
    ["--keep-days=0", "--keep-mib=1", "--session-hours=100", "--people=nobody", "--listen=8444"],
)
def test_values_out_of_range_are_refused(argument: str) -> None:
    """Click names the accepted ones."""
    assert argument.split("=", maxsplit=1)[0] in said(argument)
