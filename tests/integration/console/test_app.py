"""The command line: names, options and usage as users of kubectl expect them."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from console.shell.app import NAME, cli

ROOT = Path(__file__).parents[3]


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
def test_usage_is_of_kubectl(path: tuple[str, ...]) -> None:
    """A plugin's usage begins with kubectl, and -h is enough to see it."""
    shown = CliRunner().invoke(cli, [*path, "-h"], prog_name=NAME)

    assert shown.exit_code == 0
    assert shown.output.startswith(f"Usage: kubectl vgpu {' '.join(path)} [OPTIONS]")
    assert all(f"--{name}" in shown.output for name in ("kubeconfig", "context"))


@pytest.mark.parametrize("name", ["node", "no", "gpu", "pod", "po"])
def test_kinds_have_the_names_they_have_for_kubectl(name: str) -> None:
    """Fingers that know kubectl type these."""
    assert CliRunner().invoke(cli, ["get", name, "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("text", "good"),
    [
        *((text, True) for text in ("5", "5s", "0.5s", "2m", "500ms")),
        *((text, False) for text in ("", "0", "-1s", "5x", "s", "nan", "1e9", "1s2m", "..5s")),
    ],
)
def test_a_timeout_is_a_duration(text: str, *, good: bool) -> None:
    """As for kubectl's own flag; what is none is told before anything is asked."""
    options = ["layout", "--kubeconfig=/nowhere", f"--request-timeout={text}"]

    done = CliRunner().invoke(cli, options)

    assert done.exit_code == (1 if good else 2)
    assert ("/nowhere does not exist" in done.output) is good
    assert ("is no duration; accepted: 30s, 2m, 500ms" in done.output) is not good


def test_only_pods_are_explained(tmp_path: Path) -> None:
    """What else is asked about is refused before anything is read."""
    config = tmp_path / "config"
    config.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a}}],"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )

    done = CliRunner().invoke(cli, ["why", "deploy/web", f"--kubeconfig={config}"])

    assert done.exit_code == 1
    assert done.output == 'error: "deploy/web" is no pod; accepted: NAME or pod/NAME\n'


def test_the_program_is_what_kubectl_looks_for() -> None:
    """An installer makes it from the entry point of this name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["scripts"]["kubectl-vgpu"] == "console.shell.entry:main"


def test_an_extra_that_is_missing_is_named() -> None:
    """Who installed without it reads what to install, and no traceback."""
    program = (
        "import sys; sys.modules['kubernetes'] = None; from console.shell.entry import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=ROOT, text=True
    )

    assert done.returncode == 1
    assert done.stderr == (
        "error: kubectl vgpu needs the extra: pip install vgpu-admission[kubectl]\n"
    )
