"""Groups of commands: options before the verb, and commands that are imported when they run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

import click

_VALUED: Final = frozenset(
    {
        "-n", "--namespace", "--context", "--kubeconfig", "--request-timeout", "--system-namespace",
        "--as", "--as-group", "--as-uid", "-o", "--output", "-l", "--selector", "--sort-by",
        "-f", "--filename", "--console", "--console-ca",
    }
)  # fmt: skip
_FLAGS: Final = frozenset({"-A", "--all-namespaces", "-w", "--watch", "--no-headers"})
_SHORT: Final = 2  # characters of an option such as -n, whose value may follow at once


def leading_options(arguments: Sequence[str]) -> int:
    """Return how many of *arguments* are options before the first word, with their values."""
    count = 0
    while count < len(arguments):
        option, equals, _ = arguments[count].partition("=")
        if option in _FLAGS or (option in _VALUED and equals):
            count += 1
        elif option in _VALUED:
            count += 2
        elif not option.startswith("--") and option[:_SHORT] in _VALUED:
            count += 1
        else:
            break
    return count


class OptionsFirst(click.Group):
    """A group that accepts the options of a command before it, as kubectl does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options before the command behind it."""
        count = leading_options(args)
        if count and count >= len(args):
            if not ctx.resilient_parsing:
                raise click.UsageError("Missing command.", ctx)
            args = []  # a shell completes the command
        if count < len(args) and not args[count].startswith("-"):
            args = [args[count], *args[:count], *args[count + 1 :]]
        return super().parse_args(ctx, args)


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """The module of a command, and the first sentence of its help."""

    module: str
    help: str


class LazyGroup(OptionsFirst):
    """Commands that are imported when they run, so that their names and help cost nothing."""

    places: Mapping[str, CommandPlace] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's
        """Return all names."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's
        """Import a command, ``None`` where there is none of that name."""
        place = self.places.get(cmd_name)
        if place is None:
            return None
        command: click.Command = getattr(import_module(place.module), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's
        """Write the names with their help, without an import of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in self.places.items()])


class KindGroup(OptionsFirst):
    """Subcommands that also accept the other names that kubectl has for a kind."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a kind by any of its names."""
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))


_ALIASES: Final = {"node": "nodes", "no": "nodes", "gpu": "gpus", "pod": "pods", "po": "pods"}
