"""The command line: one entry point for every program of the distribution."""

import asyncio
import sys
from pathlib import Path

import click
import structlog
import uvloop

from certs.shell.app import Source
from kube.config import Access, from_kubeconfig, in_cluster
from kube.errors import ConfigError
from webhook.shell import app as webhook
from webhook.shell.server import Listen


class _Address(click.ParamType[Listen]):
    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Listen:
        """Read an address, or say what one looks like."""
        if isinstance(value, Listen):
            return value
        try:
            return Listen.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


ADDRESS = _Address()


def _access(kubeconfig: Path | None, context: str | None) -> Access:
    """Return how to reach the API server: the file that was named, else the pod's own."""
    try:
        return from_kubeconfig(kubeconfig, context) if kubeconfig else in_cluster()
    except ConfigError as error:
        raise click.ClickException(f"{error}; or name a file with --kubeconfig") from error


def _log_lines() -> None:
    """Write our own log as JSON lines on standard error; decisions go to standard output."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


@click.group()
@click.version_option(webhook.version(), prog_name="vgpu")
def main() -> None:
    """Admit, fit and explain slices of GPUs."""


kubeconfig = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="how to reach the API server from outside a pod",
)
context = click.option("--context", help="which context of the kubeconfig")
namespace = click.option(
    "--namespace",
    envvar="POD_NAMESPACE",
    default="vgpu-admission-system",
    show_default=True,
    help="where vgpu-admission is installed",
)


@main.command("webhook")
@click.option("--listen", type=ADDRESS, default="0.0.0.0:8443", show_default=True)
@click.option("--health", type=ADDRESS, default="0.0.0.0:8080", show_default=True)
@click.option(
    "--certs",
    "source",
    type=click.Choice([source.value for source in Source]),
    default=Source.SECRET.value,
    show_default=True,
    help="our own Secret, or files that somebody else keeps",
)
@click.option(
    "--cert-files",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/tls"),
    show_default=True,
    help="the folder with tls.crt and tls.key, with --certs=files",
)
@click.option("--name", "names", multiple=True, help="a further name or address to be valid for")
@click.option("--drain", type=click.IntRange(0, 300), default=10, show_default=True)
@kubeconfig
@context
@namespace
def serve(
    listen: Listen,
    health: Listen,
    source: str,
    cert_files: Path,
    names: tuple[str, ...],
    drain: int,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
) -> None:
    """Serve admission of pods."""
    _log_lines()
    options = webhook.Options(
        access=_access(kubeconfig, context),
        listen=listen,
        health=health,
        namespace=namespace,
        identity=webhook.identity(),
        source=Source(source),
        files=cert_files,
        names=names,
        drain=drain,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(webhook.run(options))


if __name__ == "__main__":
    main()
