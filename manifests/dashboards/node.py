"""The dashboard of a node: each of its GPUs, and the containers on them.

Containers are found by ``instance``, which the PodMonitor of the agents makes the node's name.
"""

from typing import Final

from manifests.dashboards.panels import (
    Dashboard,
    DashboardVariable,
    Panel,
    PanelKind,
    PanelRow,
    Series,
    Unit,
    one,
)

_HERE: Final = '{node=~"$node"}'
_CONTAINERS: Final = '{instance=~"$node"}'

GPUS: Final = PanelRow(
    title="GPUs",
    panels=(
        Panel(
            title="Models and modes",
            question="Which GPUs are there, and in which mode?",
            kind=PanelKind.TABLE,
            series=one(f"max by (node, device, model, mode, uuid) (vgpu_device_info{_HERE})"),
            width=12,
            page="/nodes",
        ),
        Panel(
            title="Out of service",
            question="Which GPUs take no new pods, and why?",
            kind=PanelKind.TABLE,
            series=one(f"max by (node, device, reason) (vgpu_device_unhealthy{_HERE})"),
            width=12,
            page="/health",
        ),
        Panel(
            title="Memory promised",
            question="How full is each GPU?",
            kind=PanelKind.BARS,
            series=one(
                f"sum by (node, device) (vgpu_device_memory_promised_bytes{_HERE})"
                f" / sum by (node, device) (vgpu_device_memory_bytes{_HERE})",
                "{{node}}/{{device}}",
            ),
            unit=Unit.RATIO,
        ),
        Panel(
            title="Memory in use",
            question="How much memory of each GPU do processes hold?",
            kind=PanelKind.LINES,
            series=one(f"vgpu_device_memory_used_bytes{_HERE}", "{{node}}/{{device}}"),
            unit=Unit.BYTES,
        ),
        Panel(
            title="Busy share",
            question="How busy is each GPU? One in MIG mode reports nothing.",
            kind=PanelKind.LINES,
            series=(
                Series(
                    expression=f"vgpu_device_cores_used_ratio{_HERE}",
                    legend="{{node}}/{{device}} busy",
                ),
                Series(
                    expression=f"vgpu_device_cores_promised_ratio{_HERE}",
                    legend="{{node}}/{{device}} promised",
                ),
            ),
            unit=Unit.RATIO,
        ),
        Panel(
            title="MIG instances",
            question="Which instances are there, and who has them?",
            kind=PanelKind.TABLE,
            series=one(
                "max by (node, device, profile, start, namespace, pod, container)"
                f" (vgpu_mig_instance_info{_HERE})"
            ),
            width=16,
            page="/nodes",
        ),
        Panel(
            title="Memory of others",
            question="Which GPUs have processes without an entry, and what do these hold?",
            kind=PanelKind.TABLE,
            series=one(f"vgpu_device_foreign_memory_bytes{_HERE} > 0"),
            unit=Unit.BYTES,
        ),
    ),
)
CONTAINERS: Final = PanelRow(
    title="Containers",
    panels=(
        Panel(
            title="Used of the limit",
            question="How near are containers to their memory limits?",
            kind=PanelKind.TABLE,
            series=one(
                f"vgpu_container_memory_used_bytes{_CONTAINERS}"
                f" / on (namespace, pod, container, device, instance)"
                f" vgpu_container_memory_limit_bytes{_CONTAINERS}"
            ),
            unit=Unit.RATIO,
            width=12,
            page="/pods",
        ),
        Panel(
            title="Compute in use",
            question="Which containers compute?",
            kind=PanelKind.LINES,
            series=one(
                f"vgpu_container_cores_used_ratio{_CONTAINERS}",
                "{{namespace}}/{{pod}} {{container}}",
            ),
            unit=Unit.RATIO,
            width=12,
        ),
    ),
)
AGENT: Final = PanelRow(
    title="Agent",
    panels=(
        Panel(
            title="Monitoring cycles that failed",
            question="Does the agent see what containers use?",
            kind=PanelKind.LINES,
            series=one(
                f"increase(vgpu_monitor_failures_total{_CONTAINERS}[$__rate_interval])",
                "{{instance}}",
            ),
        ),
        Panel(
            title="A call of the driver hangs",
            question="For how long has the driver not answered?",
            kind=PanelKind.LINES,
            series=one(f"vgpu_driver_hung_seconds{_CONTAINERS}", "{{instance}}"),
            unit=Unit.SECONDS,
            bad=60,
        ),
        Panel(
            title="Differs from the ledger",
            question="Does the node hold what its ledger says?",
            kind=PanelKind.LINES,
            series=one(f"vgpu_allocation_drift{_HERE}", "{{node}} {{kind}}"),
        ),
        Panel(
            title="Repairs of shared regions",
            question="What did killed processes leave broken?",
            kind=PanelKind.LINES,
            series=one(
                "sum by (instance, kind)"
                f" (increase(vgpu_region_repairs_total{_CONTAINERS}[$__rate_interval]))",
                "{{instance}} {{kind}}",
            ),
        ),
        Panel(
            title="Implausible values in regions",
            question="Do tenants write into their shared regions?",
            kind=PanelKind.LINES,
            series=one(f"vgpu_region_faults{_HERE}", "{{node}}"),
        ),
        Panel(
            title="Evictions",
            question="How many pods had to go because they broke their limits?",
            kind=PanelKind.LINES,
            series=one(
                f"increase(vgpu_evictions_total{_CONTAINERS}[$__rate_interval])", "{{instance}}"
            ),
            page="/records?kinds=evicted",
        ),
    ),
)
NODE: Final = Dashboard(
    uid="vgpu-node",
    title="vGPU: node",
    about="The GPUs of nodes, and the containers on them.",
    rows=(GPUS, CONTAINERS, AGENT),
    variables=(
        DashboardVariable(name="node", label="Node", values="label_values(vgpu_device_info, node)"),
    ),
    links=(("Cluster", "/d/vgpu-cluster"),),
)
