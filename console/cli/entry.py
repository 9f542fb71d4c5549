"""The program ``kubectl-vgpu``: it says what is missing where its extra was not installed."""

import sys


def main() -> None:
    """Run the plugin; kubectl calls it for ``kubectl vgpu``."""
    try:
        from console.cli.kubectl_vgpu import cli  # noqa: PLC0415 -- it needs what may not be there
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes":
            raise
        sys.stderr.write(
            "error: kubectl vgpu needs the extra: pip install vgpu-admission[kubectl]\n"
        )
        sys.exit(1)
    cli(prog_name="kubectl vgpu")
