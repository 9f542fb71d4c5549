"""What series make each alert fire, when, and what a person then reads; for promtool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

RULES_FILE: Final = "alerts.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCase:
    """Series as promtool writes them, one value a minute; the alert is silent before it fires."""

    alert: str
    series: Mapping[str, str]
    silent: str  # a time after which nothing fires yet
    fires: str
    labels: Mapping[str, str] = field(default_factory=dict)
    says: str  # its description
    calm: Mapping[str, str] = field(default_factory=dict)  # series with which it never fires


CASES: Final = (
    AlertCase(
        alert="VgpuAdmissionDown",
        series={'up{job="vgpu-webhook", instance="a"}': "1x4 0x20"},
        silent="6m",
        fires="8m",
        says=(
            "Pods that ask for vGPU are refused until a replica answers; all others start. See"
            " `kubectl -n vgpu-admission-system get pods`."
        ),
        calm={
            'up{job="vgpu-webhook", instance="a"}': "0x20",
            'up{job="vgpu-webhook", instance="b"}': "1x20",
        },
    ),
    AlertCase(
        alert="VgpuAdmissionFailing",
        series={
            'vgpu_admission_decisions_total{decision="error"}': "0+6x30",
            'vgpu_admission_decisions_total{decision="untouched"}': "0+54x30",
        },
        silent="5m",
        fires="12m",
        says=(
            "10% of reviews end in an error, and pods that ask for vGPU are refused because of it."
            ' The log lines with `"decision": "error"` say why.'
        ),
        calm={
            'vgpu_admission_decisions_total{decision="error"}': "0x30",
            'vgpu_admission_decisions_total{decision="untouched"}': "0+54x30",
        },
    ),
    AlertCase(
        alert="VgpuAdmissionUnreachable",
        series={
            'apiserver_admission_webhook_rejection_count{name="pods.vgpu-admission.io",'
            'error_type="calling_webhook_error"}': "0+6x30"
        },
        silent="4m",
        fires="12m",
        labels={"name": "pods.vgpu-admission.io"},
        says=(
            "Calls of pods.vgpu-admission.io fail. Check the certificates with `vgpu certs"
            " status`, and that the API server reaches port 8443 of the pods."
        ),
        calm={
            'apiserver_admission_webhook_rejection_count{name="pods.vgpu-admission.io",'
            'error_type="no_error"}': "0+6x30",
            'apiserver_admission_webhook_rejection_count{name="pods.example.com",'
            'error_type="calling_webhook_error"}': "0+6x30",
        },
    ),
    AlertCase(
        alert="VgpuAdmissionBypassed",
        series={
            'apiserver_admission_webhook_fail_open_count{name="pods.vgpu-admission.io"}': (
                "0x5 0+1x30"
            )
        },
        silent="5m",
        fires="20m",
        labels={"name": "pods.vgpu-admission.io"},
        says=(
            "14 calls of pods.vgpu-admission.io failed open in 15 minutes. On nodes whose runtime"
            " honours NVIDIA_VISIBLE_DEVICES these pods may see every GPU."
        ),
        calm={'apiserver_admission_webhook_fail_open_count{name="pods.vgpu-admission.io"}': "7x30"},
    ),
    AlertCase(
        alert="VgpuAdmissionSlow",
        series={
            'vgpu_admission_duration_seconds_bucket{pass="mutate", le="0.5"}': "0x30",
            'vgpu_admission_duration_seconds_bucket{pass="mutate", le="1.0"}': "0+60x30",
            'vgpu_admission_duration_seconds_bucket{pass="mutate", le="+Inf"}': "0+60x30",
        },
        silent="9m",
        fires="15m",
        says=(
            "The 99th percentile is 995ms; the API server gives up after timeoutSeconds of the"
            " webhook."
        ),
        calm={
            'vgpu_admission_duration_seconds_bucket{pass="mutate", le="0.5"}': "0+60x30",
            'vgpu_admission_duration_seconds_bucket{pass="mutate", le="1.0"}': "0+60x30",
            'vgpu_admission_duration_seconds_bucket{pass="mutate", le="+Inf"}': "0+60x30",
        },
    ),
    AlertCase(
        alert="VgpuAdmissionShedding",
        series={"vgpu_admission_shed_total": "0+60x30"},
        silent="9m",
        fires="15m",
        says=(
            "1 reviews per second are rejected with 429 and Retry-After; the API server retries"
            " until timeoutSeconds of the webhook. Add replicas."
        ),
        calm={"vgpu_admission_shed_total": "5x30"},
    ),
    AlertCase(
        alert="VgpuAuditLossy",
        series={'vgpu_audit_dropped_total{instance="a"}': "0+60x30"},
        silent="9m",
        fires="15m",
        labels={"instance": "a"},
        says=(
            "a drops 1 records per second: the reader of its standard output does not keep up, or"
            " the spool for the console is full."
        ),
        calm={'vgpu_audit_dropped_total{instance="a"}': "9x30"},
    ),
    AlertCase(
        alert="VgpuConsoleDown",
        series={'up{job="vgpu-console", instance="c"}': "1x4 0x20"},
        silent="14m",
        fires="16m",
        labels={"job": "vgpu-console", "instance": "c"},
        says=(
            "c does not answer. Nobody reads records, and senders keep theirs until their spools"
            " are full. Admission, binding and containers go on."
        ),
        calm={'up{job="vgpu-console", instance="c"}': "1x20"},
    ),
    AlertCase(
        alert="VgpuConsoleCertificateExpiring",
        series={'vgpu_certificate_not_after_timestamp_seconds{job="vgpu-console"}': "86400x90"},
        silent="59m",
        fires="61m",
        says=(
            "It expires in 22h 59m 0s; then records stay with their senders, and nobody reaches"
            " the console."
        ),
        calm={
            'vgpu_certificate_not_after_timestamp_seconds{job="vgpu-console"}': "864000x90",
            'vgpu_certificate_not_after_timestamp_seconds{job="vgpu-webhook"}': "86400x90",
        },
    ),
    AlertCase(
        alert="VgpuRecordsWaiting",
        series={'vgpu_audit_queue_length{job="vgpu-webhook", instance="a"}': "2500x30"},
        silent="14m",
        fires="16m",
        labels={"job": "vgpu-webhook", "instance": "a"},
        says=(
            "2.5k records of a have waited for a quarter of an hour. Records are dropped once the"
            " spool is full."
        ),
        calm={'vgpu_audit_queue_length{job="vgpu-webhook", instance="a"}': "2500x10 0 2500x10 0x5"},
    ),
    AlertCase(
        alert="VgpuRecordsRejected",
        series={'vgpu_audit_rejected_total{job="vgpu-agent", instance="gpu-1"}': "0x5 0+1x30"},
        silent="5m",
        fires="20m",
        labels={"job": "vgpu-agent", "instance": "gpu-1"},
        says=(
            "It rejected 14 records of gpu-1 in 15 minutes. They are lost. The versions of the"
            " console and of the sender may not fit together."
        ),
        calm={'vgpu_audit_rejected_total{job="vgpu-agent", instance="gpu-1"}': "4x30"},
    ),
    AlertCase(
        alert="VgpuNodeRecordsOverLimit",
        series={
            'vgpu_console_over_limit_batches_total{job="vgpu-console", instance="c"}': "0x5 0+1x30"
        },
        silent="5m",
        fires="20m",
        labels={"job": "vgpu-console", "instance": "c"},
        says=(
            "c refused 14 batches of nodes that had sent their records of a day. It lets them send"
            " more slowly, and its log names them."
        ),
        calm={'vgpu_console_over_limit_batches_total{job="vgpu-console", instance="c"}': "7x30"},
    ),
    AlertCase(
        alert="VgpuStoreOverLimit",
        series={
            'vgpu_console_store_bytes{instance="c"}': f"{3 << 30}x90",
            'vgpu_audit_store_limit_bytes{instance="c"}': f"{2 << 30}x90",
        },
        silent="59m",
        fires="61m",
        labels={"instance": "c"},
        says=(
            "c keeps 3GiB, and old records are not removed as fast as new ones arrive. The disk"
            " may become full."
        ),
        calm={  # it may be a little larger until it is cleaned up
            'vgpu_console_store_bytes{instance="c"}': f"{2252 << 20}x90",
            'vgpu_audit_store_limit_bytes{instance="c"}': f"{2 << 30}x90",
        },
    ),
    AlertCase(
        alert="VgpuStoreNearlyFull",
        series={
            'kubelet_volume_stats_available_bytes{persistentvolumeclaim="vgpu-console"}': "10x30",
            'kubelet_volume_stats_capacity_bytes{persistentvolumeclaim="vgpu-console"}': "100x30",
        },
        silent="14m",
        fires="16m",
        labels={"persistentvolumeclaim": "vgpu-console"},
        says=(
            "10% of it is free. Once it is full, records stay with their senders until their"
            " spools are full too."
        ),
        calm={
            'kubelet_volume_stats_available_bytes{persistentvolumeclaim="vgpu-console"}': "40x30",
            'kubelet_volume_stats_capacity_bytes{persistentvolumeclaim="vgpu-console"}': "100x30",
            'kubelet_volume_stats_available_bytes{persistentvolumeclaim="other"}': "1x30",
            'kubelet_volume_stats_capacity_bytes{persistentvolumeclaim="other"}': "100x30",
        },
    ),
    AlertCase(
        alert="VgpuPodsWaiting",
        series={
            'vgpu_waiting_oldest_seconds{namespace="team-a", reason="Unschedulable"}': "0+60x60"
        },
        silent="20m",
        fires="22m",
        labels={"namespace": "team-a", "reason": "Unschedulable"},
        says=("In team-a, as its scheduler says: Unschedulable. The oldest has waited for 22m 0s."),
        calm={'vgpu_waiting_oldest_seconds{namespace="team-a", reason="Unschedulable"}': "800x60"},
    ),
    AlertCase(
        alert="VgpuFragmented",
        series={
            "vgpu_cluster_stranded_memory_bytes": "60x60",
            'vgpu_device_memory_bytes{node="n", device="0"}': "180x60",
            'vgpu_device_memory_promised_bytes{node="n", device="0"}': "80x60",
            'vgpu_waiting_pods{namespace="team-a", reason="Unschedulable"}': "1x60",
        },
        silent="29m",
        fires="31m",
        says=("60% of the free memory is on GPUs out of service, or without a share or slot."),
        calm={
            "vgpu_cluster_stranded_memory_bytes": "60x60",
            'vgpu_device_memory_bytes{node="n", device="0"}': "180x60",
            'vgpu_device_memory_promised_bytes{node="n", device="0"}': "80x60",
        },
    ),
    AlertCase(
        alert="VgpuRefusalsSpike",
        series={
            'vgpu_admission_decisions_total{decision="refused", reason="GpuMemoryShort",'
            ' namespace="team-a"}': "0x5 0+2x30"
        },
        silent="5m",
        fires="20m",
        labels={"namespace": "team-a", "reason": "GpuMemoryShort"},
        says=(
            "team-a: 28 refusals for GpuMemoryShort in 15 minutes. The Events of their ReplicaSet"
            " or Job give the full message."
        ),
        calm={
            'vgpu_admission_decisions_total{decision="refused", reason="GpuMemoryShort",'
            ' namespace="team-a"}': "0+1x30"
        },
    ),
    AlertCase(
        alert="VgpuViewStale",
        series={'vgpu_cache_synced_timestamp_seconds{instance="a", kind="nodes"}': "0x30"},
        silent="3m",
        fires="5m",
        labels={"instance": "a", "kind": "nodes"},
        says=(
            "a received its last update of nodes 5m 0s ago. While gpunodes or nodes are outdated,"
            " no pod is refused for lack of capacity."
        ),
        calm={'vgpu_cache_synced_timestamp_seconds{instance="a", kind="nodes"}': "0+60x30"},
    ),
    AlertCase(
        alert="VgpuCertificateExpiring",
        series={"vgpu_certificate_not_after_timestamp_seconds": "86400x90"},
        silent="59m",
        fires="61m",
        says=(
            "It expires in 22h 59m 0s; then no pod that asks for vGPU is admitted. `vgpu certs"
            " status` says what prevents renewal; `vgpu certs rotate` renews it."
        ),
        calm={
            "vgpu_certificate_not_after_timestamp_seconds": "864000x90",
            'vgpu_certificate_not_after_timestamp_seconds{job="vgpu-console"}': "86400x90",
        },
    ),
    AlertCase(
        alert="VgpuCertificateMissing",
        series={'vgpu_build_info{component="webhook", version="1", instance="a"}': "1x30"},
        silent="4m",
        fires="6m",
        labels={"component": "webhook", "version": "1", "instance": "a"},
        says=(
            "a has no valid certificate and key and is not ready. `vgpu certs status` says what is"
            " missing."
        ),
        calm={
            'vgpu_build_info{component="webhook", version="1", instance="a"}': "1x30",
            'vgpu_certificate_not_after_timestamp_seconds{instance="a"}': "9999999x30",
        },
    ),
    AlertCase(
        alert="VgpuLedgerDrift",
        series={
            'vgpu_ledger_drift{kind="missing", instance="a"}': "2x30",
            'vgpu_ledger_drift{kind="missing", instance="b"}': "1x30",
        },
        silent="9m",
        fires="11m",
        labels={"kind": "missing"},
        says="2 differences of kind missing. `VgpuDrift` Events on the Nodes name the pods.",
        calm={'vgpu_ledger_drift{kind="missing", instance="a"}': "0x30"},
    ),
    AlertCase(
        alert="VgpuBindsRefused",
        series={'vgpu_bind_decisions_total{decision="refused", reason="Conflict"}': "0x5 0+2x30"},
        silent="5m",
        fires="20m",
        labels={"reason": "Conflict"},
        says=(
            "28 Bindings were refused for Conflict in 15 minutes; each time the pod returns to its"
            " scheduler. The scheduler extender avoids this."
        ),
        calm={'vgpu_bind_decisions_total{decision="refused", reason="Conflict"}': "0+1x30"},
    ),
    AlertCase(
        alert="VgpuLimitBreached",
        series={
            'vgpu_container_violation{namespace="team-a", pod="p", container="main", device="0",'
            ' kind="memory"}': "_x5 1x30"
        },
        silent="5m",
        fires="8m",
        labels={"namespace": "team-a", "pod": "p", "container": "main", "kind": "memory"},
        says=(
            "team-a/p, container main, kind memory. With the setting `enforcement: evict` such"
            " pods are evicted."
        ),
        calm={
            'vgpu_container_violation{namespace="team-a", pod="p", container="main", device="0",'
            ' kind="numbering"}': "1x30",
            'vgpu_container_violation{namespace="team-a", pod="q", container="main", device="0",'
            ' kind="compute"}': "1x30",
        },
    ),
    AlertCase(
        alert="VgpuComputeUnlimited",
        series={
            'vgpu_container_violation{namespace="team-a", pod="p", container="main", device="0",'
            ' kind="compute"}': "_x5 1x30"
        },
        silent="9m",
        fires="12m",
        labels={"namespace": "team-a", "pod": "p", "container": "main"},
        says=(
            "team-a/p, container main. CUDA graphs are launched past the interception library. Its"
            " neighbours on the GPU get less."
        ),
        calm={
            'vgpu_container_violation{namespace="team-a", pod="p", container="main", device="0",'
            ' kind="memory"}': "1x30"
        },
    ),
    AlertCase(
        alert="VgpuAgentDown",
        series={'up{job="vgpu-agent", instance="gpu-1"}': "1x4 0x20"},
        silent="9m",
        fires="11m",
        labels={"job": "vgpu-agent", "instance": "gpu-1"},
        says=(
            "While gpu-1 is down, no container with a share of a GPU starts on its node, and"
            " limits are not monitored there. Running containers continue."
        ),
        calm={'up{job="vgpu-agent", instance="gpu-1"}': "1x30"},
    ),
    AlertCase(
        alert="VgpuMonitorFailing",
        series={'vgpu_monitor_failures_total{instance="gpu-1"}': "0x5 0+1x30"},
        silent="5m",
        fires="15m",
        labels={"instance": "gpu-1"},
        says=(
            "gpu-1 failed 9 times in 10 minutes. The interception library still enforces limits,"
            " but use that bypasses it is not detected."
        ),
        calm={'vgpu_monitor_failures_total{instance="gpu-1"}': "3x30"},
    ),
    AlertCase(
        alert="VgpuDriverHung",
        series={'vgpu_driver_hung_seconds{instance="gpu-1"}': "0+60x30"},
        silent="2m",
        fires="4m",
        labels={"instance": "gpu-1"},
        says=(
            "gpu-1 has waited for 4m 0s. The node's GPUs accept no new pods, and use that bypasses"
            " the interception library is not detected."
        ),
        calm={'vgpu_driver_hung_seconds{instance="gpu-1"}': "5x30"},
    ),
    AlertCase(
        alert="VgpuInstanceStuck",
        series={'vgpu_mig_stuck{node="gpu-1", device="0"}': "1x30"},
        silent="4m",
        fires="6m",
        labels={"node": "gpu-1", "device": "0"},
        says="1 on GPU 0 of gpu-1; pods that need it wait. The agent keeps trying.",
        calm={'vgpu_mig_stuck{node="gpu-1", device="0"}': "1x2 0 1x2 _x20"},
    ),
    AlertCase(
        alert="VgpuForeignMemory",
        series={'vgpu_device_foreign_memory_bytes{node="gpu-1", device="0"}': "2147483648x30"},
        silent="9m",
        fires="11m",
        labels={"node": "gpu-1", "device": "0"},
        says="2GiB on GPU 0 of gpu-1; this memory is not given to pods in the meantime.",
        calm={'vgpu_device_foreign_memory_bytes{node="gpu-1", device="0"}': "1073741824x30"},
    ),
    AlertCase(
        alert="VgpuDeviceUnhealthy",
        series={'vgpu_device_unhealthy{node="gpu-1", device="0", reason="Xid 79"}': "_x5 1x30"},
        silent="5m",
        fires="8m",
        labels={"node": "gpu-1", "device": "0", "reason": "Xid 79"},
        says="GPU 0 of gpu-1: Xid 79. Containers that run on it are left alone.",
        calm={'vgpu_device_unhealthy{node="gpu-1", device="0", reason="Xid 79"}': "_x30"},
    ),
)


def promtool_document(rules: Mapping[str, Mapping[str, Any]], path: str) -> dict[str, Any]:
    """Return all cases as promtool reads them; *rules* are those of the file *path* by name."""
    return {
        "rule_files": [path],
        "evaluation_interval": "1m",
        "tests": [test for case in CASES for test in _tests(case, rules[case.alert])],
    }


def _tests(case: AlertCase, rule: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    fired = {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {**rule["annotations"], "description": case.says},
    }
    yield {
        "name": f"{case.alert} fires",
        "interval": "1m",
        "input_series": _input(case.series),
        "alert_rule_test": [
            _expected(case.alert, case.silent, []),
            _expected(case.alert, case.fires, [fired]),
        ],
    }
    yield {
        "name": f"{case.alert} stays silent",
        "interval": "1m",
        "input_series": _input(case.calm),
        "alert_rule_test": [_expected(case.alert, case.fires, [])],
    }


def _input(series: Mapping[str, str]) -> Sequence[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def _expected(alert: str, time: str, alerts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"alertname": alert, "eval_time": time, "exp_alerts": list(alerts)}
