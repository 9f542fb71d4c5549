"""The panels about records: what was written, dropped, received and stored."""

from typing import Final

from manifests.dashboards.panels import Panel, PanelKind, PanelRow, Series, Unit, one

RECORDS: Final = PanelRow(
    title="Records",
    panels=(
        Panel(
            title="Records dropped",
            question="Does anything happen that no record tells of?",
            kind=PanelKind.LINES,
            series=one(
                "sum by (instance) (rate(vgpu_audit_dropped_total[$__rate_interval]))",
                "{{instance}}",
            ),
            unit=Unit.RATE,
        ),
        Panel(
            title="Records that wait for the console",
            question="Who has records that the console did not take yet?",
            kind=PanelKind.LINES,
            series=one("max by (instance) (vgpu_audit_queue_length)", "{{instance}}"),
        ),
        Panel(
            title="Records received",
            question="What became of the records that the console was sent?",
            kind=PanelKind.STACK,
            series=one(
                "sum by (result) (rate(vgpu_console_records_total[$__rate_interval]))",
                "{{result}}",
            ),
            unit=Unit.RATE,
            page="/records",
        ),
        Panel(
            title="Size of the store",
            question="How large is the store of records, and how large may it become?",
            kind=PanelKind.LINES,
            series=(
                Series(
                    expression="max by (instance) (vgpu_console_store_bytes)",
                    legend="{{instance}}",
                ),
                Series(
                    expression="max by (instance) (vgpu_audit_store_limit_bytes)",
                    legend="{{instance}} at most",
                ),
            ),
            unit=Unit.BYTES,
            page="/health",
        ),
        Panel(
            title="Time to answer a page, 95th percentile",
            question="How long does a reader wait?",
            kind=PanelKind.LINES,
            series=one(
                "histogram_quantile(0.95, sum by (le)"
                " (rate(vgpu_console_request_duration_seconds_bucket[$__rate_interval])))"
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Logins",
            question="Who is refused, and how often?",
            kind=PanelKind.STACK,
            series=one(
                "sum by (result) (increase(vgpu_console_logins_total[$__rate_interval]))",
                "{{result}}",
            ),
        ),
    ),
)
