"""Decisions are counted once for each pod, though the API server sends it two or three times."""

import copy
import time
from collections.abc import Sequence

import orjson
import pytest
from prometheus_client import generate_latest

from allocator.config.settings import Settings
from allocator.model.request import Mode
from tests.builders.model import A100_40, T4, nodes_of, snapshot
from tests.builders.pods import MEMORY, MODE, NUMBER, Json, admitted, container, pod, received
from tests.properties.test_hostile_reviews import Notes, review
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.records.pass_records import PassRecords
from webhook.serve.admission import PodHandler
from webhook.serve.metrics import WebhookMetrics

CONTEXT = AdmissionContext(
    settings=Settings(),
    snapshot=snapshot(nodes_of(1, A100_40, mode=Mode.MIG), nodes_of(1, T4, name="soft")),
    host_paths=True,
)
ASKS = received(pod(container(limits={NUMBER: "1", MEMORY: "3000"}), annotations={MODE: "mig"}))
HUGE = received(pod(container(limits={NUMBER: "1", MEMORY: "900000"})))
PLAIN = received(pod(container()))


def counted(*passes: tuple[str, Json]) -> list[str]:
    """Send pods through passes of one webhook and return the series above zero."""
    metrics = WebhookMetrics(version="0")
    handler = PodHandler(
        view=lambda _: AdmissionView(context=CONTEXT),
        records=PassRecords(Notes(), now=time.time_ns),
        metrics=metrics,
    )
    for name, found in passes:
        getattr(handler, name)(review(copy.deepcopy(found)))
    text = generate_latest(metrics.registry).decode()
    lines = [
        line for line in text.splitlines() if line.startswith("vgpu_admission_decisions_total")
    ]
    return [line.partition("decision=")[2] for line in lines if not line.endswith(" 0.0")]


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        pytest.param(
            [("mutate", ASKS), ("validate", admitted(ASKS, CONTEXT))],
            'mode="mig"',
            id="admitted",
        ),
        pytest.param(
            [
                ("mutate", ASKS),
                ("mutate", admitted(ASKS, CONTEXT)),
                ("validate", admitted(ASKS, CONTEXT)),
            ],
            'mode="mig"',
            id="invoked-again",
        ),
        pytest.param([("mutate", HUGE)], 'reason="GpuMemoryShort"', id="refused"),
        pytest.param([("validate", ASKS)], 'reason="IncompleteInjection"', id="refused-late"),
        pytest.param([("mutate", PLAIN)], '"rewritten"', id="hidden"),
    ],
)
def test_a_pod_counts_once(passes: Sequence[tuple[str, Json]], expected: str) -> None:
    """Whatever was decided, and however often the API server asked."""
    series = counted(*passes)

    assert len(series) == 1
    assert expected in series[0]
    assert series[0].endswith(" 1.0")
    assert orjson.loads(review(ASKS))["request"]["operation"] == "CREATE"
