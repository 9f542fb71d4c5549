"""The parts of the webhook that decide, wired as ``vgpu webhook`` does, to a cluster in memory.

They are the real ones. What differs is what surrounds them: objects, time and where records go.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from allocator.audit.record_source import milliseconds_of
from allocator.cluster.objects import ConfigMap
from allocator.cluster.pods import Pods
from allocator.controllers.reclaim import ReclaimController
from allocator.model.request import PodRequest
from demo.cluster import DemoCluster
from demo.timeline import Timeline
from webhook.admission.context import AdmissionView
from webhook.binding.binding_server import BindingHandler
from webhook.records.settings_controller import SettingsRecordController
from webhook.records.trail import AuditTrail
from webhook.records.waiting_controller import WaitingController
from webhook.serve.admission import PodHandler
from webhook.serve.metrics import WebhookMetrics
from webhook.workload.workload_server import WorkloadHandler


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSurroundings:
    """What the parts work with.

    ``view`` returns what decisions in a namespace rest on, ``digest`` that of the settings in
    force, which are among ``config_maps``. ``learn`` takes a pod's uid, its request, and whether
    its node was full.
    """

    cluster: DemoCluster
    trail: AuditTrail
    view: Callable[[str], AdmissionView]
    digest: Callable[[], str]
    config_maps: Callable[[], Mapping[str, ConfigMap]]
    learn: Callable[[str, PodRequest, bool], None]
    pods: Pods
    timeline: Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookParts:
    """What answers reviews, and the leader's controllers that are part of the day."""

    reviewer: PodHandler
    binder: BindingHandler
    workloads: WorkloadHandler
    reclaimer: ReclaimController
    settings: SettingsRecordController
    waiting: WaitingController


def webhook_parts(around: DemoSurroundings) -> WebhookParts:
    """Return the parts of the webhook in these surroundings."""
    metrics = WebhookMetrics(version="demo")
    trail, timeline = around.trail, around.timeline
    return WebhookParts(
        reviewer=PodHandler(
            view=around.view,
            records=trail.pass_records(now=lambda: milliseconds_of(timeline.now()) * 1_000_000),
            metrics=metrics,
        ),
        binder=BindingHandler(
            calls=around.cluster,
            context_of=lambda namespace: around.view(namespace).context,
            nodes_with_entry=around.cluster.nodes_with_entry,
            remember=trail.sink.remember,
            records=trail.bind_records(around.digest, tuple),
            learn_arrival=around.learn,
            clock=timeline.clock,
        ),
        workloads=WorkloadHandler(
            context_of=lambda namespace: around.view(namespace).context,
            count_review=metrics.count_workload,
            observe_seconds=lambda _: None,
            journal=trail.sink,
            source=trail.source,
            now=timeline.now,
        ),
        reclaimer=ReclaimController(
            around.cluster,
            pods=around.pods,
            ledgers=around.cluster.ledgers,
            agents_serve=lambda: True,
            clock=timeline.clock,
            write_record=trail.writer.write,
        ),
        settings=SettingsRecordController(
            config_maps=around.config_maps, write_record=trail.writer.write
        ),
        waiting=WaitingController(
            calls=around.cluster,
            pods=around.pods,
            vocabularies=lambda: tuple(around.view("").context.vocabularies),
            write_record=trail.writer.write,
            clock=timeline.clock,
        ),
    )
