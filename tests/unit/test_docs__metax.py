"""The examples in docs/metax.md are admitted and fit, and ``vgpu plan`` knows MetaX's GPUs."""

import json
import re

import pytest
import yaml

from allocator.config.manifest import ManifestPod, pods_in
from allocator.config.settings import DEFAULTS
from allocator.families.inventory_facts import inventory_facts
from allocator.families.metax import read_inventory
from allocator.metax.names import CARDS_KEY, GPU, SGPU
from allocator.model.gpu import Node
from allocator.model.problem import Loaded
from allocator.model.request import Mode
from allocator.report.feasibility import FeasibilityVerdict
from tests.builders.model import snapshot
from tests.builders.pods import container, pod
from tests.unit.test_docs import DOCS
from webhook.admission.context import AdmissionContext
from webhook.plan.plan import plan
from webhook.plan.plan_cli import surroundings
from webhook.review.pod_schema import Pod

PAGE = (DOCS / "metax.md").read_text()
CARD = {"totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536, "healthy": True}
EXAMPLES = [text for text in re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE) if "kind: Pod" in text]
FLEETS = [text for text in re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE) if "nodes:" in text]


def node(name: str, amounts: dict[str, str], notes: dict[str, str] | None = None) -> Node:
    """Return a node as MetaX's components describe it."""
    facts = inventory_facts(name, notes or {}, labels={}, capacity=amounts, allocatable=amounts)
    assert facts is not None
    found = read_inventory(facts).node
    assert found is not None
    return found


CARDS = json.dumps([CARD | {"uuid": f"GPU-{name}"} for name in "abc"])
CONTEXT = AdmissionContext(
    settings=DEFAULTS,
    snapshot=snapshot(node("native", {GPU: "8"}), node("shared", {SGPU: "48"}, {CARDS_KEY: CARDS})),
    host_paths=True,
)


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_admitted_and_fits(text: str) -> None:
    """Whoever pastes it gets what it asks for, without a warning."""
    found = pods_in(text, Pod)
    assert isinstance(found, Loaded)
    assert len(found.value) == len(list(yaml.safe_load_all(text)))
    for one in found.value:
        planned = plan(one, CONTEXT)
        assert planned.verdict is FeasibilityVerdict.FITS, planned.answer.message
        assert planned.answer.warnings == ()


@pytest.mark.parametrize("text", FLEETS)
def test_a_fleet_file_may_have_metaxs_gpus(text: str) -> None:
    """By their mode; the answer is in GiB and in MetaX's names."""
    context = surroundings(fleet=text, name="fleet.yaml", settings=DEFAULTS)
    gpus = [gpu for one in context.snapshot.nodes.values() for gpu in one.gpus]
    assert {(gpu.mode, gpu.family) for gpu in gpus} == {
        (Mode.SGPU, "metax"),
        (Mode.NATIVE, "metax"),
    }

    def answer(**limits: object) -> tuple[FeasibilityVerdict, str]:
        named = {f"metax-tech.com/{name}": amount for name, amount in limits.items()}
        (one,) = _made(pod(container(limits=named)))
        planned = plan(one, context)
        found = () if planned.outlook is None else planned.outlook.choice.findings
        return planned.verdict, " ".join(map(str, found))

    assert answer(sgpu=1, vcore=60, vmemory=4)[0] is FeasibilityVerdict.FITS
    assert answer(gpu=8)[0] is FeasibilityVerdict.FITS
    verdict, message = answer(sgpu=1, vcore=60, vmemory=80)
    assert verdict is not FeasibilityVerdict.FITS
    assert "80 GiB" in message


def _made(written: object) -> list[ManifestPod[Pod]]:
    found = pods_in(yaml.safe_dump(written), Pod)
    assert isinstance(found, Loaded)
    return list(found.value)
