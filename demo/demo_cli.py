"""``vgpu demo``: the webhook on loopback, sample pods, and a console of the day before."""

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
import structlog

from allocator.cli.files import Streams
from allocator.cli.http_server import Listen
from allocator.cli.options import ADDRESS, HostPort, run_to_end
from demo.demo_console import day_before, serving_console
from kube.client import version
from webhook.admission.context import AdmissionContext
from webhook.serve import demo as demonstration


@click.command("demo")
@click.argument("files", nargs=-1)
@click.option("--fleet", help="fleet file with the GPUs; the sample fleet if not given")
@click.option("--listen", type=ADDRESS, default="127.0.0.1:0", show_default=True)
@click.option(
    "--stay/--once",
    default=None,
    help="keep serving, or exit after the pods; by default keep serving on a terminal",
)
def demo(files: tuple[str, ...], fleet: str | None, listen: HostPort, *, stay: bool | None) -> None:
    """Start the webhook on loopback, send it FILES or the samples, and show its answers.

    While it stays up, a console shows a day of decisions on the same fleet.
    """
    if stay is None:
        stay = sys.stdin.isatty() and sys.stdout.isatty()
    # What the day decides is shown by the console, not line by line.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    options = demonstration.DemoOptions(
        files=files,
        fleet=fleet,
        listen=Listen(listen.host, listen.port),
        stay=stay,
        again=_invocation(),
    )
    sys.exit(run_to_end(demonstration.run(options, Streams.standard(), _console)))


@asynccontextmanager
async def _console(context: AdmissionContext) -> AsyncIterator[demonstration.DemoCompanion]:
    """Serve a console of the day before on the nodes of *context*."""
    nodes = tuple(context.snapshot.nodes.values())
    day = await day_before(datetime.now(UTC), nodes, version())
    async with serving_console(day, version=version()) as console:
        yield demonstration.DemoCompanion(address=("console", console.url), sink=console.sink)


def _invocation() -> str:
    """Return how this program was called: by its own name, or as a module of an interpreter."""
    called = Path(sys.argv[0])
    if called.suffix != ".py":
        return called.name
    python = Path(sys.executable)
    near = python.is_relative_to(Path.cwd())
    return f"{python.relative_to(Path.cwd()) if near else python} -m vgpu"
