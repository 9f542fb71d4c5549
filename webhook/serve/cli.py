"""The control plane's commands: admission, the extender, planning, certificates."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from allocator.cli.audit import AuditOptions, audit_options
from allocator.cli.files import Streams
from allocator.cli.http_server import Listen
from allocator.cli.options import (
    ADDRESS,
    HostPort,
    access,
    context,
    kubeconfig,
    log_lines,
    namespace,
    operator_access,
    run_to_end,
)
from allocator.model.untrusted import inert, inert_lines
from certs.pem import certificates as certificates_in
from certs.refresh_controller import PairSource
from certs.rotation_controller import NoSecretError, rotate, status
from certs.rotation_policy import Rotation
from certs.status import lines
from kube.client import Client
from kube.config import Access
from kube.errors import KubeError
from webhook.plan import plan_cli
from webhook.serve import extender as beside
from webhook.serve import webhook as app
from webhook.serve.admission import MOST
from webhook.serve.certificates import certificates
from webhook.serve.extender import loopback
from webhook.serve.http import identity

T = TypeVar("T")
FILE_HELP = "manifest, folder, or - for standard input; repeatable"


@click.command("webhook")
@click.option("--listen", type=ADDRESS, default="0.0.0.0:8443", show_default=True)
@click.option("--health", type=ADDRESS, default="0.0.0.0:8080", show_default=True)
@click.option(
    "--certs",
    "source",
    type=click.Choice([source.value for source in PairSource]),
    default=PairSource.SECRET.value,
    show_default=True,
    help="certificates from our own Secret, or from files that another program keeps",
)
@click.option(
    "--cert-files",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/tls"),
    show_default=True,
    help="folder of tls.crt and tls.key, for --certs=files",
)
@click.option(
    "--extender",
    type=ADDRESS,
    help="address of the scheduler extender, off by default; plain HTTP on loopback, elsewhere for"
    " schedulers with a certificate only",
)
@click.option(
    "--extender-clients",
    "clients",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="CA certificates, instead of our own; a scheduler must present a certificate of one",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="further DNS name or IP address of the certificate; repeatable",
)
@click.option("--drain", type=click.IntRange(0, 300), default=10, show_default=True)
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=MOST,
    show_default=True,
    help="concurrent reviews; more are answered 429 with Retry-After",
)
@audit_options
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
    audit: AuditOptions | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
) -> None:
    """Serve the admission webhooks."""
    if fault := _extender_fault(extender, clients, PairSource(source)):
        raise click.UsageError(fault)
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
        audit=audit,
    )
    run_to_end(app.run(options))


def _extender_fault(address: HostPort | None, clients: Path | None, source: PairSource) -> str:
    """Return why the extender could not know its callers; empty where it can or need not."""
    if clients is not None and not certificates_in(clients.read_bytes()):
        return f"--extender-clients: {clients} holds no CA certificate in PEM"
    if address is None or clients is not None or loopback(address.host):
        return ""
    if source is PairSource.SECRET:
        return ""
    return (
        f"--extender: {address.host} is not a loopback address, so schedulers need certificates,"
        " and with --certs=files we issue none; name their authorities with --extender-clients,"
        " or listen on 127.0.0.1"
    )


@click.command("extender")
@click.option("--listen", type=ADDRESS, default="127.0.0.1:9396", show_default=True)
@click.option("--health", type=ADDRESS, default="0.0.0.0:8080", show_default=True)
@kubeconfig
@context
@namespace
def extender(
    listen: HostPort, health: HostPort, kubeconfig: Path | None, context: str | None, namespace: str
) -> None:
    """Serve the scheduler extender to a scheduler in the same pod, over loopback."""
    if not loopback(listen.host):
        raise click.BadParameter("not a loopback address", param_hint="--listen")
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
@click.option(
    "--fleet", required=True, help="fleet file with the GPUs to plan on; webhook/samples has one"
)
@click.option("--settings", help="settings.yaml of the cluster; the defaults if not given")
@click.option(
    "-o",
    "--output",
    type=click.Choice([output.value for output in plan_cli.PlanOutput]),
    default=plan_cli.PlanOutput.TEXT.value,
    show_default=True,
)
def plan(files: tuple[str, ...], fleet: str, settings: str | None, output: str) -> None:
    """Show what would become of pods on a fleet, without a cluster.

    Exits with 0 if every pod fits now, 4 if one fits the hardware but not now, 5 if one never
    does or is refused, 1 if the question could not be answered.
    """
    question = plan_cli.PlanInput(
        files=files, fleet=fleet, settings=settings, output=plan_cli.PlanOutput(output)
    )
    sys.exit(plan_cli.answer(question, Streams.standard()))


@click.group("certs")
def certs() -> None:
    """Show or replace the serving certificates."""


@certs.command("status")
@kubeconfig
@context
@namespace
def certs_status(kubeconfig: Path | None, context: str | None, namespace: str) -> None:
    """Show the certificates and the state of their rotation."""
    certificates_status = _ask(
        operator_access(kubeconfig, context), lambda c: status(certificates(c, namespace))
    )
    for line in lines(certificates_status):
        click.echo(inert(line))


@certs.command("rotate")
@click.argument("which", type=click.Choice([rotation.value for rotation in Rotation]))
@kubeconfig
@context
@namespace
def certs_rotate(which: str, kubeconfig: Path | None, context: str | None, namespace: str) -> None:
    """Request a new serving certificate (leaf) or a new authority (ca).

    The replica that leads begins within seconds. A new authority is published to every
    registration before it signs, and the old one stays trusted for as long as it is needed.
    """
    rotation = Rotation(which)
    _ask(
        operator_access(kubeconfig, context),
        lambda c: rotate(certificates(c, namespace).secrets, rotation),
    )
    click.echo(f"requested; `vgpu certs status` shows the progress of the new {which}")


def _ask(access: Access, question: Callable[[Client], Awaitable[T]]) -> T:
    """Put one question to the API server; what stands in its way is told without a traceback."""

    async def run_question() -> T:
        async with Client(access) as client:
            return await question(client)

    try:
        return asyncio.run(run_question())
    except (KubeError, NoSecretError) as error:
        raise click.ClickException(inert_lines(str(error))) from error


def _at(place: HostPort) -> Listen:
    return Listen(host=place.host, port=place.port)
