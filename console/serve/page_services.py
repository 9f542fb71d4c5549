"""What pages are made from; the program wires it, and a test or the demo does too."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from starlette.requests import Request

from console.access.viewer import Viewer
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView
from console.pages.fleet.capacity import FleetMemory
from console.serve.protection import AnswerPlaces
from console.store.store import RecordStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServices:
    """What pages are made from.

    ``viewer`` returns who asks, or ``None`` where nobody was authenticated. ``cluster`` returns
    nodes, ledgers and settings as they are now, ``None`` where they cannot be read yet, and
    ``pods`` the pods that ask for GPUs now; ``age`` says for how many seconds the API server has
    told nothing of them, ``None`` before it has. ``query`` asks Prometheus, where there is one. A
    ``notice`` stands on every page.
    """

    store: RecordStore
    viewer: Callable[[Request], Awaitable[Viewer | None]]
    cluster: Callable[[], ClusterView | None]
    pods: Callable[[], tuple[PodView, ...]]
    now: Callable[[], datetime]
    age: Callable[[], float | None] = lambda: None
    query: Callable[[str], Awaitable[object]] | None = None
    version: str = ""
    notice: str = ""
    login: bool = False  # people log in, and may log out
    fleet: FleetMemory = field(default_factory=FleetMemory)
    places: AnswerPlaces = field(default_factory=AnswerPlaces)
