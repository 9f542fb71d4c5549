"""Processor seconds of ``kubectl vgpu``: what a person waits for before the cluster answers.

Each command runs as a process of its own, as kubectl starts it, against an API server that holds
2,000 pods with a GPU each on 250 nodes, over TLS. The same server stands for the console. Modules
are compiled before, as an installer does. The kernel says how much processor time the process took.
That of the server is not counted.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

import orjson

from benchmarks.console_server import WAITING, cluster, served
from benchmarks.report import Bar, conclude, parser, table

ROOT: Final = Path(__file__).parents[1]
PODS: Final = 2000
DECISIONS: Final = 1000  # of one page of the console
RUNS: Final = 7  # of each command, after one that is not counted
# What an installer makes of the entry point of the same name in pyproject.toml.
PLUGIN: Final = "from console.cli.kubectl_vgpu import main; main()"
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "help_cpu_s": ("--help",),
        "why_cpu_s": ("why", WAITING),
        f"get_pods_{PODS}_cpu_s": ("get", "pods"),
        f"decisions_{DECISIONS}_cpu_s": ("decisions", f"--limit={DECISIONS}"),
    }
)
LIMITS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "help_cpu_s": 0.4,
        "why_cpu_s": 0.8,
        f"get_pods_{PODS}_cpu_s": 1.2,
        f"decisions_{DECISIONS}_cpu_s": 0.8,
    }
)
EXPECTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "help_cpu_s": "Usage: kubectl vgpu",
        "why_cpu_s": "WAITING ",
        f"get_pods_{PODS}_cpu_s": f"train-{PODS - 1} ",
        f"decisions_{DECISIONS}_cpu_s": f"train-{DECISIONS - 1} ",
    }
)


class CommandError(Exception):
    """A command failed, or did not print what it should."""


def main(arguments: Sequence[str]) -> int:
    """Print the table and judge the medians; return the exit code."""
    options = parser("Measure the processor time of the commands of the console.").parse_args(
        arguments
    )
    file: Path | None = options.json
    with (
        TemporaryDirectory() as folder,
        served(cluster(PODS, DECISIONS), Path(folder)) as kubeconfig,
    ):
        environment = plugin_environment(kubeconfig)
        seconds = {
            name: [run_seconds(name, environment) for _ in range(RUNS + 1)][1:] for name in COMMANDS
        }
    print(_render(seconds))
    return conclude(bars(seconds), {"seconds": seconds}, file)


def bars(seconds: Mapping[str, Sequence[float]]) -> list[Bar]:
    """Return the bars: the median of each command's *seconds*."""
    return [
        Bar(name=name, value=median(seconds[name]), limit=limit, at_most=True)
        for name, limit in LIMITS.items()
    ]


def plugin_environment(kubeconfig: Path) -> Mapping[str, str]:
    """Return the environment of a command; compiled modules are kept beside *kubeconfig*.

    The console is at the address of the API server.
    """
    inherited = {key: v for key, v in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    compiled = str(kubeconfig.parent / "compiled")
    (cluster,) = orjson.loads(kubeconfig.read_bytes())["clusters"]
    return inherited | {
        "KUBECONFIG": str(kubeconfig),
        "PYTHONPYCACHEPREFIX": compiled,
        "VGPU_CONSOLE": cluster["cluster"]["server"],
        "VGPU_CONSOLE_CA": str(kubeconfig.parent / "ca.crt"),
    }


def run_seconds(name: str, environment: Mapping[str, str]) -> float:
    """Run the command *name* once and return its processor seconds; raises CommandError."""
    command = [sys.executable, "-c", PLUGIN, *COMMANDS[name]]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        output = "" if process.stdout is None else process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or EXPECTED[name] not in output:
        raise CommandError(f"{' '.join(command)} ended with {process.returncode}: {output[:400]}")
    return usage.ru_utime + usage.ru_stime


def _render(seconds: Mapping[str, Sequence[float]]) -> str:
    rows = [
        (
            f"kubectl vgpu {' '.join(COMMANDS[name])}",
            f"{min(figures):.2f}",
            f"{median(figures):.2f}",
            f"{max(figures):.2f}",
        )
        for name, figures in seconds.items()
    ]
    return table(("processor seconds", "least", "median", "most"), rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
