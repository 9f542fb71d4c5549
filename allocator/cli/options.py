"""click types and options that several programs share."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import structlog
import uvloop

from kube.config import (
    Access,
    default_kubeconfigs,
    existing_files,
    from_kubeconfig,
    in_cluster,
    kubeconfig_login,
)
from kube.errors import ConfigError

_LAST_PORT = 65535
T = TypeVar("T")


class HostPort(NamedTuple):
    """An address to listen on; port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "HostPort":
        """Read ``HOST:PORT``; raises ``ValueError`` naming the accepted form."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > _LAST_PORT:
            raise ValueError(f'address "{text}" is not HOST:PORT, e.g. 0.0.0.0:8443')
        return cls(host.strip("[]"), int(port))


class _Address(click.ParamType[HostPort]):
    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> HostPort:
        """Parse an address; a malformed one fails with the accepted form."""
        if isinstance(value, HostPort):
            return value
        try:
            return HostPort.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


ADDRESS = _Address()
kubeconfig = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="kubeconfig to use outside a pod",
)
context = click.option("--context", help="context of the kubeconfig")
namespace = click.option(
    "--namespace",
    envvar="POD_NAMESPACE",
    default="vgpu-admission-system",
    show_default=True,
    help="namespace where vgpu-admission is installed",
)


def access(kubeconfig: Path | None, context: str | None) -> Access:
    """Return how to reach the API server: by *kubeconfig*, or else as a pod."""
    try:
        return from_kubeconfig((kubeconfig,), context) if kubeconfig else in_cluster()
    except ConfigError as error:
        raise click.ClickException(f"{error}; outside a pod, give --kubeconfig") from error


def operator_access(kubeconfig: Path | None, context: str | None) -> Access:
    """Return how a person's command reaches the API server.

    Outside a pod and without *kubeconfig*, it reads what kubectl reads. Servers use
    :func:`access`: nobody starts one on the cluster that kubectl happens to point at.
    """
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return access(kubeconfig, context)
    files = str(kubeconfig or default_kubeconfigs())
    existing = [kubeconfig] if kubeconfig else existing_files(files)
    if not existing:
        raise click.ClickException(f"{files} does not exist; name a file with --kubeconfig")
    try:
        login = kubeconfig_login(existing, context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if login.exec is not None or login.auth_provider is not None:
        raise click.ClickException(
            f"{login.place} authenticates with a program, which this command does not start; run"
            " it in a pod of the webhook: kubectl -n vgpu-admission-system exec"
            " deployment/vgpu-webhook -- python -m vgpu certs status"
        )
    return login.access


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end on uvloop, as our servers do, and return its result."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def log_lines() -> None:
    """Configure our log as JSON lines on standard error; decisions go to standard output."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=_json_value),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


def _json_value(value: object) -> object:
    """Return what stands in a log line for a value that JSON has no form for."""
    return value.isoformat() if isinstance(value, date) else str(value)
