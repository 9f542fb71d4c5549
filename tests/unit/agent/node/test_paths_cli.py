"""The folder of the node that containers have mounted: which paths are taken, and from where."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from agent.node import paths_cli


@click.command()
@paths_cli.host_root
def program(host_root: Path) -> None:
    click.echo(host_root)


def test_the_variable_names_it_where_no_option_does() -> None:
    """One variable in the manifest serves the agent, its relay and the doctor."""
    run = CliRunner().invoke
    variable = {"VGPU_HOST_ROOT": "/var/lib/vgpu"}

    assert run(program, []).output == "/usr/local/vgpu\n"
    assert run(program, [], env=variable).output == "/var/lib/vgpu\n"
    assert run(program, ["--host-root=/opt/vgpu"], env=variable).output == "/opt/vgpu\n"


@pytest.mark.parametrize(
    "path",
    ["vgpu", "/", "/opt", "/opt/../vgpu", "/dev/vgpu", "/var/lib/vgpu-admission", "/v y"],
)
def test_a_folder_that_is_not_ours_alone_is_refused(path: str) -> None:
    """It is emptied when the node is left."""
    result = CliRunner().invoke(program, [f"--host-root={path}"])

    assert result.exit_code == 2
    assert "--host-root" in result.output


def test_a_path_of_the_node_is_looked_up_below_its_root() -> None:
    assert paths_cli.below(Path("/host"), Path("/var/lib/vgpu")) == Path("/host/var/lib/vgpu")
