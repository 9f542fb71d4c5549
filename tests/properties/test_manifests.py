"""Whatever a manifest file holds, it is read or rejected, never the end of the program."""

import orjson
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.config.manifest import pods_in
from allocator.config.settings import Settings
from allocator.model.problem import Rejected
from allocator.model.request import Mode
from allocator.report.terminal_lines import NARROWEST, WIDEST, WIDTH, plain_text, printed_lines
from tests.builders.model import A100_40, nodes_of, snapshot
from webhook.admission.context import AdmissionContext
from webhook.plan.plan import plan
from webhook.plan.plan_json import document
from webhook.plan.plan_text import lines
from webhook.review.pod_schema import Pod

AROUND = AdmissionContext(
    settings=Settings(), snapshot=snapshot(nodes_of(1, A100_40, mode=Mode.MIG)), host_paths=True
)
KEYS = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "name", "namespace", "annotations", "spec", "items"),
        *("template", "tasks", "jobTemplate", "containers", "initContainers", "resources", "env"),
        *("limits", "requests", "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"),
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["v1", "Pod", "List", "Deployment", "apps/v1", "8Gi"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(text=st.text(max_size=200))
def test_any_text_is_read_or_rejected_with_a_reason(text: str) -> None:
    """Broken YAML is told by document; nothing is read from what is no manifest."""
    found = pods_in(text, Pod)

    assert isinstance(found, Rejected)
    assert all(problem.what and problem.accepted for problem in found.problems)


@st.composite
def pods(draw: st.DrawFn) -> object:
    """Draw a pod in which one part is nonsense, or a second container is."""
    amounts = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": draw(LEAVES)}
    good: dict[str, object] = {"name": "a", "resources": {"limits": amounts}}
    spec: dict[str, object] = {"containers": [good, draw(VALUES | st.just({"name": "b"}))]}
    metadata: dict[str, object] = {"name": "p"}
    part = draw(st.sampled_from([good, spec, metadata]))
    part[draw(KEYS)] = draw(VALUES)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@settings(max_examples=150)
@given(written=pods())
def test_any_pod_is_planned_or_rejected(written: object) -> None:
    """Wherever in a pod the nonsense stands, text and document can be made of what is planned."""
    found = pods_in(yaml.safe_dump(written, allow_unicode=True), Pod)

    if not isinstance(found, Rejected):
        plans = [plan(made, AROUND) for made in found.value]
        shown = [line for one in plans for line in lines(one, "f")]
        for width in (NARROWEST, WIDTH, WIDEST):
            assert all(len(plain_text(line)) <= width for line in printed_lines(shown, width))
        assert orjson.dumps(document([("f", one) for one in plans]))
