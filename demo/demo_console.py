"""The console of the demo: a day of decisions in a store of its own, and its pages on loopback."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog
from starlette.applications import Starlette
from starlette.requests import Request

from allocator.audit.lines import line_of
from allocator.audit.record import parse_record
from allocator.cli.http_server import Listen, serve
from allocator.config.device_config import DeviceConfig, configured_vocabularies
from allocator.config.settings import Settings
from allocator.model.gpu import Node
from allocator.placement.choose import PlacementPolicy
from console.access.viewer import Viewer
from console.cluster.pod import PodView, pod_of
from console.cluster.snapshot import ClusterView, Configuration, cluster_view
from console.records.query import EVERYTHING
from console.records.rows import StoredRecord
from console.serve.page_routes import page_routes
from console.serve.page_services import PageServices
from console.store.opening import open_store
from console.store.store import RecordStore, StoreError
from demo.cluster import DemoCluster
from demo.day import Day, DayResult
from demo.story import shipped_story

SENDER: Final = "the demo, in the same process"
EVERY: Final = 0.2  # seconds between writes of what was recorded
_VIEWER: Final = Viewer(user="demo", scope=EVERYTHING)
_log = structlog.get_logger(__name__)


class StoreSink:
    """Keeps records in a store, written behind the answers."""

    def __init__(self, store: RecordStore) -> None:
        """Keep them in *store*."""
        self._store = store
        self._pending: list[StoredRecord] = []

    def remember(self, record: Mapping[str, Any], /) -> None:
        """Take a note of one record."""
        line = line_of(record)
        if line is not None:
            self._pending.append(StoredRecord(record=parse_record(line), sender=SENDER))

    def write(self) -> None:
        """Store what is pending; raises :class:`StoreError`."""
        pending, self._pending = self._pending, []
        self._store.append(pending)

    async def run(self) -> None:
        """Write what is pending, again and again; on cancellation write the rest."""
        try:
            while True:
                await asyncio.sleep(EVERY)
                await asyncio.to_thread(self.write)
        except StoreError as error:  # such as a full disk; the webhook goes on
            _log.error("records are not stored any more", why=str(error))
        finally:
            with contextlib.suppress(StoreError):
                self.write()


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConsole:
    """A console that serves; ``sink`` takes more records."""

    url: str
    sink: StoreSink


async def day_before(end: datetime, nodes: Iterable[Node], version: str) -> DayResult:
    """Return the shipped day, told on *nodes* so that it ends at *end*."""
    return await Day(shipped_story(), nodes, end=end, version=version).run()


@asynccontextmanager
async def serving_console(day: DayResult, *, version: str) -> AsyncIterator[DemoConsole]:
    """Serve a console of *day* on loopback, over a store that ends with the block."""
    with _temporary_store() as store:
        sink = StoreSink(store)
        for record in day.records:
            sink.remember(record)
        await asyncio.to_thread(sink.write)
        services = page_services(day, store, version=version)
        app = Starlette(routes=page_routes(services))
        writing = asyncio.create_task(sink.run())
        try:
            async with serve(app, Listen("127.0.0.1", 0), drain=1) as port:
                yield DemoConsole(url=f"http://127.0.0.1:{port}/", sink=sink)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


@contextlib.contextmanager
def _temporary_store() -> Iterator[RecordStore]:
    with tempfile.TemporaryDirectory(prefix="vgpu-demo-console-") as name:
        store = open_store(str(Path(name) / "records.db"))
        try:
            yield store
        finally:
            store.close()


def page_services(day: DayResult, store: RecordStore, *, version: str) -> PageServices:
    """Return what the pages are made from: records of *store*, and the cluster after *day*.

    Whoever reaches the address sees all: nothing on it is anybody's but the demo's.
    """

    async def viewer(_request: Request) -> Viewer:
        return _VIEWER

    return PageServices(
        store=store,
        viewer=viewer,
        cluster=lambda: _site(day.cluster, day.settings, _now()),
        pods=lambda: _pods(day.cluster),
        now=_now,
        version=version,
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _site(cluster: DemoCluster, settings: Settings, now: datetime) -> ClusterView:
    configuration = Configuration(
        settings=settings,
        vocabularies=configured_vocabularies(settings, DeviceConfig()),
        policy=PlacementPolicy(prefer=settings.prefer, fill_policies=settings.fill_policies),
    )
    gpu_nodes, nodes = cluster.gpu_nodes.values(), cluster.nodes.values()
    return cluster_view(gpu_nodes, nodes, now=now, configuration=configuration)


def _pods(cluster: DemoCluster) -> tuple[PodView, ...]:
    return tuple(map(pod_of, cluster.pods.values()))
