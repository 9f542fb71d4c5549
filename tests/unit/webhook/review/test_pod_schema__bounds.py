"""A pod is read within bounds: thousands of names cost more than they are ever worth."""

from collections.abc import Mapping
from typing import Any

import pytest

from allocator.config.settings import Settings
from allocator.request.containers import MOST_FINDINGS
from tests.builders.model import nodes_of, snapshot
from tests.builders.pods import NUMBER, container, pod, received, typed
from tests.properties.test_hostile_reviews import review
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.admission.outcome import Refused
from webhook.review.admission_review import BadObjectError, parse
from webhook.review.pod_schema import MOST_ENTRIES, MOST_RESOURCES

AROUND = AdmissionContext(settings=Settings(), snapshot=snapshot(nodes_of(8)), host_paths=True)


def names(count: int, prefix: str = "a.com/r") -> dict[str, str]:
    return {f"{prefix}{number}": "1" for number in range(count)}


def with_limits(limits: Mapping[str, str]) -> dict[str, Any]:
    return received(pod(container(limits=dict(limits))))


def with_annotations(annotations: Mapping[str, str]) -> dict[str, Any]:
    return received(pod(container(), annotations=dict(annotations)))


@pytest.mark.parametrize(
    ("written", "told"),
    [
        pytest.param(
            with_limits(names(MOST_RESOURCES + 1)),
            "length <= 64 - at `$.request.object.spec.containers[0].resources.limits`",
            id="resources",
        ),
        pytest.param(
            with_annotations(names(MOST_ENTRIES + 1)),
            "length <= 4096 - at `$.request.object.metadata.annotations`",
            id="annotations",
        ),
    ],
)
def test_too_many_names_are_refused_in_words(written: dict[str, Any], told: str) -> None:
    """The sentence names the place, and how many there may be."""
    with pytest.raises(BadObjectError) as refused:
        parse(review(written))

    assert told in str(refused.value)


def test_as_many_as_may_are_read() -> None:
    """A pod at the bounds is decided like any other."""
    written = with_limits({NUMBER: "1", **names(MOST_RESOURCES - 1)})
    written["metadata"]["annotations"] = names(MOST_ENTRIES)

    assert not isinstance(decide(parse(review(written)).pod, AROUND), Refused)


DEVICES = [{"name": f"v{number}", "hostPath": {"path": "/dev"}} for number in range(900)]


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        pytest.param(
            "metadata", {"annotations": names(MOST_ENTRIES, "vgpu-admission.io/")}, id="annotations"
        ),
        pytest.param("spec", {"volumes": DEVICES}, id="volumes"),
    ],
)
def test_findings_of_one_kind_have_an_end(part: str, fields: Mapping[str, Any]) -> None:
    """Nobody reads the thousandth."""
    asking = received(pod(container(limits={NUMBER: 1})))
    asking[part].update(fields)

    outcome = decide(typed(asking), AROUND)

    assert isinstance(outcome, Refused)
    assert len(outcome.findings.all) == MOST_FINDINGS
