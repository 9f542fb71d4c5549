"""The control plane's commands: admission, the extender, planning, the demo, certificates."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from allocator.cli.files import Streams
from allocator.cli.options import (
    ADDRESS,
    HostPort,
    access,
    context,
    kubeconfig,
    log_lines,
    namespace,
    run_to_end,
)
from certs.refresh_controller import PairSource
from certs.rotation_controller import NoSecretError, rotate, status
from certs.rotation_policy import Rotation
from certs.status import lines
from kube.client import Client
from kube.config import Access
from kube.errors import KubeError
from webhook.plan import plan_cli
from webhook.serve import demo as demonstration
from webhook.serve import extender as beside
from webhook.serve import webhook as app
from webhook.serve.admission import MOST
from webhook.serve.certificates import certificates
from webhook.serve.extender import loopback
from webhook.serve.http import Listen, identity

T = TypeVar("T")
FILE_HELP = "a manifest, or - for standard input; may be given several times"


@click.command("webhook")
@click.option("--listen", type=ADDRESS, default="0.0.0.0:8443", show_default=True)
@click.option("--health", type=ADDRESS, default="0.0.0.0:8080", show_default=True)
@click.option(
    "--certs",
    "source",
    type=click.Choice([source.value for source in PairSource]),
    default=PairSource.SECRET.value,
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
@click.option(
    "--extender",
    type=ADDRESS,
    help="where to answer schedulers, off unless given; plain HTTP on a loopback address",
)
@click.option(
    "--extender-clients",
    "clients",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="certificates of authorities: schedulers must bring a certificate of one of them",
)
@click.option("--name", "names", multiple=True, help="a further name or address to be valid for")
@click.option("--drain", type=click.IntRange(0, 300), default=10, show_default=True)
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=MOST,
    show_default=True,
    help="reviews at a time; more are answered 429 with Retry-After",
)
@kubeconfig
@context
@namespace
def webhook(
    listen: HostPort,
    health: HostPort,
    source: str,
    cert_files: Path,
    extender: HostPort | None,
    clients: Path | None,
    names: tuple[str, ...],
    drain: int,
    most: int,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
) -> None:
    """Serve admission of pods."""
    log_lines()
    options = app.WebhookOptions(
        access=access(kubeconfig, context),
        listen=_at(listen),
        health=_at(health),
        namespace=namespace,
        identity=identity(),
        source=PairSource(source),
        files=cert_files,
        names=names,
        drain=drain,
        most=most,
        extender=None if extender is None else _at(extender),
        clients=clients,
    )
    run_to_end(app.run(options))


@click.command("extender")
@click.option("--listen", type=ADDRESS, default="127.0.0.1:9396", show_default=True)
@click.option("--health", type=ADDRESS, default="0.0.0.0:8080", show_default=True)
@kubeconfig
@context
@namespace
def extender(
    listen: HostPort, health: HostPort, kubeconfig: Path | None, context: str | None, namespace: str
) -> None:
    """Answer the scheduler beside us, over loopback, and nobody else."""
    if not loopback(listen.host):
        raise click.BadParameter("this is no loopback address", param_hint="--listen")
    log_lines()
    options = beside.ExtenderOptions(
        access=access(kubeconfig, context),
        listen=_at(listen),
        health=_at(health),
        namespace=namespace,
        identity=identity(),
    )
    run_to_end(beside.run(options))


@click.command("plan")
@click.option("-f", "--file", "files", multiple=True, required=True, help=FILE_HELP)
@click.option("--fleet", required=True, help="the GPUs to plan on; webhook/samples has one")
@click.option("--settings", help="settings.yaml of the cluster; without it, the defaults")
@click.option(
    "-o",
    "--output",
    type=click.Choice([output.value for output in plan_cli.PlanOutput]),
    default=plan_cli.PlanOutput.TEXT.value,
    show_default=True,
)
def plan(files: tuple[str, ...], fleet: str, settings: str | None, output: str) -> None:
    """Say what would become of pods on a fleet, without a cluster.

    Exits with 0 if every pod fits now, 4 if one fits the hardware but not now, 5 if one never
    does or is refused, 1 if the question could not be answered.
    """
    question = plan_cli.PlanInput(
        files=files, fleet=fleet, settings=settings, output=plan_cli.PlanOutput(output)
    )
    sys.exit(plan_cli.answer(question, Streams.standard()))


@click.command("demo")
@click.argument("files", nargs=-1)
@click.option("--fleet", help="the GPUs that are there; without it, the sample fleet")
@click.option("--listen", type=ADDRESS, default="127.0.0.1:0", show_default=True)
@click.option(
    "--stay/--once",
    default=None,
    help="stay up for more pods, or end; without it, stay if this is a terminal",
)
def demo(files: tuple[str, ...], fleet: str | None, listen: HostPort, *, stay: bool | None) -> None:
    """Start the webhook on loopback, send it FILES or the samples, and show what it answers."""
    if stay is None:
        stay = sys.stdin.isatty() and sys.stdout.isatty()
    options = demonstration.DemoOptions(
        files=files, fleet=fleet, listen=_at(listen), stay=stay, again=_invocation()
    )
    sys.exit(run_to_end(demonstration.run(options, Streams.standard())))


def _invocation() -> str:
    """Return how this program was called: by its own name, or as a module of an interpreter."""
    called = Path(sys.argv[0])
    if called.suffix != ".py":
        return called.name
    python = Path(sys.executable)
    near = python.is_relative_to(Path.cwd())
    return f"{python.relative_to(Path.cwd()) if near else python} -m vgpu"


@click.group("certs")
def certs() -> None:
    """Look at the serving certificates, or replace them."""


@certs.command("status")
@kubeconfig
@context
@namespace
def certs_status(kubeconfig: Path | None, context: str | None, namespace: str) -> None:
    """Say how far certificates and their rotation have come."""
    certificates_status = _ask(
        access(kubeconfig, context), lambda c: status(certificates(c, namespace))
    )
    for line in lines(certificates_status):
        click.echo(line)


@certs.command("rotate")
@click.argument("which", type=click.Choice([rotation.value for rotation in Rotation]))
@kubeconfig
@context
@namespace
def certs_rotate(which: str, kubeconfig: Path | None, context: str | None, namespace: str) -> None:
    """Have the serving certificate (leaf) or its authority (ca) replaced.

    The replica that leads begins within seconds. A new authority is published to every
    registration before it signs, and the old one stays trusted for as long as it is needed.
    """
    rotation = Rotation(which)
    _ask(
        access(kubeconfig, context), lambda c: rotate(certificates(c, namespace).secrets, rotation)
    )
    click.echo(f"requested; `vgpu certs status` tells how far the new {which} has come")


def _ask(access: Access, question: Callable[[Client], Awaitable[T]]) -> T:
    """Put one question to the API server; what stands in its way is told without a traceback."""

    async def run_question() -> T:
        async with Client(access) as client:
            return await question(client)

    try:
        return asyncio.run(run_question())
    except (KubeError, NoSecretError) as error:
        raise click.ClickException(str(error)) from error


def _at(place: HostPort) -> Listen:
    return Listen(host=place.host, port=place.port)
