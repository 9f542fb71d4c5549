"""Shell completion of ``kubectl vgpu``: what kubectl runs as ``kubectl_complete-vgpu``."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete

from console.cli.groups import leading_options
from console.cli.kubectl_vgpu import NAME, cli

# What kubectl's shell scripts do with the answer (cobra's ShellCompDirective).
NO_FILES: Final = 4
FILES: Final = 0
_FILE_OPTIONS: Final = frozenset({"-f", "--filename", "--kubeconfig"})


def completions(words: Sequence[str]) -> tuple[list[str], int]:
    """Return the candidates for the last of *words*, each with its help, and the directive.

    Only names of commands and options are completed; nothing is asked of a cluster.
    """
    *before, incomplete = words or ("",)
    if before and before[-1] in _FILE_OPTIONS:
        return [], FILES
    if leading_options(before) > len(before):  # the value of an option is wanted
        return [], NO_FILES
    found = ShellComplete(cli, {}, NAME, "").get_completions(before, incomplete)
    return [_line(item.value, item.help) for item in found if item.type == "plain"], NO_FILES


def _line(value: str, text: str | None) -> str:
    return f"{value}\t{' '.join(text.split())}" if text else value


def _lines(words: Sequence[str]) -> Iterator[str]:
    found, directive = completions(words)
    yield from found
    yield f":{directive}"


def main() -> None:
    """Print candidates and a directive, as kubectl expects of a plugin's completion."""
    for line in _lines(sys.argv[1:]):
        click.echo(line)
