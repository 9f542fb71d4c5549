"""The dashboard of a cluster: what is promised and used, what is refused, and what is ill."""

from typing import Final

from manifests.dashboards.panels import Dashboard, Panel, PanelKind, PanelRow, Series, Unit, one
from manifests.dashboards.records import RECORDS

_BY_MODEL: Final = "on (node, device) group_left (model) vgpu_device_info"

NOW: Final = PanelRow(
    title="Now",
    panels=(
        Panel(
            title="Memory promised",
            question="How much of all GPU memory is promised to pods?",
            kind=PanelKind.STAT,
            series=one("sum(vgpu_device_memory_promised_bytes) / sum(vgpu_device_memory_bytes)"),
            unit=Unit.RATIO,
            width=4,
            height=5,
            page="/nodes",
        ),
        Panel(
            title="Used of what is promised",
            question="How much of the promised memory do containers use?",
            kind=PanelKind.STAT,
            series=one(
                "sum(vgpu_container_memory_used_bytes) / sum(vgpu_container_memory_limit_bytes)"
            ),
            unit=Unit.RATIO,
            width=4,
            height=5,
            page="/pods",
        ),
        Panel(
            title="GPUs out of service",
            question="How many GPUs take no new pods?",
            kind=PanelKind.STAT,
            series=one("count(max by (node, device) (vgpu_device_unhealthy)) or vector(0)"),
            width=4,
            height=5,
            bad=1,
            page="/health",
        ),
        Panel(
            title="Containers above their limits",
            question="How many containers violate their limits?",
            kind=PanelKind.STAT,
            series=one(
                "count(count by (namespace, pod, container) (vgpu_container_violation))"
                " or vector(0)"
            ),
            width=4,
            height=5,
            bad=1,
            page="/records?kinds=violation",
        ),
        Panel(
            title="Agents that answer",
            question="On how many nodes does the agent answer?",
            kind=PanelKind.STAT,
            series=one('count(up{job="vgpu-agent"} == 1) or vector(0)'),
            width=4,
            height=5,
            page="/nodes",
        ),
        Panel(
            title="Webhook replicas that answer",
            question="How many replicas admit pods?",
            kind=PanelKind.STAT,
            series=one('count(up{job="vgpu-webhook"} == 1) or vector(0)'),
            width=4,
            height=5,
        ),
        Panel(
            title="Pods that wait",
            question="How many pods did no node take, and what does their scheduler say?",
            kind=PanelKind.BARS,
            series=one(
                "max by (reason) (sum by (instance, reason) (vgpu_waiting_pods))", "{{reason}}"
            ),
            width=6,
            page="/waiting",
        ),
        Panel(
            title="Oldest that waits",
            question="For how long has the oldest pod of each namespace waited?",
            kind=PanelKind.BARS,
            series=one(
                "topk(10, max by (namespace) (vgpu_waiting_oldest_seconds))", "{{namespace}}"
            ),
            unit=Unit.SECONDS,
            width=6,
            warn=900,
            page="/waiting",
        ),
        Panel(
            title="Largest request that fits",
            question="How much memory can one more container have?",
            kind=PanelKind.BARS,
            series=one(
                "max by (mode, model) (vgpu_cluster_largest_fit_bytes)", "{{mode}} {{model}}"
            ),
            unit=Unit.BYTES,
            width=6,
            page="/fit",
        ),
        Panel(
            title="Stranded memory",
            question="How much free memory is on GPUs that take no container?",
            kind=PanelKind.STAT,
            series=one("max(vgpu_cluster_stranded_memory_bytes)"),
            unit=Unit.BYTES,
            width=6,
            page="/nodes",
        ),
        Panel(
            title="Promised by model",
            question="Of which GPUs is how much memory promised?",
            kind=PanelKind.BARS,
            series=one(
                f"sum by (model) (vgpu_device_memory_promised_bytes * {_BY_MODEL})"
                f" / sum by (model) (vgpu_device_memory_bytes * {_BY_MODEL})",
                "{{model}}",
            ),
            unit=Unit.RATIO,
            width=12,
            page="/nodes",
        ),
        Panel(
            title="Promised by namespace",
            question="Who holds how much GPU memory now?",
            kind=PanelKind.BARS,
            series=one(
                "topk(10, sum by (namespace) (vgpu_container_memory_limit_bytes))", "{{namespace}}"
            ),
            unit=Unit.BYTES,
            width=12,
            page="/namespaces",
        ),
    ),
)
ADMISSION: Final = PanelRow(
    title="Admission and binding",
    panels=(
        Panel(
            title="Decisions per second",
            question="What is decided about pods, and how often?",
            kind=PanelKind.STACK,
            series=one(
                "sum by (decision) (rate(vgpu_admission_decisions_total[$__rate_interval]))",
                "{{decision}}",
            ),
            unit=Unit.RATE,
            page="/decisions",
        ),
        Panel(
            title="Top refusals in an hour",
            question="What is refused most, where, and why?",
            kind=PanelKind.TABLE,
            series=one(
                "topk(10, sum by (namespace, reason)"
                ' (increase(vgpu_admission_decisions_total{decision="refused"}[1h])) > 0)'
            ),
            page="/decisions?verdict=refused",
        ),
        Panel(
            title="Review time, 99th percentile",
            question="How long does an API server wait for an answer?",
            kind=PanelKind.LINES,
            series=one(
                "histogram_quantile(0.99, sum by (le, pass)"
                " (rate(vgpu_admission_duration_seconds_bucket[$__rate_interval])))",
                "{{pass}}",
            ),
            unit=Unit.SECONDS,
            warn=0.5,
            bad=5,
        ),
        Panel(
            title="Binds per second",
            question="How many binds are promised GPUs, and how many are refused?",
            kind=PanelKind.STACK,
            series=one(
                "sum by (decision) (rate(vgpu_bind_decisions_total[$__rate_interval]))",
                "{{decision}}",
            ),
            unit=Unit.RATE,
            page="/records?kinds=bind",
        ),
        Panel(
            title="Refused binds in an hour",
            question="Why did pods not get GPUs on the node that a scheduler chose?",
            kind=PanelKind.TABLE,
            series=one(
                'sum by (reason) (increase(vgpu_bind_decisions_total{decision="refused"}[1h])) > 0'
            ),
            page="/waiting",
        ),
        Panel(
            title="Answers to schedulers, 99th percentile",
            question="How long does a scheduler wait for the extender?",
            kind=PanelKind.LINES,
            series=one(
                "histogram_quantile(0.99, sum by (le, verb)"
                " (rate(vgpu_schedule_duration_seconds_bucket[$__rate_interval])))",
                "{{verb}}",
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Time until a pod runs, 95th percentile",
            question="How long do pods take from their creation to their first container?",
            kind=PanelKind.LINES,
            series=one(
                "histogram_quantile(0.95, sum by (le, mode)"
                " (rate(vgpu_admission_to_running_seconds_bucket[$__rate_interval])))",
                "{{mode}}",
            ),
            unit=Unit.SECONDS,
            width=24,
            page="/waiting",
        ),
    ),
)
USE: Final = PanelRow(
    title="Use",
    panels=(
        Panel(
            title="Memory of all GPUs",
            question="How much memory is there, promised, and in use?",
            kind=PanelKind.LINES,
            series=(
                Series(expression="sum(vgpu_device_memory_bytes)", legend="there is"),
                Series(expression="sum(vgpu_device_memory_promised_bytes)", legend="promised"),
                Series(expression="sum(vgpu_device_memory_used_bytes)", legend="in use"),
            ),
            unit=Unit.BYTES,
        ),
        Panel(
            title="Busy share of shared GPUs",
            question="How busy are the GPUs that pods share? Those in MIG mode report nothing.",
            kind=PanelKind.LINES,
            series=(
                Series(expression="avg(vgpu_device_cores_promised_ratio)", legend="promised"),
                Series(expression="avg(vgpu_device_cores_used_ratio)", legend="busy"),
            ),
            unit=Unit.RATIO,
        ),
        Panel(
            title="Held and unused for an hour, by namespace",
            question="Who holds memory on which nothing was computed for an hour?",
            kind=PanelKind.TABLE,
            series=one(
                "topk(10, sum by (namespace) (vgpu_container_memory_limit_bytes"
                " and on (namespace, pod, container, device)"
                " (time() - vgpu_container_last_kernel_timestamp_seconds > 3600)))"
            ),
            unit=Unit.BYTES,
            page="/namespaces",
        ),
    ),
)
MIG: Final = PanelRow(
    title="MIG",
    panels=(
        Panel(
            title="Instances",
            question="Which MIG instances are there, and which of them are idle?",
            kind=PanelKind.STACK,
            series=one("sum by (profile, state) (vgpu_mig_instances)", "{{profile}} {{state}}"),
            page="/nodes",
        ),
        Panel(
            title="Reconfigurations in a day",
            question="How often are GPUs cut anew, and how often does that fail?",
            kind=PanelKind.BARS,
            series=one(
                "sum by (outcome) (increase(vgpu_mig_reconfigurations_total[1d]))", "{{outcome}}"
            ),
            page="/records?kinds=reconfigured",
        ),
        Panel(
            title="Instances that are stuck",
            question="Which instances can be neither created nor removed?",
            kind=PanelKind.TABLE,
            series=one("sum by (node, device) (vgpu_mig_stuck) > 0"),
            page="/health",
        ),
    ),
)
TROUBLE: Final = PanelRow(
    title="Trouble",
    panels=(
        Panel(
            title="Violations that began",
            question="How often do containers break out of their limits, and how?",
            kind=PanelKind.STACK,
            series=one(
                "sum by (kind) (increase(vgpu_isolation_violations_total[$__rate_interval]))",
                "{{kind}}",
            ),
            page="/records?kinds=violation",
        ),
        Panel(
            title="Ledger, agents and pods disagree",
            question="What differs between what is promised and what nodes hold?",
            kind=PanelKind.LINES,
            series=(
                Series(expression="max by (kind) (vgpu_ledger_drift)", legend="ledger: {{kind}}"),
                Series(
                    expression="sum by (kind) (vgpu_allocation_drift)", legend="nodes: {{kind}}"
                ),
            ),
        ),
        Panel(
            title="Age of the view",
            question="How old is the oldest part of what decisions rest on?",
            kind=PanelKind.LINES,
            series=one(
                "time() - min by (instance, kind) (vgpu_cache_synced_timestamp_seconds)",
                "{{instance}} {{kind}}",
            ),
            unit=Unit.SECONDS,
            warn=60,
            bad=120,
        ),
        Panel(
            title="Certificate of the webhook",
            question="How long is the serving certificate valid?",
            kind=PanelKind.STAT,
            series=one(
                'min(vgpu_certificate_not_after_timestamp_seconds{job!="vgpu-console"}) - time()'
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Versions",
            question="Which versions run, and on how many replicas or nodes?",
            kind=PanelKind.TABLE,
            series=one("count by (component, version) (vgpu_build_info)"),
        ),
    ),
)
CLUSTER: Final = Dashboard(
    uid="vgpu-cluster",
    title="vGPU: cluster",
    about="What GPUs of the cluster are promised and used, what is refused, and what is ill.",
    rows=(NOW, ADMISSION, USE, MIG, TROUBLE, RECORDS),
    links=(("Nodes", "/d/vgpu-node"), ("Namespaces", "/d/vgpu-tenant")),
)
