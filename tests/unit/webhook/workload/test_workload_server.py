"""Reviews of workloads: always allowed, never changed, counted by themselves."""

import orjson
import pytest

from allocator.config.settings import FleetScope, Settings
from tests.builders.model import T4, nodes_of, snapshot
from tests.builders.pods import MEMORY, Json, container
from webhook.admission.context import AdmissionContext
from webhook.review.admission_review import NotAReviewError
from webhook.serve.metrics import WebhookMetrics
from webhook.workload.workload_server import WorkloadHandler

AROUND = AdmissionContext(
    settings=Settings(fleet=FleetScope.CLOSED), snapshot=snapshot(nodes_of(8, T4)), host_paths=True
)


def handler(metrics: WebhookMetrics) -> WorkloadHandler:
    return WorkloadHandler(
        context_of=lambda _: AROUND,
        count_review=metrics.count_workload,
        observe_seconds=lambda seconds: metrics.observe_decision("workload", seconds),
    )


def deployment(memory: object) -> Json:
    template = {"spec": {"containers": [container(limits={MEMORY: memory})]}}
    spec = {"template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


def review(found: object, **request: object) -> bytes:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    more = {"uid": "u", "namespace": "team-a", "kind": kind, "object": found, **request}
    return orjson.dumps({**body, "request": more})


@pytest.mark.parametrize(
    ("body", "warned", "result"),
    [
        pytest.param(review(deployment(90000)), 1, "warned", id="never-fits"),
        pytest.param(review(deployment(3000)), 0, "silent", id="fits"),
        pytest.param(review(deployment(90000), dryRun=True), 1, "warned", id="dry-run"),
        pytest.param(review(None), 0, "silent", id="no-object"),
        pytest.param(review([[]]), 0, "silent", id="list"),
        pytest.param(review({"x": "y" * 3_000_000}), 0, "silent", id="huge"),
        pytest.param(review(deployment({"a": []})), 0, "silent", id="odd-amount"),
        pytest.param(review(deployment(1), namespace=7), 0, "error", id="odd-namespace"),
    ],
)
def test_every_workload_may_pass(body: bytes, warned: int, result: str) -> None:
    """With the uid of its review, and without a patch or a status."""
    metrics = WebhookMetrics(version="v")

    answer = orjson.loads(handler(metrics).warn(body))["response"]

    assert len(answer.pop("warnings", ())) == warned
    assert answer == {"uid": "u", "allowed": True}
    count = metrics.registry.get_sample_value
    assert count("vgpu_workload_reviews_total", {"result": result}) == 1
    assert count("vgpu_admission_decisions_total", {"decision": "refused"}) is None


def test_pods_are_counted_apart() -> None:
    """Rates of refused pods stay what they are."""
    metrics = WebhookMetrics(version="v")

    handler(metrics).warn(review(deployment(90000)))

    decided = [
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "vgpu_admission_decisions_total"
    ]
    assert decided
    assert set(decided) == {0}


def test_what_is_no_review_is_not_answered() -> None:
    """There is no uid to answer to; the API server then does as its registration says."""
    with pytest.raises(NotAReviewError):
        handler(WebhookMetrics(version="v")).warn(b"{}")
