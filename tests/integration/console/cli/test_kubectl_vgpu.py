"""The command line: names, options and usage as users of kubectl expect them."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from console.cli.groups import leading_options
from console.cli.kubectl_vgpu import NAME, cli

ROOT = Path(__file__).parents[4]


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
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
    assert ("is not a duration; accepted: 30s, 2m, 500ms" in done.output) is not good


ACCEPTED = (
    "accepted: NAME, NAMESPACE/NAME, pod/NAME, deploy/NAME, rs/NAME, sts/NAME, ds/NAME,"
    " cj/NAME, job/NAME, vcjob/NAME\n"
)


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ("svc/web", '"svc" in "svc/web" is not a kind that creates pods; '),
        ("Job.v1/web", '"Job.v1" in "Job.v1/web" is not a kind that creates pods; '),
        ("deploy/", '"deploy/" does not name an object; '),
        ("apps/deploy/web", '"apps" in "apps/deploy/web" is not a kind that creates pods; '),
        ("a/deploy/team/web", '"a/deploy/team/web" has more than two /; '),
        ("A_b/web", '"A_b" in "A_b/web" is not a kind that creates pods; '),
    ],
)
def test_only_what_makes_pods_is_explained(about: str, text: str, tmp_path: Path) -> None:
    """What else is asked about is refused before anything is read."""
    config = tmp_path / "config"
    config.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a}}],"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )

    done = CliRunner().invoke(cli, ["why", about, f"--kubeconfig={config}"])

    assert done.exit_code == 1
    assert done.output == f"error: {text}{ACCEPTED}"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            (),
            "nothing to fit was given; accepted: -f FILE, or --memory, --cores, --count",
        ),
        (
            ("-f", "pod.yaml", "--cores=0"),
            "-f pod.yaml cannot go with --cores; accepted: manifests or amounts, not both",
        ),
        (
            ("--memory=8G",),
            "'--memory': \"8G\" is not an amount of memory; accepted: MiB, such as 18000, 18000Mi",
        ),
        (("--memory=0",), '"0" is not an amount of memory'),
        (("--memory=99999999Gi",), '"99999999Gi" is not an amount of memory'),
        (("--cores=101",), "Invalid value for '--cores': 101 is not in the range 0<=x<=100."),
        (("--count=0",), "Invalid value for '--count': 0 is not in the range 1<=x<=16."),
        (("--mode=smi",), "Invalid value for '--mode': 'smi' is not one of 'any', 'mig', "),
        (("--model=",), "Invalid value for '--model': \"\" is not a model; accepted: "),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, tuple) else "",
)
def test_amounts_are_read_before_anything_else(given: tuple[str, ...], text: str) -> None:
    """What cannot be used is named with its value, its place and what would do; the code is 2."""
    done = CliRunner().invoke(cli, ["fit", *given, "--kubeconfig=/nowhere"])

    assert done.exit_code == 2
    assert text in done.output


@pytest.mark.parametrize("text", ["18000", "18000Mi", "18Gi"])
def test_memory_may_be_written_as_lists_show_it(text: str) -> None:
    """With the unit of Kubernetes or without; and then the cluster is asked."""
    done = CliRunner().invoke(cli, ["fit", f"--memory={text}", "--kubeconfig=/nowhere"])

    assert done.exit_code == 1
    assert "/nowhere does not exist" in done.output


@pytest.mark.parametrize(
    ("kind", "column", "good"),
    [
        ("nodes", "fits", True),
        ("nodes", "DRIVER", True),
        ("gpus", "Numa", True),
        ("pods", "namespace", True),
        ("gpus", "age", False),
        ("pods", ".metadata.name", False),
    ],
)
def test_rows_are_sorted_by_a_column(kind: str, column: str, *, good: bool) -> None:
    """By one that the list has, in any case; else those that it has are told."""
    done = CliRunner().invoke(cli, ["get", kind, f"--sort-by={column}", "--kubeconfig=/nowhere"])

    assert done.exit_code == (1 if good else 2)
    assert (f"Invalid value for '--sort-by': '{column}' is not one of" in done.output) is not good


def test_the_program_is_what_kubectl_looks_for() -> None:
    """An installer makes it from the entry point of this name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["scripts"]["kubectl-vgpu"] == "console.cli.kubectl_vgpu:main"


def test_help_imports_no_command() -> None:
    """Whoever types -h waits for nothing that it does not need."""
    program = (
        "import sys; from console.cli.kubectl_vgpu import cli\n"
        "try: cli(['--help'], prog_name='kubectl vgpu')\n"
        "finally: print(sorted({'aiohttp', 'asyncio', 'kube', 'msgspec', 'yaml', 'structlog',"
        " 'importlib.metadata', 'console.cli.explain'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=ROOT, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: kubectl vgpu [OPTIONS] COMMAND")
    assert done.stdout.endswith("[]\n")


def test_a_read_needs_no_client_of_servers() -> None:
    """The processor time of `why` and `get` has a bar (benchmarks.console)."""
    program = (
        "import sys, console.cli.question_commands, console.cli.list_commands\n"
        "print(sorted({'aiohttp', 'structlog', 'rich', 'kubernetes', 'importlib.metadata'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=ROOT, text=True
    )

    assert (done.returncode, done.stderr, done.stdout) == (0, "", "[]\n")


def test_the_commands_are_where_the_help_says() -> None:
    """The table of names stands for imports that did not happen."""
    context = click.Context(cli)

    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
    assert cli.get_command(context, "nothing") is None


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 0),
        (["why"], 0),
        (["-n", "team-a", "why", "p1"], 2),
        (["-nteam-a", "why", "p1"], 1),
        (["--namespace=team-a", "why"], 1),
        (["--context", "c", "-A", "get", "pods"], 3),
        (["-o=json", "get", "pods"], 1),
        (["-ojson", "get", "pods"], 1),
        (["--help"], 0),
        (["-h"], 0),
        (["--unknown", "why"], 0),
        (["-n"], 2),
        (["--", "why"], 0),
    ],
)
def test_options_before_the_verb_are_found(arguments: list[str], count: int) -> None:
    """Those that take a value with it; the first word is the verb."""
    assert leading_options(arguments) == count


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-n", "team-a", "why", "p1"], "/nowhere does not exist"),
        (["--request-timeout=1s", "get", "-A", "pods"], "/nowhere does not exist"),
        (["-o", "json", "get", "pods"], "/nowhere does not exist"),
        (["-n", "team-a", "get", "nodes"], "/nowhere does not exist"),
        (["-n", "team-a", "layout"], "/nowhere does not exist"),
        (["--as", "bo", "--as-group", "a", "why", "p"], "/nowhere does not exist"),
        (["--as-group", "a", "why", "p"], "--as-group and --as-uid need --as"),
        (["--as", "b\no", "why", "p"], "take printable ASCII only"),
        (["--as", "模", "why", "p"], "take printable ASCII only"),
        (["-A", "layout"], "No such option"),
        (["--nothing", "why", "p"], "No such option"),
        (["-n"], "Missing command"),
        (["-n", "team-a"], "Missing command"),
    ],
)
def test_options_may_stand_before_the_verb(arguments: list[str], expected: str) -> None:
    """As for kubectl, whose own flags may stand anywhere."""
    done = CliRunner().invoke(cli, arguments, prog_name=NAME, env={"KUBECONFIG": "/nowhere"})

    assert done.exit_code != 0
    assert expected in done.output
