"""The kubectl plugin: its commands, as users of kubectl expect them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

from console.cli.groups import CommandPlace, LazyGroup

NAME: Final = "kubectl vgpu"
_LISTS: Final = "console.cli.list_commands"
_QUESTIONS: Final = "console.cli.question_commands"
_HISTORY: Final = "console.cli.history_commands"


class PluginCommands(LazyGroup):
    """The commands of the plugin."""

    places: Mapping[str, CommandPlace] = MappingProxyType(
        {
            "get": CommandPlace(_LISTS, "List nodes, GPUs or pods."),
            "layout": CommandPlace(
                _LISTS, "Draw GPUs: MIG slots and shares of memory, with the pods that hold them."
            ),
            "why": CommandPlace(
                _QUESTIONS, "Explain a pod: what is missing, what would help, and what it got."
            ),
            "fit": CommandPlace(_QUESTIONS, "Say whether pods would fit now; nothing is created."),
            "decisions": CommandPlace(
                _HISTORY, "List decisions about pods, also of pods that are gone; or show one."
            ),
            "records": CommandPlace(_HISTORY, "List what happened to pods, GPUs and settings."),
            "who": CommandPlace(_HISTORY, "Say who holds GPUs and who asked for them."),
            "top": CommandPlace(_HISTORY, "Show what is used now of what was promised."),
            "export": CommandPlace(_QUESTIONS, "Write files for other commands."),
        }
    )


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 -- click's
    if value and not ctx.resilient_parsing:
        click.echo(f"{NAME}, version {_version()}")
        ctx.exit()


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 -- slow to import, and rarely asked

    try:
        return metadata.version("vgpu-admission")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "source"


@click.group(
    name=NAME, cls=PluginCommands, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Show who holds which slice of a GPU, what still fits, and why a pod got what it got.

    Reads the cluster of your kubeconfig with your own rights, and never writes to it.
    """


def main() -> None:
    """Run the plugin; kubectl calls it for ``kubectl vgpu``."""
    cli(prog_name=NAME)
