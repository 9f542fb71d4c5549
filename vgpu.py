"""The command line: one entry point for every program of the distribution."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import structlog
import uvloop

from agent.core.xid import xid_policy
from agent.shell import app as agent
from agent.shell import doctor
from agent.shell import options as agent_options
from agent.shell.drivers import FleetError, Kind, real
from agent.shell.journal import JournalInUseError
from agent.shell.libraries import FOLDER
from agent.shell.server import Listen as AgentListen
from allocator.model.problem import Problem
from allocator.shell.files import Streams
from certs.core.policy import Rotation
from certs.core.status import lines
from certs.shell.app import Source
from certs.shell.secret import NoSecretError, rotate, status
from kube.client import Client
from kube.config import Access, from_kubeconfig, in_cluster
from kube.errors import ConfigError, KubeError
from webhook.shell import app as webhook
from webhook.shell import beside
from webhook.shell import demo as demonstration
from webhook.shell import plan as planning
from webhook.shell.admission import MOST
from webhook.shell.certificates import certificates
from webhook.shell.server import Listen
from webhook.shell.steering import loopback

T = TypeVar("T")


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
FILE_HELP = "a manifest, or - for standard input; may be given several times"


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
def serve(
    listen: Listen,
    health: Listen,
    source: str,
    cert_files: Path,
    extender: Listen | None,
    clients: Path | None,
    names: tuple[str, ...],
    drain: int,
    most: int,
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
        most=most,
        extender=extender,
        clients=clients,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(webhook.run(options))


@main.command("extender")
@click.option("--listen", type=ADDRESS, default="127.0.0.1:9396", show_default=True)
@click.option("--health", type=ADDRESS, default="0.0.0.0:8080", show_default=True)
@kubeconfig
@context
@namespace
def extender(
    listen: Listen, health: Listen, kubeconfig: Path | None, context: str | None, namespace: str
) -> None:
    """Answer the scheduler beside us, over loopback, and nobody else."""
    if not loopback(listen.host):
        raise click.BadParameter("this is no loopback address", param_hint="--listen")
    _log_lines()
    options = beside.Options(
        access=_access(kubeconfig, context),
        listen=listen,
        health=health,
        namespace=namespace,
        identity=webhook.identity(),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(beside.run(options))


@main.command("agent")
@click.option("--node-name", "node", envvar="NODE_NAME", required=True, help="our Node's name")
@click.option(
    "--driver",
    type=click.Choice([kind.value for kind in Kind]),
    default=Kind.NVML.value,
    show_default=True,
    help="NVIDIA's, or boards that are played",
)
@click.option(
    "--fleet",
    type=click.Path(path_type=Path, dir_okay=False),
    default=agent_options.FLEET,
    show_default=True,
    help="the boards that are played, with --driver=simulated",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("/"),
    show_default=True,
    help="where the node's own files are",
)
@click.option(
    "--kubelet-dir",
    "kubelet",
    type=click.Path(path_type=Path, file_okay=False),
    default=agent_options.KUBELET,
    show_default=True,
    help="kubelet's folder",
)
@click.option(
    "--library",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="the folder with the interception library to install",
)
@click.option("--metrics", type=ADDRESS, default="0.0.0.0:9394", show_default=True)
@click.option(
    "--xids-ignored",
    "ignored",
    envvar="DP_DISABLE_HEALTHCHECKS",
    default="",
    help="critical errors that take no GPU out of service: numbers with commas, or all",
)
@click.option(
    "--xids-heeded",
    "heeded",
    envvar="DP_ENABLE_HEALTHCHECKS",
    default="",
    help="critical errors that do, though ignored or the application's fault",
)
@click.option("--withdraw", is_flag=True, help="take back all that an agent put on node and Node")
@kubeconfig
@context
@namespace
def node_agent(
    node: str,
    driver: str,
    fleet: Path,
    root: Path,
    kubelet: Path,
    library: Path,
    metrics: Listen,
    ignored: str,
    heeded: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    *,
    withdraw: bool,
) -> None:
    """Serve this node's GPUs: promises become hardware, are held, and are reported."""
    _log_lines()
    xids = xid_policy(ignored, heeded)
    if isinstance(xids, Problem):
        raise click.BadParameter(str(xids), param_hint="--xids-ignored, --xids-heeded")
    options = agent_options.Options(
        access=_access(kubeconfig, context),
        node=node,
        namespace=namespace,
        listen=AgentListen(metrics.host, metrics.port),
        driver=Kind(driver),
        fleet=fleet,
        root=root,
        kubelet=kubelet,
        library=library,
        xids=xids,
        withdraw=withdraw,
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(agent.run(options))
    except (FleetError, JournalInUseError) as error:
        raise click.ClickException(str(error)) from error


@main.command("doctor")
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("/"),
    show_default=True,
    help="where the node's own files are",
)
@click.option(
    "--kubelet-dir",
    "kubelet",
    type=click.Path(path_type=Path, file_okay=False),
    default=agent_options.KUBELET,
    show_default=True,
    help="kubelet's folder on the node",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([output.value for output in doctor.Output]),
    default=doctor.Output.TEXT.value,
    show_default=True,
)
def node_doctor(root: Path, kubelet: Path, output: str) -> None:
    """Say what keeps this node from serving GPUs, and what would help.

    Changes nothing. Exits with 1 if anything fails, with 0 otherwise.
    """
    _log_lines()
    patient = doctor.Patient(driver=real(root), root=root, kubelet=kubelet)
    found = asyncio.run(doctor.examine(patient))
    sys.exit(doctor.told(found, doctor.Output(output), sys.stdout))


@main.command("plan")
@click.option("-f", "--file", "files", multiple=True, required=True, help=FILE_HELP)
@click.option("--fleet", required=True, help="the GPUs to plan on; webhook/samples has one")
@click.option("--settings", help="settings.yaml of the cluster; without it, the defaults")
@click.option(
    "-o",
    "--output",
    type=click.Choice([output.value for output in planning.Output]),
    default=planning.Output.TEXT.value,
    show_default=True,
)
def plan(files: tuple[str, ...], fleet: str, settings: str | None, output: str) -> None:
    """Say what would become of pods on a fleet, without a cluster.

    Exits with 0 if every pod fits now, 4 if one fits the hardware but not now, 5 if one never
    does or is refused, 1 if the question could not be answered.
    """
    question = planning.Question(
        files=files, fleet=fleet, settings=settings, output=planning.Output(output)
    )
    sys.exit(planning.answer(question, Streams.standard()))


@main.command("demo")
@click.argument("files", nargs=-1)
@click.option("--fleet", help="the GPUs that are there; without it, the sample fleet")
@click.option("--listen", type=ADDRESS, default="127.0.0.1:0", show_default=True)
@click.option(
    "--stay/--once",
    default=None,
    help="stay up for more pods, or end; without it, stay if this is a terminal",
)
def demo(files: tuple[str, ...], fleet: str | None, listen: Listen, *, stay: bool | None) -> None:
    """Start the webhook on loopback, send it FILES or the samples, and show what it answers."""
    if stay is None:
        stay = sys.stdin.isatty() and sys.stdout.isatty()
    options = demonstration.Options(
        files=files, fleet=fleet, listen=listen, stay=stay, again=_again()
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(demonstration.run(options, Streams.standard())))


def _again() -> str:
    """Return how this program was called: by its own name, or as a module of an interpreter."""
    called = Path(sys.argv[0])
    if called.suffix != ".py":
        return called.name
    python = Path(sys.executable)
    near = python.is_relative_to(Path.cwd())
    return f"{python.relative_to(Path.cwd()) if near else python} -m vgpu"


@main.group("certs")
def certs() -> None:
    """Look at the serving certificates, or replace them."""


@certs.command("status")
@kubeconfig
@context
@namespace
def certs_status(kubeconfig: Path | None, context: str | None, namespace: str) -> None:
    """Say how far certificates and their rotation have come."""
    found = _ask(_access(kubeconfig, context), lambda c: status(certificates(c, namespace)))
    for line in lines(found):
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
    access = _access(kubeconfig, context)
    _ask(access, lambda c: rotate(certificates(c, namespace).secrets, rotation))
    click.echo(f"requested; `vgpu certs status` tells how far the new {which} has come")


def _ask(access: Access, question: Callable[[Client], Awaitable[T]]) -> T:
    """Put one question to the API server; what stands in its way is told without a traceback."""

    async def asked() -> T:
        async with Client(access) as client:
            return await question(client)

    try:
        return asyncio.run(asked())
    except (KubeError, NoSecretError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="vgpu")
