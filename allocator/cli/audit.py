"""Options for the delivery of audit records to a console, and what they start."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from allocator.delivery.delivery_client import DeliveryClient
from allocator.delivery.delivery_metrics import DeliveryMetrics
from allocator.delivery.delivery_thread import AuditDelivery
from allocator.delivery.outbox_files import Outbox
from allocator.delivery.spool_files import Spool
from kube.config import Access

CERTIFICATES: Final = Path("/audit/certificates")
TOKEN: Final = Path("/audit/token/token")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Where records go, and by what the console knows us."""

    url: str
    certificates: Path = CERTIFICATES  # folder of ca.crt, tls.crt and tls.key
    token: Path = TOKEN
    spool: Path | None = None  # folder; None: records wait in memory only


def audit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* these options; its argument ``audit`` is ``None`` without ``--audit-url``."""
    file = click.Path(path_type=Path, dir_okay=False)
    folder = click.Path(path_type=Path, file_okay=False)

    @click.option(
        "--audit-url",
        callback=_checked_url,
        help="https address of the console that audit records go to, besides standard output",
    )
    @click.option(
        "--audit-certificates",
        type=folder,
        default=CERTIFICATES,
        show_default=True,
        help="folder of ca.crt, tls.crt and tls.key, by which the console and we know each other",
    )
    @click.option(
        "--audit-token",
        type=file,
        default=TOKEN,
        show_default=True,
        help="file with a service account token for the console",
    )
    @click.option(
        "--audit-spool",
        type=folder,
        help="folder where records wait while the console is absent; in memory if not given",
    )
    @wraps(command)
    def with_audit(
        *args: Any,  # noqa: ANN401 -- whatever the command takes
        audit_url: str | None,
        audit_certificates: Path,
        audit_token: Path,
        audit_spool: Path | None,
        **options: Any,  # noqa: ANN401 -- likewise
    ) -> None:
        audit = AuditOptions(
            url=audit_url or "",
            certificates=audit_certificates,
            token=audit_token,
            spool=audit_spool,
        )
        command(*args, audit=audit if audit_url else None, **options)

    return with_audit


@contextlib.asynccontextmanager
async def audit_delivery(
    options: AuditOptions | None, metrics: DeliveryMetrics
) -> AsyncIterator[tuple[AuditDelivery, ...]]:
    """Yield the sinks of records that are delivered; none without *options*.

    After the block what is left is sent, so whoever writes must have ended by then.
    """
    if options is None:
        yield ()
        return
    access = Access(
        url=options.url,
        ca=options.certificates / "ca.crt",
        certificate=options.certificates / "tls.crt",
        key=options.certificates / "tls.key",
        token=options.token,
    )
    spool = None if options.spool is None else Spool(options.spool)
    delivery = AuditDelivery(
        Outbox(spool, count_lost=metrics.count_dropped), DeliveryClient(access), counters=metrics
    )
    metrics.follow(delivery)
    delivery.start()
    try:
        yield (delivery,)
    finally:
        await asyncio.shield(asyncio.to_thread(delivery.close))


def _checked_url(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    if not value:
        return None
    if not _is_origin(value):
        raise click.BadParameter(
            f'"{value}" is not https://HOST:PORT, e.g.'
            " https://vgpu-console.vgpu-admission-system.svc:9444"
        )
    return value


def _is_origin(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and not (parts.path.strip("/") or parts.query or parts.fragment or "@" in url)
