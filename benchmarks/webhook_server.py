"""The two servers of the webhook benchmark; each is a process that owns one core.

Both are the product's own TLS server on uvloop. ``ours`` is the product's own admission with its
journal and metrics, over a fleet that changes ten times a second. Its records are delivered to a
console, and written where nobody reads them. ``baseline`` is the least that
a webhook could do: decode the review, as fast as untyped JSON can be decoded in Python, and
answer that the pod may pass. ``unaudited`` is ``ours`` without records of decisions.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import orjson
import uvloop

from allocator.audit.audit_log import AuditLog, BytesFile, FileSink, Sink
from allocator.cli.audit import AuditOptions, audit_delivery
from allocator.cli.http_server import App, Listen, Receive, Scope, Send
from allocator.cli.process import freeze_when_settled, keep_memory
from allocator.config.fleet_file import load_fleet
from allocator.config.settings import DEFAULTS
from allocator.model.gpu import Node, Snapshot
from allocator.model.problem import Rejected
from allocator.placement.fleet import snapshot_of
from certs.issue import IssueParameters, Names
from certs.refresh_controller import throwaway
from certs.tls_server import ServingPair
from kube.clock import SYSTEM
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.records.trail import audit_trail
from webhook.serve.admission import AdmissionApp, PodHandler
from webhook.serve.http import AnswerOf, Reviews, serve_app
from webhook.serve.metrics import WebhookMetrics

HOST: Final = "127.0.0.1"
SWAP_SECONDS: Final = 0.1

FLEET: Final = """
nodes:
- name: a100-mig
  count: 125
  model: NVIDIA A100-SXM4-40GB
  gpus: 8
  mode: mig
  busy: [{gpu: 0, profile: 1g.5gb, start: 6}, {gpu: 1, profile: 3g.20gb, start: 4}]
- name: a100
  count: 125
  model: NVIDIA A100-SXM4-40GB
  gpus: 8
  busy: [{gpu: 0, memory: 8000, cores: 30}, {gpu: 3, memory: 40000, cores: 100}]
- name: h100
  count: 125
  model: NVIDIA H100 80GB HBM3
  gpus: [{count: 4, mode: mig}, {count: 4, mode: hami-core}]
  busy: [{gpu: 0, profile: 4g.40gb, start: 0}, {gpu: 4, memory: 40000, cores: 50}]
- name: t4
  count: 125
  model: Tesla T4
  gpus: 8
  busy: [{gpu: 0, memory: 8000, cores: 30}]
"""


class ServerKind(StrEnum):
    """Which server."""

    OURS = "ours"
    UNAUDITED = "unaudited"  # ours without records
    BASELINE = "baseline"


def fleet() -> tuple[Node, ...]:
    """Return 500 nodes with 4,000 GPUs of several models in both modes, some of them busy."""
    loaded = load_fleet(FLEET)
    if isinstance(loaded, Rejected):
        raise TypeError(str(loaded))
    return loaded.value


@dataclass(slots=True)
class ChangingInventory:
    """A fleet of which one GPU falls ill or recovers at every turn."""

    nodes: list[Node] = field(default_factory=lambda: list(fleet()))
    turns: int = 0
    snapshot: Snapshot = field(init=False)

    def __post_init__(self) -> None:
        self.change_node()

    def change_node(self) -> None:
        """Change one node and fold all of them into a new snapshot."""
        self.turns += 1
        at = self.turns % len(self.nodes)
        first, *others = self.nodes[at].gpus
        changed = replace(first, healthy=not first.healthy)
        self.nodes[at] = replace(self.nodes[at], gpus=(changed, *others))
        self.snapshot = snapshot_of(self.nodes, version=str(self.turns), complete=True)

    async def run(self) -> None:
        """Turn for ever."""
        while True:
            await asyncio.sleep(SWAP_SECONDS)
            self.change_node()

    def view(self, _namespace: str) -> AdmissionView:
        """Return what a decision rests on now."""
        around = AdmissionContext(settings=DEFAULTS, snapshot=self.snapshot, host_paths=True)
        return AdmissionView(context=around, settings_digest="defaults", age=0.0)


def reviewer(
    inventory: ChangingInventory,
    sinks: Sequence[Sink] | None,
    metrics: WebhookMetrics | None = None,
) -> tuple[PodHandler, AuditLog]:
    """Return the product's reviewer over *inventory*, and the journal that writes to *sinks*.

    The product makes records always; where *sinks* is ``None`` there are none, for comparison.
    """
    metrics = metrics or WebhookMetrics(version="benchmark")
    journal = AuditLog(sinks or (), dropped=metrics.dropped)
    if sinks is None:
        return PodHandler(view=inventory.view, records=None, metrics=metrics), journal
    trail = audit_trail(
        journal,
        instance="benchmark",
        version="benchmark",
        entropy=1,
        now=SYSTEM.wall,
        defer=journal.defer,
        parts=journal.remember_parts,
    )
    made = PodHandler(
        view=inventory.view,
        records=trail.pass_records(now=time.time_ns),
        metrics=metrics,
    )
    return made, journal


async def body_of(receive: Receive) -> bytes:
    """Return the whole body of a request."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def reply_json(send: Send, answer: bytes) -> None:
    """Answer 200 with *answer*."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def baseline(_scope: Scope, receive: Receive, send: Send) -> None:
    """Decode a review and answer that the pod may pass."""
    body = await body_of(receive)
    response = {"uid": orjson.loads(body)["request"]["uid"], "allowed": True}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    await reply_json(send, orjson.dumps(review | {"response": response}))


async def run(kind: ServerKind, audit: AuditOptions | None, output: BytesFile) -> None:
    """Serve until standard input ends; say the port first, and at last what was done.

    Ours delivers its records, and writes them to *output*, too, as the default settings say.
    """
    keep_memory()  # as the product does
    names = Names(dns=("localhost",), addresses=(ip_address(HOST),))
    bundle, pair = throwaway(IssueParameters(names=names))
    live = ServingPair()
    live.load(pair)
    metrics = WebhookMetrics(version="benchmark")
    async with (
        audit_delivery(audit, metrics.delivery) as delivery,
        asyncio.TaskGroup() as group,
    ):
        app: App = baseline
        at_once: AnswerOf = Reviews.at_once
        tasks: list[asyncio.Task[None]] = []
        if kind is not ServerKind.BASELINE:
            inventory = ChangingInventory()
            sinks: tuple[Sink, ...] = (FileSink(file=output, enabled=lambda: True), *delivery)
            audited = kind is ServerKind.OURS
            deciding, journal = reviewer(inventory, sinks if audited else None, metrics)
            app = admission = AdmissionApp(deciding, baseline)
            at_once = admission.at_once
            # As the product does it, once all is known.
            collecting = freeze_when_settled(lambda: True)
            works = (journal.run(), inventory.run(), collecting)
            tasks = [group.create_task(work) for work in works]
        async with serve_app(
            app, Listen(host=HOST, port=0), context=live.context, at_once=at_once
        ) as port:
            tell({"port": port, "bundle": bundle.decode()})
            await asyncio.to_thread(sys.stdin.buffer.read)
        for task in tasks:
            task.cancel()
    tell({"recorded": metrics.registry.get_sample_value("vgpu_audit_delivered_total")})


def tell(what: dict[str, object]) -> None:
    """Say *what* to whoever started this process."""
    sys.stdout.buffer.write(orjson.dumps(what, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def main(arguments: Sequence[str]) -> int:
    """Run ``KIND CORE``, of ours with the address of a console and the folder of its files."""
    kind, core, *console = arguments
    os.sched_setaffinity(0, {int(core)})
    audit = None
    if console:
        files = Path(console[1])
        audit = AuditOptions(
            url=console[0], certificates=files, token=files / "token", spool=files / "spool"
        )
    with (
        Path(os.devnull).open("wb") as nobody,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(run(ServerKind(kind), audit, nobody))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
