"""The command ``vgpu console``."""

import os
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click

from allocator.catalog.conditions import SYSTEM_NAMESPACE
from allocator.cli.http_server import Listen
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
from certs.pem import certificates as certificates_in
from console.access.proxy import GROUP_HEADER, USER_HEADER, ProxyRules
from console.access.rights_client import PeopleShown
from console.access.session import SessionKeyError, parse_keys
from console.receive.node_limits import DAILY_RECORDS
from console.serve import console as program
from console.serve.options import AccessOptions, ConsoleOptions
from console.serve.protection import names_loopback
from console.store.opening import open_store
from console.store.store import Retention, StoreError
from console.use.prometheus_client import PrometheusTarget

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_FOLDER = click.Path(path_type=Path, file_okay=False)
AGENTS_NAMESPACE = f"{SYSTEM_NAMESPACE.removesuffix('-system')}-agents"


@click.command("console")
@click.option("--listen", type=ADDRESS, default="0.0.0.0:8444", show_default=True, help="pages")
@click.option(
    "--records",
    type=ADDRESS,
    default="0.0.0.0:9444",
    show_default=True,
    help="where webhooks and agents send their records",
)
@click.option("--health", type=ADDRESS, default="0.0.0.0:8080", show_default=True)
@click.option(
    "--cert-files",
    "certificates",
    type=_FOLDER,
    default=Path("/tls"),
    show_default=True,
    help="folder of tls.crt, tls.key and ca.crt, the authority of senders; reread when they change",
)
@click.option(
    "--store",
    default="/var/lib/vgpu-console/records.db",
    show_default=True,
    envvar="VGPU_CONSOLE_STORE",
    help="file of the store, or the URL of a PostgreSQL database",
)
@click.option(
    "--keep-days",
    type=click.FloatRange(min=1 / 24, max=36500),
    default=30,
    show_default=True,
    help="older records are removed",
)
@click.option(
    "--keep-mib",
    type=click.IntRange(min=16),
    default=2048,
    show_default=True,
    help="where the store grows beyond it, the oldest records are removed",
)
@click.option(
    "--node-records",
    type=click.IntRange(min=1000),
    default=DAILY_RECORDS,
    show_default=True,
    help="records that the agent of one node may send in a day; more of them wait",
)
@click.option(
    "--people",
    type=click.Choice([shown.value for shown in PeopleShown]),
    default=PeopleShown.EVENTS.value,
    show_default=True,
    help="to whom names of requesters are shown: who may get events too, or everybody",
)
@click.option(
    "--session-keys",
    type=_FILE,
    help="keys of the session cookie, one a line, the newest first; by default one of this process",
)
@click.option(
    "--session-hours",
    type=click.FloatRange(min=0.1, max=72),
    default=8,
    show_default=True,
    help="after which somebody must log in again",
)
@click.option(
    "--proxy-ca",
    type=_FILE,
    help="CA certificates of an authenticating proxy; needs --proxy-name",
)
@click.option(
    "--proxy-name",
    "proxy_names",
    multiple=True,
    help="common name of a proxy whose headers are believed; repeatable",
)
@click.option("--proxy-user-header", default=USER_HEADER, show_default=True)
@click.option("--proxy-group-header", default=GROUP_HEADER, show_default=True)
@click.option(
    "--proxy-group-separator",
    default="",
    help="between groups in one header; by default each header is one group",
)
@click.option(
    "--prometheus",
    metavar="URL",
    help="address of a Prometheus that scrapes the agents; asked for what is used",
)
@click.option(
    "--prometheus-token", type=_FILE, help="file with a token for it; only with https; reread"
)
@click.option("--prometheus-ca", type=_FILE, help="CA certificates that it is verified by")
@click.option(
    "--insecure-read-all",
    "read_all",
    is_flag=True,
    help="show everything to everybody, in plain HTTP; only with --listen on a loopback address",
)
@click.option(
    "--agents-namespace",
    "agents",
    default=AGENTS_NAMESPACE,
    show_default=True,
    help="namespace of the node agents",
)
@click.option("--drain", type=click.IntRange(0, 300), default=10, show_default=True)
@kubeconfig
@context
@namespace
def console(
    listen: HostPort,
    records: HostPort,
    health: HostPort,
    certificates: Path,
    store: str,
    keep_days: float,
    keep_mib: int,
    node_records: int,
    people: str,
    session_keys: Path | None,
    session_hours: float,
    proxy_ca: Path | None,
    proxy_names: tuple[str, ...],
    proxy_user_header: str,
    proxy_group_header: str,
    proxy_group_separator: str,
    prometheus: str | None,
    prometheus_token: Path | None,
    prometheus_ca: Path | None,
    read_all: bool,  # noqa: FBT001 -- click's
    agents: str,
    drain: int,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
) -> None:
    """Keep the records of all components, and serve pages about them."""
    viewers = AccessOptions(
        people=PeopleShown(people),
        session_keys=session_keys,
        session=timedelta(hours=session_hours),
        proxy_ca=proxy_ca,
        read_all=read_all,
    )
    if proxy_ca is not None:
        rules = ProxyRules(
            names=frozenset(proxy_names),
            user_header=proxy_user_header,
            group_header=proxy_group_header,
            separator=proxy_group_separator,
        )
        viewers = replace(viewers, proxy=rules)
    if fault := _fault(viewers, listen, proxy_names):
        raise click.UsageError(fault)
    asked = _prometheus(prometheus, prometheus_token, prometheus_ca)
    log_lines()
    options = ConsoleOptions(
        access=access(kubeconfig, context),
        pages=_at(listen),
        records=_at(records),
        health=_at(health),
        certificates=certificates,
        namespace=namespace,
        agents=agents,
        store=store,
        instance=os.environ.get("POD_NAME") or socket.gethostname(),
        retention=Retention(age=timedelta(days=keep_days), size=keep_mib * 1024**2),
        node_records=node_records,
        viewers=viewers,
        prometheus=asked,
        drain=drain,
    )
    try:
        opened = open_store(store)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    run_to_end(program.run(options, opened))


def _prometheus(url: str | None, token: Path | None, ca: Path | None) -> PrometheusTarget | None:
    """Return where to ask for what is used; raises ``click.UsageError``."""
    if url is None:
        if token is not None or ca is not None:
            raise click.UsageError("--prometheus-token and --prometheus-ca need --prometheus URL")
        return None
    target = PrometheusTarget(url=url, token=token, ca=ca)
    if fault := target.fault():
        raise click.UsageError(f"--prometheus: {fault}")
    return target


def _fault(viewers: AccessOptions, listen: HostPort, names: tuple[str, ...]) -> str:
    """Return which options contradict each other or cannot be used; empty where none does."""
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    if viewers.read_all and not names_loopback(host):
        return (
            f"--insecure-read-all: {listen.host} is not a loopback address; listen on 127.0.0.1"
            " and forward the port"
        )
    if viewers.session_keys is not None:
        try:
            parse_keys(viewers.session_keys.read_text())
        except (SessionKeyError, OSError, UnicodeDecodeError) as error:
            return f"--session-keys: {viewers.session_keys}: {error}"
    if viewers.proxy_ca is None:
        return "--proxy-name: needs --proxy-ca, by which proxies are known" if names else ""
    if not names:
        return "--proxy-ca: needs --proxy-name, the common name of a certificate of the proxy"
    if not certificates_in(viewers.proxy_ca.read_bytes()):
        return f"--proxy-ca: {viewers.proxy_ca} holds no CA certificate in PEM"
    return ""


def _at(place: HostPort) -> Listen:
    return Listen(host=place.host, port=place.port)
