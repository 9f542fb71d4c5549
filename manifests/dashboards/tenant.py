"""The dashboard of a namespace: what its pods hold and use, and what was refused."""

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

_HERE: Final = '{namespace=~"$namespace"}'
_PAGE: Final = "?namespace=${namespace}"

HOLDS: Final = PanelRow(
    title="What pods hold",
    panels=(
        Panel(
            title="Memory",
            question="How much GPU memory do the pods hold, and how much do they use?",
            kind=PanelKind.LINES,
            series=(
                Series(
                    expression=f"sum by (namespace) (vgpu_container_memory_limit_bytes{_HERE})",
                    legend="{{namespace}} promised",
                ),
                Series(
                    expression=f"sum by (namespace) (vgpu_container_memory_used_bytes{_HERE})",
                    legend="{{namespace}} used",
                ),
            ),
            unit=Unit.BYTES,
            page=f"/pods{_PAGE}",
        ),
        Panel(
            title="Used of the limit",
            question="Which containers are about to hit their memory limits?",
            kind=PanelKind.TABLE,
            series=one(
                f"sum by (namespace, pod, container) (vgpu_container_memory_used_bytes{_HERE})"
                " / sum by (namespace, pod, container)"
                f" (vgpu_container_memory_limit_bytes{_HERE})"
            ),
            unit=Unit.RATIO,
            warn=0.9,
            bad=1,
            page=f"/pods{_PAGE}",
        ),
        Panel(
            title="Compute in use",
            question="Which containers compute? Those on MIG instances report nothing.",
            kind=PanelKind.LINES,
            series=one(f"vgpu_container_cores_used_ratio{_HERE}", "{{pod}} {{container}}"),
            unit=Unit.RATIO,
        ),
        Panel(
            title="Idle for",
            question="How long ago did each container compute last?",
            kind=PanelKind.TABLE,
            series=one(f"time() - vgpu_container_last_kernel_timestamp_seconds{_HERE}"),
            unit=Unit.SECONDS,
            width=12,
            page=f"/pods{_PAGE}",
        ),
        Panel(
            title="Held back",
            question="Whose kernels wait, for those of a higher priority or beyond a promise?",
            kind=PanelKind.TABLE,
            series=one(f"max by (namespace, pod, container) (vgpu_container_held_back{_HERE})"),
            width=12,
        ),
    ),
)
DECIDED: Final = PanelRow(
    title="What was decided",
    panels=(
        Panel(
            title="Decisions in an hour",
            question="How many pods were admitted, and how many refused?",
            kind=PanelKind.BARS,
            series=one(
                "sum by (namespace, decision)"
                f" (increase(vgpu_admission_decisions_total{_HERE}[1h])) > 0",
                "{{namespace}} {{decision}}",
            ),
            width=12,
            page=f"/decisions{_PAGE}",
        ),
        Panel(
            title="Refusals in an hour",
            question="Why were pods refused?",
            kind=PanelKind.TABLE,
            series=one(
                "sum by (namespace, reason) (increase(vgpu_admission_decisions_total"
                '{namespace=~"$namespace", decision="refused"}[1h])) > 0'
            ),
            width=12,
            page=f"/decisions{_PAGE}&verdict=refused",
        ),
        Panel(
            title="Waiting",
            question="For how long have pods waited, and what does their scheduler say?",
            kind=PanelKind.TABLE,
            series=one(f"max by (namespace, reason) (vgpu_waiting_oldest_seconds{_HERE})"),
            unit=Unit.SECONDS,
            width=12,
            page=f"/waiting{_PAGE}",
        ),
        Panel(
            title="Above their limits",
            question="Which containers hold or do more than they were promised?",
            kind=PanelKind.TABLE,
            series=one(
                f"max by (namespace, pod, container, kind) (vgpu_container_violation{_HERE})"
            ),
            width=12,
            page=f"/records{_PAGE}&kinds=violation",
        ),
    ),
)
TENANT: Final = Dashboard(
    uid="vgpu-tenant",
    title="vGPU: namespace",
    about="What the pods of a namespace hold and use of GPUs, and what was refused.",
    rows=(HOLDS, DECIDED),
    variables=(
        DashboardVariable(
            name="namespace",
            label="Namespace",
            values="label_values(vgpu_container_memory_limit_bytes, namespace)",
        ),
    ),
    links=(("Cluster", "/d/vgpu-cluster"),),
)
