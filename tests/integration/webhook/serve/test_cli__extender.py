"""The command that answers the scheduler beside it."""

from pathlib import Path

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
