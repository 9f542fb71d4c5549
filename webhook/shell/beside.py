"""Beside: the scheduler extender alone, in the pod of the scheduler that asks it.

It serves no review, keeps no certificate and takes no duty, so that its account needs to read only.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from allocator.shell.inventory import Inventory
from allocator.shell.memory import freeze_when_settled
from allocator.shell.tasks import background, stop_event
from certs.shell.reload import ServingPair
from kube.client import Client, version
from kube.config import Access
from kube.events import Recorder
from kube.shared import SharedInformer
from webhook.shell.app import PODS, routes, view_of
from webhook.shell.certificates import NAME
from webhook.shell.metrics import WebhookMetrics
from webhook.shell.server import Listen, serve_app
from webhook.shell.steering import ExtenderService

DRAIN: Final = 5  # seconds for questions in flight; a scheduler waits no longer

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderOptions:
    """What the command line decides; ``identity`` is this process's own, e.g. its pod's name."""

    access: Access
    listen: Listen
    health: Listen
    namespace: str
    identity: str


async def run(options: ExtenderOptions) -> None:
    """Run until SIGTERM or SIGINT; a task that dies takes the program with it."""
    stop = stop_event()
    async with Client(options.access) as client, background() as start:
        inventory = Inventory(client, namespace=options.namespace, rated=True)
        events = Recorder(client, controller=f"{NAME}/extender", instance=options.identity)
        start(inventory.run(), "inventory")
        start(events.run(), "events")
        start(freeze_when_settled(lambda: inventory.synced), "memory")
        steering = ExtenderService(
            client=client,
            inventory=inventory,
            around=lambda namespace: view_of(inventory, namespace).around,
            events=events,
        )
        pods = SharedInformer(PODS)
        steering.follow(pods)
        start(pods.follow(client), "pods")
        metrics = WebhookMetrics(version=version())
        rest = routes(metrics, lambda: inventory.synced and not stop.is_set())
        context = ServingPair().context  # nobody is served by it on a loopback address
        async with (
            serve_app(rest, options.health, drain=DRAIN),
            steering.serve(options.listen, start, context=context, drain=DRAIN),
        ):
            await stop.wait()
