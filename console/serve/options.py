"""Options of ``vgpu console``, and what makes them contradict each other."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from allocator.cli.http_server import Listen
from console.access.login_server import DEFAULT_HOURS
from console.access.proxy import ProxyRules
from console.access.rights_client import PeopleShown
from console.receive.node_limits import DAILY_RECORDS
from console.store.store import Retention
from console.use.prometheus_client import PrometheusTarget
from kube.config import Access


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """Who may see what.

    ``proxy_ca`` is a file of authorities, ``proxy`` says whom of their subjects to believe.
    """

    people: PeopleShown = PeopleShown.EVENTS
    session_keys: Path | None = None  # None: one of this process
    session: timedelta = timedelta(hours=DEFAULT_HOURS)
    proxy_ca: Path | None = None
    proxy: ProxyRules | None = None
    read_all: bool = False  # everybody sees everything; on loopback only, without TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What the command line decides.

    ``certificates`` is a folder with ``tls.crt``, ``tls.key`` and ``ca.crt``, the authority of
    senders. ``namespace`` is ours, ``agents`` that of the node agents.
    """

    access: Access
    pages: Listen
    records: Listen
    health: Listen
    certificates: Path
    namespace: str
    agents: str
    store: str  # a file, or the URL of a database
    instance: str = ""  # the name of this pod
    retention: Retention = field(default_factory=Retention)
    node_records: int = DAILY_RECORDS  # that the agent of one node may send in a day
    viewers: AccessOptions = field(default_factory=AccessOptions)
    prometheus: PrometheusTarget | None = None  # None: what is used is not known
    drain: int = 10
