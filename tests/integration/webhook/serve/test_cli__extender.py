"""The command that answers the scheduler beside it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from vgpu import main


def test_it_listens_where_nobody_else_reaches(tmp_path: Path) -> None:
    """Any other address is refused before anything is asked of a cluster."""
    config = tmp_path / "kubeconfig"
    config.write_text("{}")

    asked = CliRunner().invoke(
        main, ["extender", "--listen=0.0.0.0:9396", f"--kubeconfig={config}"]
    )

    assert asked.exit_code == 2
    assert "not a loopback address" in asked.output


def refusal(config: Path, *options: str) -> str:
    config.write_text("{}")
    result = CliRunner().invoke(main, ["webhook", f"--kubeconfig={config}", *options])
    assert result.exit_code == 2
    return " ".join(result.output.split())


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.1.2.3", "[2001:db8::1]"])  # noqa: S104 -- all there are
def test_files_of_others_know_no_scheduler(tmp_path: Path, host: str) -> None:
    """What would do is named; our own authority signs a certificate for schedulers by itself."""
    told = refusal(tmp_path / "config", "--certs=files", f"--extender={host}:9443")

    assert "is not a loopback address, so schedulers need certificates" in told
    assert "--extender-clients" in told


@pytest.mark.parametrize("text", [b"", b"no PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_authorities_must_be_some(tmp_path: Path, text: bytes) -> None:
    """Else the port would answer nobody, and nobody would know why."""
    file = tmp_path / "ca.crt"
    file.write_bytes(text)

    told = refusal(tmp_path / "config", f"--extender-clients={file}", "--extender=0.0.0.0:9443")

    assert "holds no CA certificate in PEM" in told
