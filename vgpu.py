"""The command line: one entry point for every program of the distribution."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

import click

from kube.client import version

# A program is imported only when it is run: the agent needs no web server, admission no NVML.
_CONTROL_PLANE: Final = "webhook.serve.cli"
_NODE: Final = "agent.serve.cli"
PROGRAMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "agent": _NODE,
        "certs": _CONTROL_PLANE,
        "console": "console.serve.cli",
        "convert": "allocator.cli.convert_cli",
        "demo": "demo.demo_cli",
        "doctor": _NODE,
        "extender": _CONTROL_PLANE,
        "plan": _CONTROL_PLANE,
        "records": "console.serve.records_cli",
        "relay": "agent.relay.relay_cli",
        "vocabularies": "allocator.cli.vocabularies_cli",
        "webhook": _CONTROL_PLANE,
    }
)


def program(name: str) -> click.Command:
    """Import a command; raises ``KeyError`` where there is none of that name."""
    found: click.Command = getattr(import_module(PROGRAMS[name]), name)
    return found


class Programs(click.Group):
    """The commands, each where its package keeps it under its own name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's
        """Return all names."""
        return list(PROGRAMS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's
        """Import a command, ``None`` where there is none of that name."""
        return program(cmd_name) if cmd_name in PROGRAMS else None


@click.group(cls=Programs)
@click.version_option(version(), prog_name="vgpu")
def main() -> None:
    """Share GPUs between pods: admission, scheduling, node agent and tools."""


if __name__ == "__main__":
    main(prog_name="vgpu")
