"""The program ``kubectl-vgpu``; without its extra it says how to install that."""

import sys


def main() -> None:
    """Run the plugin; kubectl calls it for ``kubectl vgpu``."""
    try:
        # The command line needs `click`; a command that reads a cluster needs `kubernetes` too.
        from console.cli.kubectl_vgpu import cli  # noqa: PLC0415 -- it needs what may not be there

        cli(prog_name="kubectl vgpu")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes":
            raise
        sys.stderr.write(
            "error: kubectl vgpu needs the extra: pip install vgpu-admission[kubectl]\n"
        )
        sys.exit(1)
