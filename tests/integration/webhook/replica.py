"""One replica of the webhook in this process: the product's own parts, between two sockets."""

import asyncio
import contextlib
import gc
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from allocator.audit.audit_log import AuditLog
from allocator.cli.http_server import Listen
from allocator.cli.process import background
from allocator.cluster.inventory import GPU_NODES, NODES, Inventory
from allocator.cluster.pods import pod_informer
from allocator.supernode.groups import group_service
from kube.client import Client
from kube.clock import SYSTEM
from kube.config import Access
from kube.events import Recorder
from tests.builders.gpunodes import Json, entry, gpu_node
from tests.builders.model import T4, nodes_of, soft_grant
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.harness.records import CheckingSink
from tests.integration.waiting import until
from webhook.caller.callers import KnownCallers
from webhook.caller.hook_paths import HookPaths
from webhook.records.trail import audit_trail
from webhook.serve import webhook as app
from webhook.serve.admission import MOST
from webhook.serve.extender import extender_service
from webhook.serve.http import routes, serve_app
from webhook.serve.metrics import WebhookMetrics

HOST: Final = "127.0.0.1"
OUR_NAMESPACE: Final = "vgpu-admission-system"
NAMES: Final = ("n0", "n1", "n2", "n3")
FULL: Final = "n4"
A_T4: Final = 15_000  # MiB, but for what is less than any pod here asks for
PODS: Final = "/api/v1/namespaces/team-a/pods"
OURS: Final = ("webhook.", "allocator.", "kube.")
GROWING: Final = (dict, set, list, deque)
_MEMORY: Final = type(lru_cache(len))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where each of the three servers listens."""

    admission: int
    extender: int
    health: int


def cluster(server: ApiServer, uid: str) -> None:
    """Put nodes, of which pod *uid* fills one, a namespace and our settings on *server*."""
    create = server.objects.create
    held = entry(uid, soft_grant(A_T4, gpu=f"GPU-{FULL}-0"))
    documents = [gpu_node(nodes_of(8, name=name)) for name in NAMES]
    for found in (*documents, gpu_node(nodes_of(1, T4, name=FULL), (held,))):
        create(parsed(GPU_NODES), found)
        create(parsed(NODES), {"metadata": {"name": found["metadata"]["name"]}})
    create(parsed("/api/v1/namespaces"), {"metadata": {"name": "team-a"}})
    settings: Json = {
        "metadata": {"name": "vgpu-admission-settings"},
        "data": {"settings.yaml": "extenderBind: true"},
    }
    create(parsed(f"/api/v1/namespaces/{OUR_NAMESPACE}/configmaps"), settings)


@contextlib.asynccontextmanager
async def replica(server: ApiServer, *tokens: str) -> AsyncIterator[Ports]:
    """Run what :func:`webhook.serve.webhook.run` does, but for certificates and controllers.

    With *tokens*, only who knows one of them is answered.
    """
    metrics = WebhookMetrics(version="0")
    async with Client(Access(url=server.url)) as client, background() as start:
        inventory = Inventory(client, namespace=OUR_NAMESPACE, prepare_scores=True)
        journal = AuditLog((CheckingSink(),), dropped=metrics.dropped)
        trail = audit_trail(
            journal,
            instance="replica",
            version="0",
            entropy=1,
            now=SYSTEM.wall,
            defer=journal.defer,
            parts=journal.remember_parts,
        )
        events = Recorder(client, controller="vgpu-admission.io/webhook", instance="replica")
        watch = pod_informer()
        groups = group_service(inventory, OUR_NAMESPACE, events.record)
        groups.pods.follow(watch)
        means = app._leader_context(  # noqa: SLF001 -- the composition itself is under test
            client,
            inventory,
            watch=watch,
            events=events,
            trail=trail,
            metrics=metrics,
            groups=groups,
        )
        extender = extender_service(means)
        extender.follow(watch)
        start(journal.run(), "journal")
        start(inventory.run(), "inventory")
        start(events.run(), "events")
        start(means.gangs.run(), "refused members")
        start(groups.node_groups.run(), "node groups")
        start(watch.follow(client), "pods")
        rest = routes(metrics, lambda: inventory.synced)
        callers = KnownCallers(paths=HookPaths(tokens or ("",)))
        hooks = app._admission_app(means, callers, most=MOST, extender=False)  # noqa: SLF001 -- the same
        here = Listen(host=HOST, port=0)
        async with (
            serve_app(rest, here, drain=1) as health,
            serve_app(hooks, here, drain=1, at_once=hooks.at_once) as admission,
            extender.serve(here, start, drain=1) as steered,
        ):
            assert steered is not None
            await until(lambda: inventory.synced and means.pods.by_uid is not None)
            yield Ports(admission=admission, extender=steered, health=health)


def parts() -> list[object]:
    """Return all objects of our classes that there are, and all memories of functions."""
    gc.collect()
    return [
        part
        for part in gc.get_objects()
        if isinstance(part, _MEMORY) or str(type(part).__module__).startswith(OURS)
    ]


def kept(others: Iterable[object]) -> Mapping[str, int]:
    """Return how much any part but *others* holds, by class and attribute, of what can grow."""
    strangers = set(map(id, others))
    found: Counter[str] = Counter()
    for part in parts():
        if id(part) not in strangers:
            for place, size in _sizes(part):
                found[place] = max(found[place], size)
    return found


def _sizes(part: object) -> Iterator[tuple[str, int]]:
    if isinstance(part, _MEMORY):
        yield "memory", part.cache_info().currsize
        return
    for name, value in _attributes(part):
        size = _size(value)
        if size is not None:
            yield f"{type(part).__name__}.{name}", size


def _size(value: object) -> int | None:
    if isinstance(value, asyncio.Queue):
        return value.qsize()
    return len(value) if isinstance(value, GROWING) else None


def _attributes(part: object) -> Iterator[tuple[str, object]]:
    yield from getattr(part, "__dict__", {}).items()
    for kind in type(part).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):
                yield name, getattr(part, name)
